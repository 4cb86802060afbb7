//! What every provider does alike: the checks of arguments, and the account of a work queue.
//!
//! Applications do not need this module; a provider does. It keeps the rules of verbs, and the words
//! of their errors, in one place:
//!
//! - while objects are made: [`check_cq`], [`check_mr`], [`check_qp`], [`check_service`], [`check_limit`],
//!   [`foreign`];
//! - while a queue pair changes its state: [`check_transition`], [`check_rtr`], [`check_remote`],
//!   [`check_rts`], [`check_qkey`], [`StateCell`];
//! - when something failed: [`explain_queue_pair`], [`explain_failure`], [`EventQueue`];
//! - while requests are posted and polled: [`Limits`], [`Account`], [`Entry`], [`local_rights`],
//!   [`HandleTable`].
//!
//! Posting is the hot path: nothing there allocates, locks or calls the system.
mod create;
mod events;
mod explain;
mod handles;
mod modify;
mod post;

pub use create::{check_cq, check_limit, check_mr, check_qp, check_service, foreign};
pub use events::EventQueue;
pub use explain::{explain_failure, explain_queue_pair, position};
pub use handles::{Handle, HandleTable};
pub use modify::{
    MAX_24_BITS, StateCell, check_qkey, check_remote, check_rtr, check_rts, check_transition,
};
pub use post::{Account, Entry, Limits, local_rights};
