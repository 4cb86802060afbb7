//! Blocks through a mechanism: as many as go, or one to and fro.
//!
//! Everything that moves blocks is a [`Mechanism`]; the product's own is [`StatusByte`]. A front end names
//! those that it has ([`BlockMechanism`]).
mod mechanism;
mod named;
mod pair;
pub(crate) mod plan;
pub(crate) mod port;
mod run;
mod setup_error;
mod status_byte;

pub use mechanism::{Features, Helper, Mechanism, ReceiveEnd, SendEnd, Shape, TakenBlock, Visit};
pub use named::{BlockMechanism, STATUS_BYTE, find_mechanism};
pub use plan::BlockPlan;
pub use port::{EndNeeds, MemoryNeed, Offer, OfferParseError, Port, QueueNeeds};
pub use run::{Active, Passive};
pub use setup_error::SetupError;
pub use status_byte::{CopyMode, StatusByte, StatusByteReceiver, StatusByteSender};
