//! Sliding windows: what the status bytes are compared with.
//!
//! A window has N slots at the receiver, used in turn. The sender may have as many blocks outstanding;
//! the receiver releases slots in the order in which they were filled.
//!
//! - [`fair`]: as good as verbs allow, so that what separates it from the status bytes is the idea and
//!   not the workmanship.
//! - [`paper`]: as the status-byte paper describes it.
pub mod fair;
pub mod paper;
