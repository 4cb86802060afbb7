//! How a controller stands.
use serde::{Deserialize, Serialize};

/// A controller at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its term; 0 while it stands by.
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
    /// Payload that it is said to carry: bits a second.
    pub capacity_bps: u64,
    /// What is granted of it at most: less than it is said to carry after losses. Bits a second.
    pub working_bps: u64,
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
    /// Transfers since the beginning that were dropped as late; the rest of one that had begun counts as late too.
    #[serde(default)]
    pub dropped: u64,
}

/// A source at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its number.
    pub source: u32,
    /// Where its last datagram was from.
    pub address: Option<String>,
    /// Its datagrams are messages of a connection, as UDP does not pass.
    #[serde(default)]
    pub carried: bool,
    /// The name in its certificate.
    pub certificate: Option<String>,
    /// Its devices.
    pub devices: Vec<String>,
    /// Transfers that wait.
    pub waiting: u64,
    /// The sum of its windows and of the rates of its periodic devices: bits a second.
    pub granted_bps: u64,
    /// Its periodic devices that have a rate.
    #[serde(default)]
    pub rates: u32,
    /// The sum of these rates: bits a second.
    #[serde(default)]
    pub rates_bps: u64,
    /// Milliseconds since its last datagram.
    pub silent_ms: u64,
}

/// What a stream waits for, at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The number of its source.
    pub source: u32,
    /// Where the source's last datagram was from.
    pub address: Option<String>,
    /// Its datagrams are messages of a connection, as UDP does not pass.
    #[serde(default)]
    pub carried: bool,
    /// The name in the certificate of its source.
    pub certificate: Option<String>,
    /// The name of its device.
    pub device: String,
    /// Its class.
    pub class: String,
    /// What is not as its source claimed.
    pub notes: Vec<String>,
    /// Milliseconds since the source's last datagram.
    pub silent_ms: u64,
    /// Its rate; `None` where it is not periodic.
    #[serde(default)]
    pub rate: Option<RateStatus>,
    /// Its transfer that is served first; `None` while nothing of it waits or is sent.
    pub transfer: Option<TransferStatus>,
}

/// The rate of a periodic device: bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateStatus {
    /// What it sends in a period, divided by the period.
    pub wanted_bps: u64,
    /// What it has, without asking for each frame; 0 for none.
    pub rate_bps: u64,
    /// The most that it could have.
    pub could_bps: u64,
}

/// A transfer that waits or is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferStatus {
    /// What it does.
    pub state: TransferState,
    /// Milliseconds since it was generated.
    pub age_ms: f64,
    /// What is left of it: bytes.
    pub left_bytes: u64,
    /// The rate of its window: bits a second; 0 without one.
    pub rate_bps: u64,
    /// The link of its path that has the least to give.
    pub link: String,
    /// The rates of all windows on that link: bits a second.
    pub link_granted_bps: u64,
    /// What that link carries: bits a second.
    pub link_capacity_bps: u64,
    /// What goes first on that link, the most urgent class first.
    pub before: Vec<BeforeStatus>,
    /// Milliseconds until it begins, in about.
    pub starts_in_ms: f64,
    /// Milliseconds that are left until its deadline when it will be there, in about; negative when it comes too late.
    pub spare_ms: f64,
    /// It cannot be in time, and goes behind all that can.
    pub is_demoted: bool,
    /// Its device has had its share: others of its class go first.
    pub is_over_share: bool,
    /// Its class has had its share: it counts as one of the next class.
    pub is_lowered: bool,
}

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferState {
    /// It waits for a window.
    Waiting,
    /// It has a window.
    Granted,
    /// It stops, or its window ran out, and its source has not said yet how far it is.
    Stopping,
}

/// Transfers of a class that go first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeStatus {
    /// The class.
    pub class: String,
    /// How many.
    pub transfers: u64,
    /// What is left of them: bytes.
    pub bytes: u64,
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
