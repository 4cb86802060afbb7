//! One RDMA device shared by many applications, fairly, by an agent without privileges.
//!
//! - [`ring`], [`entry`], [`pool`]: the virtual request pool, memory that an application shares with its
//!   agent: requests one way, completions the other.
//! - [`scheduler`]: who is served next, without I/O or a clock.
//! - [`policy`]: who may connect, with which weight; the shares that follow.
//! - [`explain`]: why an application has its rate.
//! - [`inband`]: what agents say over shared queue pairs, as bytes.
//! - [`matching`]: which message goes into which receive of a peer, without I/O.
//! - [`peer`]: sessions with the agents of other hosts.
//! - [`slot`]: memory in which such an agent writes its newest message of a round.
//! - [`protocol`]: what an application and its agent say over their socket.
//! - `services`: which application answers whom that calls it by name.
//! - [`calibrate`]: what a device moves, and what a request costs it.
//! - [`Agent`]: the agent itself; [`SharedQps`]: the queue pairs that connections share, without its thread.
//! - [`AgentProvider`]: verbs for applications, through an agent; [`Application`]: what applications ask of it beside verbs;
//!   [`Inquiry`]: how an agent stands.
#![forbid(unsafe_code)]

pub mod calibrate;
mod daemon;
pub mod entry;
pub mod explain;
pub mod inband;
mod justitia;
pub mod matching;
pub mod peer;
pub mod policy;
pub mod pool;
pub mod protocol;
mod provider;
pub mod ring;
pub mod scheduler;
mod services;
pub mod slot;

pub use daemon::{Agent, Posted, SharedQps};
pub use protocol::Standing;
pub use provider::{
    AgentOptions, AgentProvider, Application, DEFAULT_AGENT, INFO, Incoming, Inquiry, Offer, peers,
    rounds, status,
};
