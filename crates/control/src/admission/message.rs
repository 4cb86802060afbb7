//! What goes in and what comes out.
use super::{ClassConfig, Rules};

/// An index into [`Config::links`](super::Config::links).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u16);

/// An index into [`Config::paths`](super::Config::paths).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathId(pub u16);

/// An index into [`Config::classes`](super::Config::classes); a lower one goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub u8);

/// A source, as the caller numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// A device, as the caller numbers them over all sources: from 0 to
/// [`devices_max`](super::Config::devices_max), as the controller keeps them in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// A transfer: what one device wants to send as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferId {
    /// The device that sends it.
    pub device: DeviceId,
    /// Its number, from the source; one that has ended is not used again.
    pub number: u64,
}

/// What a device may do and where it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The process that has it.
    pub source: SourceId,
    /// The links between it and its collector.
    pub path: PathId,
    /// The class of its transfers.
    pub class: ClassId,
    /// From the generation of a transfer; the class's if `None`.
    pub deadline_ns: Option<u64>,
    /// What its sender can reach.
    pub rate_max_bps: u64,
    /// Its part of a class, relative to the others.
    pub weight: u32,
    /// The time that a message takes to its source: no window begins before its grant is there.
    pub delay_ns: u64,
    /// How old a message of its source is when it is handled.
    pub report_delay_ns: u64,
    /// The rate of the bucket for transfers that leave without asking; 0 for none.
    pub small_bps: u64,
}

impl DeviceSpec {
    /// Returns the spec of a device with the deadline of its class, weight 1 and no delay.
    #[must_use]
    pub const fn new(source: SourceId, path: PathId, class: ClassId, rate_max_bps: u64) -> Self {
        Self {
            source,
            path,
            class,
            deadline_ns: None,
            rate_max_bps,
            weight: 1,
            delay_ns: 0,
            report_delay_ns: 0,
            small_bps: 0,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A device is there, or its spec changed.
    Register {
        /// The device.
        device: DeviceId,
        /// Its spec.
        spec: DeviceSpec,
    },
    /// A message to a source takes another time than before ([`DeviceSpec::delay_ns`] of its devices).
    Delay {
        /// The source.
        source: SourceId,
        /// The time.
        delay_ns: u64,
    },
    /// A transfer has something to send. Told again it says that the source still waits, and how much it is now if that is
    /// more.
    Request {
        /// The transfer.
        transfer: TransferId,
        /// What is left to send.
        bytes: u64,
        /// How long ago it was generated, when the source sent this.
        age_ns: u64,
    },
    /// The source goes on, under the grant of this revision; asks for the next window.
    Progress {
        /// The transfer.
        transfer: TransferId,
        /// What is left to send.
        left_bytes: u64,
        /// The latest grant that the source obeys.
        revision: u32,
    },
    /// All of a transfer has begun: its source uses no more of its window, of this revision, than until a time.
    Begun {
        /// The transfer.
        transfer: TransferId,
        /// When the last of it has left.
        until_ns: u64,
        /// The latest grant that the source obeys.
        revision: u32,
    },
    /// The source began so late in its window, of this revision, that what is left does not fit any more; how much that is,
    /// [`Input::Progress`] has said before.
    Behind {
        /// The transfer.
        transfer: TransferId,
        /// The latest grant that the source obeys.
        revision: u32,
    },
    /// The source has stopped at the border of a chunk, after it was told this revision: to pause, or
    /// because its window was over. It uses none of its windows any more.
    Paused {
        /// The transfer.
        transfer: TransferId,
        /// What is left to send.
        left_bytes: u64,
        /// The latest revision that it was told.
        revision: u32,
    },
    /// All is sent.
    Done {
        /// The transfer.
        transfer: TransferId,
    },
    /// A source has something to send as in [`Input::Request`], and it is sent however late: a part of its frame was
    /// sent before.
    Finish {
        /// The transfer.
        transfer: TransferId,
        /// What is left to send.
        bytes: u64,
        /// How long ago it was generated, when the source sent this.
        age_ns: u64,
    },
    /// The source has stopped and wants nothing more.
    Cancel {
        /// The transfer.
        transfer: TransferId,
    },
    /// A window that an earlier controller granted. It stands: for a lease at most.
    Adopt {
        /// The transfer.
        transfer: TransferId,
        /// What is left to send.
        left_bytes: u64,
        /// How long ago it was generated, when the source sent this.
        age_ns: u64,
        /// The rate that was granted.
        rate_bps: u64,
        /// The end of the window.
        until_ns: u64,
        /// It is sent however late ([`Input::Finish`]).
        finish: bool,
    },
    /// A link carries more or less than before, as somebody says.
    Capacity {
        /// The link.
        link: LinkId,
        /// What it carries.
        capacity_bps: u64,
    },
    /// Classes have other deadlines, other shares, or late transfers become something else there. There are as many as
    /// before; deadlines hold for what is asked for from now on.
    Classes(
        /// The classes.
        Vec<ClassConfig>,
    ),
    /// Another policy holds from now on. What is granted stands; what waits takes its place in the new order.
    Rules(
        /// The switches.
        Rules,
    ),
    /// What became of what a source has sent over a path since it said so last.
    Delivered {
        /// The source.
        source: SourceId,
        /// The path.
        path: PathId,
        /// What has arrived.
        acknowledged_bytes: u64,
        /// What was lost and sent again.
        resent_bytes: u64,
    },
    /// A device sends this much each period, and wants the rate for it without asking each time.
    Periodic {
        /// The device.
        device: DeviceId,
        /// Bytes in each period; 0 ends it.
        bytes: u64,
        /// The period.
        period_ns: u64,
        /// It has this rate already, from an earlier controller: it need not wait until that much is free.
        held: bool,
    },
    /// The rates of all periodic devices of a source are still used.
    Renew {
        /// The source.
        source: SourceId,
    },
    /// An earlier controller's sources may be without one, at their safe rates: these are kept free for a lease.
    Recover,
    /// Another controller is to lead: nothing is granted from now on. Windows that have not begun are taken back, as by a
    /// pause, and those that last long are cut, to 20 ms from now; both as far as their sources confirm it.
    GiveUp,
    /// A source is gone with all its devices; what it was granted is free at once.
    Leave {
        /// The source.
        source: SourceId,
    },
    /// The time of the last [`Output::Timeout`] has come. At any other time it does nothing.
    Timeout,
}

/// A window: the right to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How fast.
    pub rate_bps: u64,
    /// From when. Until then an earlier grant of the transfer stands.
    pub from_ns: u64,
    /// Until when; no chunk may begin that would end later.
    pub until_ns: u64,
    /// The transfer's count of grants and pauses: the highest is obeyed.
    pub revision: u32,
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A device.
    Device(DeviceId),
    /// A transfer.
    Transfer(TransferId),
    /// A link.
    Link(LinkId),
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The device was not registered.
    UnknownDevice,
    /// The link is not in the configuration.
    UnknownLink,
    /// The path is not in the configuration.
    UnknownPath,
    /// The class is not in the configuration.
    UnknownClass,
    /// Another source has registered the device.
    ForeignDevice,
    /// The path or the source cannot change while transfers of the device wait or run.
    Busy,
    /// A rate of 0, or a weight of 0.
    NoRate,
    /// As many devices as the configuration allows are registered.
    TooManyDevices,
    /// As many transfers of this device as the configuration allows wait or run.
    TooManyTransfers,
    /// Nothing to send, or more than the configuration allows.
    Size,
    /// Buckets for small transfers have their part of a link already.
    SmallFull,
    /// A periodic device could have this rate only.
    Rate {
        /// What is left for it.
        could_have_bps: u64,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Tell the source that it may send.
    Grant {
        /// The transfer.
        transfer: TransferId,
        /// The window.
        grant: Grant,
    },
    /// Tell the source to stop at the next border of a chunk, and to say so.
    Pause {
        /// The transfer.
        transfer: TransferId,
        /// The revision to answer with.
        revision: u32,
    },
    /// Tell the source that the transfer can no longer make its deadline.
    Missed {
        /// The transfer.
        transfer: TransferId,
        /// When it will be there, if those that wait now go first.
        estimate_ns: u64,
        /// It will not be granted any more.
        dropped: bool,
    },
    /// Tell the source that a periodic device may send at this rate, without asking: from now on, as that much is
    /// free.
    Rate {
        /// The device.
        device: DeviceId,
        /// The rate.
        rate_bps: u64,
        /// Until when, unless renewed.
        until_ns: u64,
    },
    /// Tell the source that the rates of its devices hold on.
    Renewed {
        /// The source.
        source: SourceId,
        /// Devices that have a rate; 0 if none has one any more.
        devices: u32,
        /// The sum of their rates.
        rate_bps: u64,
        /// Until when, unless renewed.
        until_ns: u64,
    },
    /// Tell people that losses have lowered what is granted of a link, or that it has again what it is said to carry.
    Working {
        /// The link.
        link: LinkId,
        /// What it is said to carry.
        stated_bps: u64,
        /// What is granted of it, at most.
        working_bps: u64,
    },
    /// Tell the source that something is not done.
    Refused {
        /// What.
        subject: Subject,
        /// Why.
        reason: Refusal,
    },
    /// Nothing more to do until an input comes, or this time: then handle [`Input::Timeout`].
    Timeout(Option<u64>),
}
