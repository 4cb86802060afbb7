//! Verbs between processes of one host: sealed memfds, requests executed by the initiator.
//!
//! A context has a random GID, listens on an abstract unix socket of that name, and answers peers
//! from a service thread. A peer gets the descriptor of a region once, maps it, and executes its
//! WRITEs, READs and atomics itself in `post_send`: one copy, no system call, no lock. Messages
//! (SEND, and the immediates of WRITE) go through a ring in shared memory, one for each queue pair
//! and direction. Sleepers arm a flag in shared memory, and a thread that has work for them
//! rings an event counter; without a sleeper that costs one load.
//!
//! Nothing has a name in the file system, so nothing is left when a process is killed. Its peers
//! see the hang-up of the socket: their queue pairs go to the error state and their sleepers wake.
//!
//! Rights protect against mistakes, not between processes of the same user, which may debug each
//! other anyway; other users are refused.
#![deny(unsafe_code)]
mod askers;
mod connection;
mod context;
mod cq;
mod cq_core;
mod credentials;
mod device_core;
mod handles;
#[cfg(test)]
mod hostile_tests;
mod inbox;
mod inner;
mod keys;
mod link;
mod local;
mod mr;
mod one_sided;
mod pace;
mod payload;
mod proto;
mod qp;
mod qp_core;
mod recv;
mod region;
mod remote;
mod request;
#[doc(hidden)]
pub mod ring;
mod send;
#[doc(hidden)]
pub mod seqpacket;
mod service;
mod socket;
mod state;
mod tables;

use catchment_verbs::{Context, DeviceInfo, Provider, ProviderInfo, VerbsError, Wire};
use std::sync::Arc;

/// The name of the only device.
pub const DEVICE: &str = "shm0";

/// The provider for processes of one host.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShmProvider;

impl ShmProvider {
    /// Creates the provider. It has no state: every context is independent.
    pub fn new() -> Self {
        Self
    }
}

/// The provider's entry for a registry.
pub const INFO: ProviderInfo =
    ProviderInfo { name: "shm", rank: 0, wire: Wire::Memory, is_hardware: false };

impl Provider for ShmProvider {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        Ok(vec![DeviceInfo {
            name: DEVICE.into(),
            description: "shared memory between processes of this host and user".into(),
        }])
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        if device != DEVICE {
            return Err(VerbsError::NoDevice { name: device.into(), known: vec![DEVICE.into()] });
        }
        Ok(Arc::new(handles::ShmContext::open()?))
    }
}
