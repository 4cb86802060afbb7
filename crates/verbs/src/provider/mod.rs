//! What all providers share: checks of arguments, queues, keys and doorbells.
//!
//! Applications do not need this module; a provider does. It keeps the rules of verbs, and the
//! texts of their errors, in one place:
//!
//! - while objects are made: [`check_cq`], [`check_mr`], [`check_bind`], [`check_qp`], [`check_service`],
//!   [`check_limit`], [`check_rate`], [`own_cq`], [`own_channel`], [`full`];
//! - while a queue pair changes its state: [`check_transition`], [`StateCell`];
//! - when something failed: [`explain_queue_pair`], [`explain_failure`], [`EventQueue`];
//! - while requests are posted and polled: [`post_each`], [`Limits`], [`WorkQueueCredits`],
//!   [`CqEntry`], [`local_rights`], [`HandleTable`];
//! - where software makes the completions: [`CompletionQueue`], [`EventChannel`];
//! - where software looks up keys: [`KeySlots`], [`RegionWatch`];
//! - for packet numbers and secrets: [`random`], [`random_bytes`].
//!
//! Posting is the hot path: nothing there allocates, locks or makes a system call.
mod completion_queue;
mod create;
mod events;
mod explain;
mod handles;
mod key_slots;
mod modify;
mod post;
mod random;
mod region_watch;

pub use catchment_verbs_types::{Limits, MAX_24_BITS};
pub use completion_queue::{CompletionQueue, EventChannel};
pub use create::{
    check_bind, check_cq, check_limit, check_mr, check_qp, check_rate, check_service, full,
    own_channel, own_cq,
};
pub use events::EventQueue;
pub use explain::{explain_failure, explain_queue_pair, position};
pub use handles::{Handle, HandleTable, RecentHandle};
pub use key_slots::KeySlots;
pub use modify::{StateCell, check_transition};
pub use post::{CqEntry, WorkQueueCredits, local_rights, post_each};
pub use random::{random, random_bytes};
pub use region_watch::RegionWatch;
