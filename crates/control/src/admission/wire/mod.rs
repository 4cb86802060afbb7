//! Datagrams between sources and a controller, version 1: `docs/spec/admission.md`.
//!
//! A datagram is a header of 40 bytes and at most 24 records of 56. A record carries the whole state of a
//! transfer at its sender, with a revision; the newest wins. So a datagram that is lost, doubled, late or
//! out of order needs no rule of its own.
//!
//! [`Seal`] writes datagrams with a code that only the two ends can make; [`Opener`] refuses all others, and
//! those that it has opened already. What they refuse changes nothing.
mod codes;
mod fields;
mod header;
mod key;
mod reason;
mod record;
mod replay;
mod seal;

pub(super) use codes::Codes;
pub use header::{HEADER_BYTES, Header, HeaderError, Kind, VERSION, hint, probe};
pub use key::{Direction, ROOT_BYTES};
pub use reason::Reason;
pub use record::{
    Code, ControllerRecord, RECORD_BYTES, RECORDS_MAX, RecordError, SourceRecord, SourceState, Told,
};
pub use seal::{Exhausted, OpenError, Opener, Seal};
