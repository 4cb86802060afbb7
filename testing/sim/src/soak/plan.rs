//! The requests of one side, in order, with their expected results.
//!
//! A plan is made before the run. It applies each request to a model of the peer's memory in the
//! order of posting, in which the responder must execute them. Two rules make every result certain:
//! no WRITE follows to a range that was read (the standard lets a repeated READ see later WRITEs),
//! and every request has its own local memory.
use crate::Random;
use catchment_roce::WcOpcode;
use std::fmt;
use std::ops::Range;

pub(crate) struct Plan {
    /// In the order of posting.
    pub(crate) ops: Vec<Op>,
    /// Local memory that requests send from.
    pub(crate) source: Vec<u8>,
    /// Bytes of local memory for the results of READs and atomics.
    pub(crate) landing_bytes: usize,
    /// The peer's memory before the first request; ends with [`CELLS`] cells for atomics.
    pub(crate) target: Vec<u8>,
    /// Regions of the peer that messages invalidate.
    pub(crate) spare_regions: usize,
    /// The longest request that the plan may have.
    pub(crate) longest: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(crate) what: What,
    /// Its bytes in the source, or in the landing memory.
    pub(crate) local: Range<usize>,
    /// Scatter-gather elements; 0 for an inline payload.
    pub(crate) sges: usize,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    /// Why it is invalid, if it is.
    pub(crate) wrong: Option<Wrong>,
}

/// What a request does. Offsets are from the start of the target.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Write {
        offset: usize,
    },
    WriteImm {
        offset: usize,
        imm: u32,
    },
    Send,
    SendImm(u32),
    /// Invalidates the spare region of this number.
    SendInvalidate(usize),
    /// Must return these bytes.
    Read {
        offset: usize,
        expected: Vec<u8>,
    },
    FetchAdd {
        offset: usize,
        add: u64,
        before: u64,
    },
    CompareSwap {
        offset: usize,
        compare: u64,
        swap: u64,
        before: u64,
    },
}

impl What {
    pub(crate) fn takes_receive(&self) -> bool {
        matches!(
            self,
            Self::WriteImm { .. } | Self::Send | Self::SendImm(_) | Self::SendInvalidate(_)
        )
    }

    /// Returns the opcode of its completion.
    pub(crate) fn opcode(&self) -> WcOpcode {
        match self {
            Self::Write { .. } | Self::WriteImm { .. } => WcOpcode::Write,
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) => WcOpcode::Send,
            Self::Read { .. } => WcOpcode::Read,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::CompareSwap { .. } => WcOpcode::CompareSwap,
        }
    }

    pub(crate) fn lands(&self) -> bool {
        matches!(self, Self::Read { .. }) || self.is_atomic()
    }

    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }
}

/// Why a request is invalid, so that the peer must refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A key that does not exist.
    Key,
    /// The last byte is beyond the region.
    Bounds,
    /// A region to which peers have no rights.
    Rights,
    /// A message longer than the receive.
    TooLong,
}

/// Size and composition of a plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanConfig {
    pub(crate) ops: usize,
    pub(crate) path_mtu: usize,
    /// The longest request in path MTUs.
    pub(crate) mtus_most: u64,
    pub(crate) max_inline: usize,
    pub(crate) mix: Mix,
    pub(crate) wrong: bool,
}

/// Relative frequencies of the kinds of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) write: u64,
    pub(crate) send: u64,
    pub(crate) read: u64,
    pub(crate) atomic: u64,
}

impl Mix {
    pub(crate) const ALL: [Self; 6] = [
        Self::new(1, 1, 1, 1),
        Self::new(1, 0, 0, 0),
        Self::new(0, 1, 0, 0),
        Self::new(0, 0, 1, 0),
        Self::new(0, 0, 0, 1),
        Self::new(6, 3, 2, 2),
    ];

    const fn new(write: u64, send: u64, read: u64, atomic: u64) -> Self {
        Self { write, send, read, atomic }
    }
}

/// Cells of eight bytes at the end of the target.
pub(crate) const CELLS: usize = 8;
/// Bytes that no request may touch, on each side of each range of local memory.
const GUARD: usize = 8;
/// Length of a SEND that is too long for any receive.
pub(crate) const TOO_LONG: usize = 1;

/// Short, because a scenario is printed.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.ops.len())
    }
}

impl Plan {
    pub(crate) fn new(config: &PlanConfig, random: &mut Random) -> Self {
        let mut planner = Planner::new(config, random.fork());
        let wrong_at = config.wrong.then(|| random.index(config.ops));
        for at in 0..config.ops {
            planner.add(wrong_at == Some(at));
        }
        planner.finish()
    }

    /// Returns the longest payload of a valid request that takes a receive.
    pub(crate) fn longest_message(&self) -> usize {
        let messages = self.ops.iter().filter(|op| op.wrong != Some(Wrong::TooLong));
        messages.filter(|op| op.what.takes_receive()).map(|op| op.local.len()).max().unwrap_or(0)
    }

    /// Returns the bytes that a request sends.
    pub(crate) fn sent(&self, op: &Op) -> &[u8] {
        &self.source[op.local.clone()]
    }
}

struct Planner<'a> {
    config: &'a PlanConfig,
    random: Random,
    /// The plan so far.
    plan: Plan,
    /// The target after all requests so far.
    model: Vec<u8>,
    /// Ranges that a READ reads.
    frozen: Vec<Range<usize>>,
}

impl<'a> Planner<'a> {
    fn new(config: &'a PlanConfig, mut random: Random) -> Self {
        let longest = config.path_mtu * config.mtus_most as usize;
        let mut target = vec![0; (4 * longest).next_multiple_of(8) + CELLS * 8];
        random.fill(&mut target);
        let model = target.clone();
        let (source, landing_bytes) = (vec![0xa5; GUARD], GUARD);
        let plan =
            Plan { ops: Vec::new(), source, landing_bytes, target, spare_regions: 0, longest };
        Self { config, random, plan, model, frozen: Vec::new() }
    }

    fn finish(mut self) -> Plan {
        // The end of the last request must be visible.
        if let Some(last) = self.plan.ops.last_mut() {
            last.signaled = true;
        }
        self.plan
    }

    fn add(&mut self, make_wrong: bool) {
        let bytes = self.length();
        let what = self.what(bytes);
        let bytes = if what.is_atomic() { 8 } else { bytes.max(usize::from(make_wrong)) };
        let wrong = make_wrong.then(|| self.wrong(&what));
        let bytes =
            if wrong == Some(Wrong::TooLong) { self.plan.longest + TOO_LONG } else { bytes };
        let local = self.allocate(&what, bytes);
        if wrong.is_none() {
            self.apply(&what, &local);
        }
        let inline = !what.lands() && bytes <= self.config.max_inline && self.random.below(3) == 0;
        let op = Op {
            what,
            local,
            sges: if inline { 0 } else { 1 + self.random.index(3) },
            signaled: self.random.below(4) > 0,
            fence: self.random.below(16) == 0,
            solicited: self.random.below(8) == 0,
            wrong,
        };
        self.plan.ops.push(op);
    }

    /// Draws a length: empty, a few bytes, around whole packets, anything.
    fn length(&mut self) -> usize {
        let mtu = self.config.path_mtu as u64;
        let mtus = self.random.between(1, self.config.mtus_most);
        let bytes = match self.random.below(8) {
            0 => self.random.below(9),
            1 | 2 => self.random.below(257),
            3 => mtus * mtu,
            4 => mtus * mtu - 1,
            5 => (mtus * mtu + 1).min(self.config.mtus_most * mtu),
            _ => self.random.below(mtus * mtu + 1),
        };
        usize::try_from(bytes).unwrap_or(0)
    }

    fn what(&mut self, bytes: usize) -> What {
        let Mix { write, send, read, atomic } = self.config.mix;
        let drawn = self.random.below(write + send + read + atomic);
        if drawn < write {
            self.write(bytes)
        } else if drawn < write + send {
            self.message()
        } else if drawn < write + send + read {
            self.read(bytes)
        } else {
            self.atomic()
        }
    }

    /// Draws the offset of `bytes` of the target that no READ reads.
    fn place(&mut self, bytes: usize) -> Option<usize> {
        let room = self.plan.target.len() - CELLS * 8 - bytes;
        let frozen = &self.frozen;
        let free = |at: &usize| {
            let meets = |range: &Range<usize>| *at < range.end && range.start < at + bytes;
            !frozen.iter().any(meets)
        };
        (0..8).map(|_| self.random.index(room + 1)).find(free)
    }

    fn write(&mut self, bytes: usize) -> What {
        let imm = u32::try_from(self.random.below(1 << 32)).unwrap_or(0);
        match self.place(bytes) {
            Some(offset) if self.random.below(4) == 0 => What::WriteImm { offset, imm },
            Some(offset) => What::Write { offset },
            None => What::SendImm(imm),
        }
    }

    fn message(&mut self) -> What {
        match self.random.below(8) {
            0 => {
                self.plan.spare_regions += 1;
                What::SendInvalidate(self.plan.spare_regions - 1)
            }
            1 | 2 => What::SendImm(u32::try_from(self.random.below(1 << 32)).unwrap_or(0)),
            _ => What::Send,
        }
    }

    fn read(&mut self, bytes: usize) -> What {
        let room = self.plan.target.len() - CELLS * 8 - bytes;
        let offset = self.random.index(room + 1);
        // Half of the target stays free for WRITEs.
        let offset = if self.config.mix.write > 0 { offset.min(room / 2) } else { offset };
        if bytes > 0 {
            self.frozen.push(offset..offset + bytes);
        }
        What::Read { offset, expected: self.model[offset..offset + bytes].to_vec() }
    }

    fn atomic(&mut self) -> What {
        let offset = self.plan.target.len() - 8 * (1 + self.random.index(CELLS));
        let mut cell = [0; 8];
        cell.copy_from_slice(&self.model[offset..offset + 8]);
        let before = u64::from_ne_bytes(cell);
        let (one, two) = (self.random.next_u64(), self.random.next_u64());
        match self.random.below(4) {
            0 => What::CompareSwap { offset, compare: before, swap: one, before },
            1 => What::CompareSwap { offset, compare: two, swap: one, before },
            _ => What::FetchAdd { offset, add: one, before },
        }
    }

    fn wrong(&mut self, what: &What) -> Wrong {
        if matches!(what, What::Send | What::SendImm(_) | What::SendInvalidate(_)) {
            return Wrong::TooLong;
        }
        let choices = [Wrong::Key, Wrong::Bounds, Wrong::Rights];
        self.random.pick(&choices).unwrap_or(Wrong::Key)
    }

    /// Allocates local memory for a request.
    fn allocate(&mut self, what: &What, bytes: usize) -> Range<usize> {
        if what.lands() {
            let start = self.plan.landing_bytes;
            self.plan.landing_bytes += bytes + GUARD;
            return start..start + bytes;
        }
        let start = self.plan.source.len();
        self.plan.source.resize(start + bytes, 0);
        self.random.fill(&mut self.plan.source[start..]);
        self.plan.source.resize(start + bytes + GUARD, 0xa5);
        start..start + bytes
    }

    /// Applies a request to the model.
    fn apply(&mut self, what: &What, local: &Range<usize>) {
        match what {
            What::Write { offset } | What::WriteImm { offset, .. } => {
                let sent = &self.plan.source[local.clone()];
                self.model[*offset..offset + sent.len()].copy_from_slice(sent);
            }
            What::FetchAdd { offset, add, before } => {
                self.set_cell(*offset, before.wrapping_add(*add));
            }
            What::CompareSwap { offset, compare, swap, before } if compare == before => {
                self.set_cell(*offset, *swap);
            }
            What::CompareSwap { .. }
            | What::Send
            | What::SendImm(_)
            | What::SendInvalidate(_)
            | What::Read { .. } => {}
        }
    }

    fn set_cell(&mut self, offset: usize, value: u64) {
        self.model[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
    }
}
