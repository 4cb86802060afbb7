//! A source's end of a session without frames: for programs that ask whether and how packets pass.
pub use super::connecting::Connecting;
pub use super::prepared::{LinkError, Prepared, SEND_WRS, Target};
pub use super::proof::ProofError;
pub use super::welcome::{check_welcome, unusable};
