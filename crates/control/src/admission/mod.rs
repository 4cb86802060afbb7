//! Grants the right to send over links that many sources share, so that urgent data comes in time and
//! nothing is lost where the network can neither pause nor mark.
//!
//! Before a device sends a *transfer* (an event: frames that belong together) its source asks. The
//! [`Controller`] answers with *windows*: from when until when the device may send, and how fast. Windows in
//! force never exceed a link, so no queue builds up. Whoever has not sent all when its window ends stops
//! and asks again; so silence gives capacity back by itself, and a lost or doubled release changes nothing.
//!
//! ```
//! use catchment_control::admission::*;
//!
//! let link = LinkConfig::new(20_000_000_000);
//! let config = Config::new(vec![link], vec![vec![LinkId(0)]], Rules::deadline());
//! let mut controller = Controller::new(0, config).unwrap();
//! let device = DeviceId(7);
//! let spec = DeviceSpec::new(SourceId(1), PathId(0), ClassId(1), 10_000_000_000);
//! controller.handle(0, Input::Register { device, spec });
//! let transfer = TransferId { device, number: 1 };
//! controller.handle(1_000, Input::Request { transfer, bytes: 25_000_000, age_ns: 0 });
//! let Output::Grant { grant, .. } = controller.poll() else { panic!("the link is idle") };
//! assert_eq!(grant.rate_bps, 10_000_000_000);
//! // Drained: the next call is due at this time, or when a message arrives.
//! assert!(matches!(controller.poll(), Output::Timeout(Some(_))));
//! ```
//!
//! | | |
//! |---|---|
//! | inputs | [`Controller::handle`]: a message of a source, a change of a link, a timeout |
//! | outputs | [`Controller::poll`], after every input, until it returns [`Output::Timeout`] |
//! | time | nanoseconds from an origin of the caller's; translating to the clocks of sources is the caller's |
//! | work | follows transfers that wait or run; 100,000 idle devices cost memory, no timer and no scan |
//!
//! [`Rules`] has each ingredient as a switch: [`Rules::fifo`] and [`Rules::priority`] are our reading of
//! the paper's RDMA-TCM and P-RDMA-TCM, [`Rules::deadline`] is ours. Amounts are bytes of payload, rates
//! are bits of payload a second.
mod begun;
mod charge;
mod config;
mod controller;
pub mod controller_side;
mod device;
mod explain;
mod fair;
mod give_up;
mod heap;
mod hold;
mod late;
mod lead;
mod level;
mod lower;
mod message;
mod part;
mod patience;
mod plan;
mod pool;
mod quad;
mod queue;
mod recent;
mod refill;
mod registry;
mod request;
mod reserve;
mod round_trip;
mod rules;
mod scratch;
mod share;
pub mod source_side;
mod state;
mod table;
mod timers;
mod transfer;
mod window;
pub mod wire;
mod working;

pub use config::{
    ClassConfig, Config, ConfigError, Late, LinkConfig, Order, Pausing, Rules, Shares,
};
pub use controller::Controller;
pub use explain::{Before, Doing, Explanation};
pub use message::{
    ClassId, DeviceId, DeviceSpec, Grant, Input, LinkId, Output, PathId, Refusal, SourceId,
    Subject, TransferId,
};

/// No place in a table.
const NONE: u32 = u32::MAX;
