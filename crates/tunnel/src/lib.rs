//! A tunnel: connections of unmodified programs, over TCP or unix sockets, in one RDMA queue pair.
//!
//! - In: at the one end ([`ClientEnd`]) clients that connect, at the other ([`ServiceEnd`]) services that
//!   listen; the providers of both hosts.
//! - Out: the same bytes in the same order, closed directions and broken connections included.
//!
//! Two ends keep one session (TLS, choice of the path, leases: as between source and collector) and one
//! queue pair. All connections are streams in it ([`mux`], in frames: [`frame`]). `docs/spec/tunnel.md` has
//! messages and frames byte by byte, `docs/guide/tunnel.md` how to use it.
//!
//! # Promises
//!
//! - One thread with epoll moves the bytes of a session. It sleeps while there is nothing to move, sends at once
//!   while the path is idle, and gathers what comes while it is busy. No allocation for a block.
//! - A program that does not read holds up nobody else, and costs at most a window of memory at each end.
//! - When a session ends, its connections break at both ends; the end with the clients dials again, and turns
//!   clients away meanwhile. A peer that breaks the protocol harms its own session only.
#![forbid(unsafe_code)]

pub mod frame;
pub mod mux;
mod relay;
pub mod session;

pub use catchment_channel::Mode;
pub use relay::{Counters, Local};
pub use session::{ClientConfig, ClientEnd, ServiceConfig, ServiceEnd, StartError, TunnelEvent};
