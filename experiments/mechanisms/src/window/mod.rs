//! Sliding windows: what the status bytes are compared with.
//!
//! A window has N slots at the receiver, used in turn. The sender may have so many blocks on their
//! way; the receiver gives slots back in the order in which they were filled.
//!
//! - [`fair`]: as well as it can be done on verbs. What is left between it and the status bytes is
//!   the idea and not the workmanship.
//! - [`paper`]: as the status-byte paper has it.
pub mod fair;
pub mod paper;
