//! Waiting: how a thread that finds nothing to do sleeps without missing what comes next.
//!
//! Three files are pure, so that crates without a clock can use them and a simulator can drive
//! them; they decide, and the caller sleeps:
//!
//! - [`WaitPolicy`] and [`Waiter`]: spin, yield, sleep or block after a poll that found nothing;
//! - [`Backoff`] and [`BackoffPolicy`]: how long to sleep where nothing can wake the sleeper;
//! - [`SpinBudget`]: how long polling before a sleep pays off, learned from past waits;
//! - [`arm`]: the protocol by which a sleeper is woken only when it sleeps, and always then.
//!
//! The others sleep:
//!
//! - [`Doorbell`]: one side arms and sleeps on a descriptor, the other rings only what is armed;
//! - [`EventCount`]: threads of one process sleep until a counter moves;
//! - [`barrier`]: a fence that a sleeper makes for the writers of all processes;
//! - [`futex`]: a word that threads of one or several processes sleep on;
//! - [`CqWatch`]: a completion queue and its channel as a [`Watch`](crate::Watch);
//! - [`pause`]: what a [`Waiter`] says, done on a watch.
//!
//! Each of them loses no wake-up in any interleaving: `tests/loom` checks the shipped code.
pub mod arm;
mod backoff;
pub mod barrier;
mod cq_watch;
mod doorbell;
mod event_count;
pub mod futex;
mod pause;
mod spin;
mod waiter;

/// What [`EventCount`] is built of; the model checker replaces it.
mod primitives {
    pub(super) use super::futex::Futex;
    pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};
}

pub use backoff::{Backoff, BackoffPolicy};
pub use cq_watch::CqWatch;
pub use doorbell::Doorbell;
pub use event_count::EventCount;
pub use pause::{Paused, pause};
pub use spin::SpinBudget;
pub use waiter::{Step, WaitPolicy, Waiter};
