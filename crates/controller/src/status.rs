//! How a controller stands.
use serde::{Deserialize, Serialize};

/// A controller at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its term.
    pub term: u32,
    /// Seconds since it began.
    pub uptime_s: f64,
    /// Milliseconds that a window lasts at most.
    pub lease_ms: u64,
    /// A source knows a controller of a higher term: this one is not obeyed.
    pub superseded: bool,
    /// The links.
    pub links: Vec<LinkStatus>,
    /// The classes.
    pub classes: Vec<ClassStatus>,
    /// The sources.
    pub sources: Vec<SourceStatus>,
    /// Datagrams since it began.
    pub datagrams: DatagramStatus,
}

/// A link at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Payload that it carries: bits a second.
    pub capacity_bps: u64,
    /// The rates of all that may be sent now.
    pub granted_bps: u64,
}

/// A class at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its name.
    pub name: String,
    /// Transfers that wait.
    pub waiting: u64,
    /// Transfers that have a window.
    pub granted: u64,
    /// Transfers since the beginning that were sent in time.
    pub on_time: u64,
    /// Transfers since the beginning that were sent late.
    pub late: u64,
}

/// A source at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its number.
    pub source: u32,
    /// Where its last datagram was from.
    pub address: Option<String>,
    /// The name in its certificate.
    pub certificate: Option<String>,
    /// Its devices.
    pub devices: Vec<String>,
    /// Transfers that wait.
    pub waiting: u64,
    /// The sum of its windows: bits a second.
    pub granted_bps: u64,
    /// Milliseconds since its last datagram.
    pub silent_ms: u64,
}

/// Datagrams since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramStatus {
    /// Opened.
    pub opened: u64,
    /// Sent, without hints.
    pub sent: u64,
    /// Hints sent: a source that is not known should register.
    pub hints: u64,
    /// None of this version.
    pub malformed: u64,
    /// Of sources that are not known.
    pub unknown: u64,
    /// Without the right code.
    pub forged: u64,
    /// That came before.
    pub replayed: u64,
}
