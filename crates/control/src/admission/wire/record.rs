//! Records: the state of a transfer at its sender.
use super::fields::Reader;
use super::key::Direction;
use super::reason::Reason;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 56;
/// Records of a datagram at most.
pub const RECORDS_MAX: usize = 24;

const ASK: u16 = 1;
const OBEYS: u16 = 2;
const FINISH: u16 = 4;
const MISSED: u16 = 4;

/// A record that one end writes and the other reads.
pub trait Code: Sized {
    /// The way that these records go.
    const DIRECTION: Direction;

    /// Writes the record.
    fn encode(&self) -> [u8; RECORD_BYTES];

    /// Reads a record; every byte is checked.
    ///
    /// # Errors
    /// [`RecordError`].
    fn decode(bytes: &[u8]) -> Result<Self, RecordError>;
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A state that this end does not send.
    #[error("state {seen}")]
    State {
        /// The state that it has.
        seen: u8,
    },
    /// An unknown reason, or one where nothing is refused.
    #[error("reason {seen} in state {state}")]
    Reason {
        /// The reason that it has.
        seen: u8,
        /// Its state.
        state: u8,
    },
    /// A flag that this end does not send.
    #[error("flags {seen:#06x}")]
    Flags {
        /// The flags that it has.
        seen: u16,
    },
    /// A revision of 0: nothing has happened to the transfer yet.
    #[error("revision 0")]
    Revision,
    /// A field has a value that its state does not allow.
    #[error("{field} is {seen} in state {state}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        seen: u64,
        /// The state.
        state: u8,
    },
    /// A window that ends before it begins.
    #[error("a window from {from_ns} until {until_ns}")]
    Window {
        /// Its beginning.
        from_ns: u64,
        /// Its end.
        until_ns: u64,
    },
}

/// What a source does with a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It has something to send and no window.
    Waiting {
        /// What is left to send.
        left_bytes: u64,
    },
    /// It has a window.
    Running {
        /// What is left to send.
        left_bytes: u64,
        /// The rate of the window.
        rate_bps: u64,
        /// The end of the window, in the source's clock.
        until_ns: u64,
    },
    /// All is sent.
    Done,
    /// It has stopped and wants nothing more.
    Cancelled,
    /// Not of a transfer: the device sends this much each period, and wants the rate for it without asking each
    /// time. The number, the age and `seen` are 0.
    Periodic {
        /// Bytes in each period; 0: it wants no rate any more.
        bytes: u64,
        /// The period; 0 where the bytes are.
        period_ns: u64,
        /// The rate that it has now, from this controller or an earlier one; 0 for none.
        held_bps: u64,
    },
    /// Not of a transfer, nor of one device: the rates of all devices of the source are still used. The device, the
    /// number, the age and `seen` are 0.
    Renewing {
        /// Devices that have a rate.
        devices: u32,
        /// The sum of their rates.
        rate_bps: u64,
    },
    /// Not of a transfer, nor of one device: what became of all that the source has sent since its start. The device,
    /// the number, the age and `seen` are 0.
    Delivered {
        /// What has arrived.
        acknowledged_bytes: u64,
        /// What was lost and sent again.
        resent_bytes: u64,
    },
}

/// The state of a transfer at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRecord {
    /// The device, as the source numbered it when it registered.
    pub device: u32,
    /// The transfer, among those of the device; never used again.
    pub number: u64,
    /// Counts the states of the transfer at the source, from 1 on.
    pub revision: u32,
    /// The newest revision of the controller, of the term in the header, that has come; 0 for none.
    pub seen: u32,
    /// An answer is wanted.
    pub ask: bool,
    /// The source does as the revision in `seen` says: it uses no window of an earlier one.
    pub obeys: bool,
    /// The transfer is sent however late: a part of its frame was sent before.
    pub finish: bool,
    /// What it does.
    pub state: SourceState,
    /// How long ago the transfer was generated, when the datagram left.
    pub age_ns: u64,
}

/// What a controller tells about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is known, and waits for a window.
    Waiting,
    /// It has a window, in the source's clock.
    Granted {
        /// How fast.
        rate_bps: u64,
        /// From when; until then an earlier window stands.
        from_ns: u64,
        /// Until when all must have left.
        until_ns: u64,
    },
    /// The source is to stop at the next border of a chunk, and to say so.
    Paused,
    /// The controller has heard that it is done or cancelled, and forgets it.
    Ended,
    /// It can no longer make its deadline and will not be granted.
    Dropped,
    /// It is refused.
    Refused(Reason),
    /// Not of a transfer: a periodic device has this rate. The number and the revision are 0.
    Rate {
        /// The rate; 0 for none now.
        rate_bps: u64,
        /// Without a rate: the one that it could have; as much as it wants, if that becomes free soon.
        could_bps: u64,
        /// How long the rate holds from when the source said what this answers, unless renewed; 0 without one.
        lasts_ns: u64,
    },
    /// Not of a transfer, nor of one device: these rates of the source hold on. The device, the number and the
    /// revision are 0.
    Renewed {
        /// Devices that have a rate; 0: none has one any more.
        devices: u32,
        /// The sum of their rates.
        rate_bps: u64,
        /// As in [`Told::Rate`].
        lasts_ns: u64,
    },
}

/// The state of a transfer at the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerRecord {
    /// The device, as its source numbered it.
    pub device: u32,
    /// The transfer.
    pub number: u64,
    /// Counts what the controller told about the transfer; 0 before the first.
    pub revision: u32,
    /// The newest revision of the source that has come.
    pub seen: u32,
    /// An answer is wanted.
    pub ask: bool,
    /// What it tells.
    pub told: Told,
    /// The transfer cannot make its deadline; it will be there at this time of the source's clock, about.
    pub missed_ns: Option<u64>,
}

/// The fields of both kinds of records, in their order.
#[derive(Clone, Copy, Debug)]
struct Raw {
    state: u8,
    reason: u8,
    flags: u16,
    device: u32,
    number: u64,
    revision: u32,
    seen: u32,
    words: [u64; 4],
}

impl Raw {
    fn read(bytes: &[u8]) -> Self {
        let mut reader = Reader::new(bytes);
        Self {
            state: reader.u8(),
            reason: reader.u8(),
            flags: reader.u16(),
            device: reader.u32(),
            number: reader.u64(),
            revision: reader.u32(),
            seen: reader.u32(),
            words: [(); 4].map(|()| reader.u64()),
        }
    }

    fn write(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = self.state;
        bytes[1] = self.reason;
        bytes[2..4].copy_from_slice(&self.flags.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.device.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.revision.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.seen.to_be_bytes());
        for (word, place) in self.words.iter().zip(bytes[24..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    const fn flags(&self, known: u16) -> Result<(), RecordError> {
        if self.flags & !known == 0 { Ok(()) } else { Err(RecordError::Flags { seen: self.flags }) }
    }

    const fn no_reason(&self) -> Result<(), RecordError> {
        let Self { state, reason: seen, .. } = *self;
        if seen == 0 { Ok(()) } else { Err(RecordError::Reason { seen, state }) }
    }

    const fn must(&self, right: bool, field: &'static str, seen: u64) -> Result<(), RecordError> {
        let state = self.state;
        if right { Ok(()) } else { Err(RecordError::Value { field, seen, state }) }
    }

    fn must_be_zero(&self, fields: [(&'static str, u64); 3]) -> Result<(), RecordError> {
        fields.into_iter().try_for_each(|(field, seen)| self.must(seen == 0, field, seen))
    }
}

impl Code for SourceRecord {
    const DIRECTION: Direction = Direction::ToController;

    fn encode(&self) -> [u8; RECORD_BYTES] {
        let (state, left_bytes, rate_bps, until_ns) = match self.state {
            SourceState::Waiting { left_bytes } => (1, left_bytes, 0, 0),
            SourceState::Running { left_bytes, rate_bps, until_ns } => {
                (2, left_bytes, rate_bps, until_ns)
            }
            SourceState::Done => (3, 0, 0, 0),
            SourceState::Cancelled => (4, 0, 0, 0),
            SourceState::Periodic { bytes, held_bps, .. } => (5, bytes, held_bps, 0),
            SourceState::Renewing { devices, rate_bps } => (6, devices.into(), rate_bps, 0),
            SourceState::Delivered { acknowledged_bytes, resent_bytes } => {
                (7, acknowledged_bytes, resent_bytes, 0)
            }
        };
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(self.ask, ASK) | flag(self.obeys, OBEYS) | flag(self.finish, FINISH);
        let Self { device, number, revision, seen, age_ns, .. } = *self;
        let age_ns = match self.state {
            SourceState::Periodic { period_ns, .. } => period_ns,
            SourceState::Waiting { .. }
            | SourceState::Running { .. }
            | SourceState::Done
            | SourceState::Cancelled
            | SourceState::Renewing { .. }
            | SourceState::Delivered { .. } => age_ns,
        };
        let words = [left_bytes, age_ns, rate_bps, until_ns];
        Raw { state, reason: 0, flags, device, number, revision, seen, words }.write()
    }

    fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let raw = Raw::read(bytes);
        let [left_bytes, age_ns, rate_bps, until_ns] = raw.words;
        let window = [("rate", rate_bps), ("end of the window", until_ns)];
        let left = ("bytes left", left_bytes);
        let state = match raw.state {
            1 => {
                raw.must(left_bytes > 0, left.0, left.1)?;
                raw.must_be_zero([window[0], window[1], window[1]])?;
                SourceState::Waiting { left_bytes }
            }
            2 => {
                raw.must(left_bytes > 0, left.0, left.1)?;
                raw.must(rate_bps > 0, "rate", rate_bps)?;
                SourceState::Running { left_bytes, rate_bps, until_ns }
            }
            3 | 4 => {
                raw.must_be_zero([left, window[0], window[1]])?;
                if raw.state == 3 { SourceState::Done } else { SourceState::Cancelled }
            }
            5 => {
                raw.must((left_bytes == 0) == (age_ns == 0), "period", age_ns)?;
                SourceState::Periodic { bytes: left_bytes, period_ns: age_ns, held_bps: rate_bps }
            }
            6 => {
                let devices = u32::try_from(left_bytes);
                raw.must(devices.is_ok_and(|devices| devices > 0), "devices", left_bytes)?;
                raw.must(rate_bps > 0, "rate", rate_bps)?;
                let device = ("device", raw.device.into());
                raw.must_be_zero([device, ("age", age_ns), ("age", age_ns)])?;
                SourceState::Renewing { devices: devices.unwrap_or(0), rate_bps }
            }
            7 => {
                let device = ("device", raw.device.into());
                raw.must_be_zero([device, ("age", age_ns), ("age", age_ns)])?;
                let (acknowledged_bytes, resent_bytes) = (left_bytes, rate_bps);
                SourceState::Delivered { acknowledged_bytes, resent_bytes }
            }
            seen => return Err(RecordError::State { seen }),
        };
        raw.no_reason()?;
        let is_transfer = raw.state < 5;
        raw.flags(match raw.state {
            1 | 2 => ASK | OBEYS | FINISH,
            3 | 4 => ASK | OBEYS,
            5 | 6 => ASK,
            _ => 0,
        })?;
        if !is_transfer {
            let seen = ("newest revision", raw.seen.into());
            raw.must_be_zero([("number", raw.number), seen, ("end of the window", until_ns)])?;
        }
        let Raw { device, number, revision, seen, flags, .. } = raw;
        let age_ns = if is_transfer { age_ns } else { 0 };
        if revision == 0 {
            return Err(RecordError::Revision);
        }
        let [ask, obeys, finish] = [ASK, OBEYS, FINISH].map(|flag| flags & flag != 0);
        Ok(Self { device, number, revision, seen, ask, obeys, finish, state, age_ns })
    }
}

impl Code for ControllerRecord {
    const DIRECTION: Direction = Direction::ToSource;

    fn encode(&self) -> [u8; RECORD_BYTES] {
        let (state, reason, [rate_bps, from_ns, until_ns]) = match self.told {
            Told::Waiting => (17, 0, [0; 3]),
            Told::Granted { rate_bps, from_ns, until_ns } => (18, 0, [rate_bps, from_ns, until_ns]),
            Told::Paused => (19, 0, [0; 3]),
            Told::Ended => (20, 0, [0; 3]),
            Told::Dropped => (21, 0, [0; 3]),
            Told::Refused(reason) => (22, reason.code(), [0; 3]),
            Told::Rate { rate_bps, could_bps, lasts_ns } => {
                (23, 0, [rate_bps, could_bps, lasts_ns])
            }
            Told::Renewed { devices, rate_bps, lasts_ns } => {
                (24, 0, [rate_bps, devices.into(), lasts_ns])
            }
        };
        let missed = if self.missed_ns.is_some() { MISSED } else { 0 };
        let flags = if self.ask { ASK } else { 0 } | missed;
        let Self { device, number, revision, seen, .. } = *self;
        let words = [rate_bps, from_ns, until_ns, self.missed_ns.unwrap_or(0)];
        Raw { state, reason, flags, device, number, revision, seen, words }.write()
    }

    fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let raw = Raw::read(bytes);
        let [rate_bps, from_ns, until_ns, estimate_ns] = raw.words;
        let fields = [
            ("rate", rate_bps),
            ("beginning of the window", from_ns),
            ("end of the window", until_ns),
        ];
        let told = match raw.state {
            17 => Told::Waiting,
            18 => {
                raw.must(rate_bps > 0, "rate", rate_bps)?;
                if until_ns < from_ns {
                    return Err(RecordError::Window { from_ns, until_ns });
                }
                Told::Granted { rate_bps, from_ns, until_ns }
            }
            19 => Told::Paused,
            20 => Told::Ended,
            21 => Told::Dropped,
            22 => {
                let (seen, state) = (raw.reason, raw.state);
                Told::Refused(Reason::of(seen).ok_or(RecordError::Reason { seen, state })?)
            }
            23 => {
                let (could_bps, lasts_ns) = (from_ns, until_ns);
                raw.must((rate_bps == 0) == (lasts_ns == 0), "time that it lasts", lasts_ns)?;
                raw.must(rate_bps == 0 || could_bps == 0, "possible rate", could_bps)?;
                Told::Rate { rate_bps, could_bps, lasts_ns }
            }
            24 => {
                let (devices, lasts_ns) = (u32::try_from(from_ns), until_ns);
                raw.must(devices.is_ok(), "devices", from_ns)?;
                raw.must((rate_bps == 0) == (from_ns == 0), "devices", from_ns)?;
                raw.must((rate_bps == 0) == (lasts_ns == 0), "time that it lasts", lasts_ns)?;
                Told::Renewed { devices: devices.unwrap_or(0), rate_bps, lasts_ns }
            }
            seen => return Err(RecordError::State { seen }),
        };
        if !matches!(raw.state, 18 | 23 | 24) {
            raw.must_be_zero(fields)?;
        }
        if raw.state != 22 {
            raw.no_reason()?;
        }
        let is_transfer = raw.state < 23;
        raw.flags(if is_transfer { ASK | MISSED } else { 0 })?;
        if !is_transfer {
            let device = if raw.state == 24 { raw.device } else { 0 };
            let revision = ("revision", raw.revision.into());
            raw.must_be_zero([("device", device.into()), ("number", raw.number), revision])?;
        }
        let missed = raw.flags & MISSED != 0;
        raw.must(missed || estimate_ns == 0, "estimate", estimate_ns)?;
        let missed_ns = missed.then_some(estimate_ns);
        let Raw { device, number, revision, seen, flags, .. } = raw;
        Ok(Self { device, number, revision, seen, ask: flags & ASK != 0, told, missed_ns })
    }
}
