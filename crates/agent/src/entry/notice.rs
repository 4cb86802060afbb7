//! Completions, and what else an agent tells.
use super::{COMPLETION_BYTES, get, put};
use catchment_verbs::{WcOpcode, WcStatus};

/// What an agent tells an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The application's number of the queue pair.
    pub queue_pair: u32,
    /// What happened there.
    pub event: Event,
}

/// What happened on a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request of the send queue is done.
    Sent(Done),
    /// A receive is done.
    Received(Done),
    /// The queue pair went to the error state.
    Failed,
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The number of the request in its queue.
    pub seq: u64,
    /// The kind of the request and its bytes, or why it failed.
    pub result: Result<(WcOpcode, u64), (WcStatus, u32)>,
    /// Immediate data of a message.
    pub imm: Option<u32>,
    /// The queue pair that sent a datagram.
    pub source_qpn: Option<u32>,
}

impl Done {
    /// Returns one without immediate data or sender.
    #[must_use]
    #[inline]
    pub fn new(seq: u64, result: Result<(WcOpcode, u64), (WcStatus, u32)>) -> Self {
        Self { seq, result, imm: None, source_qpn: None }
    }
}

const SENT: u8 = 1;
const RECEIVED: u8 = 2;
const FAILED: u8 = 3;

const HAS_IMM: u8 = 1;
const HAS_SOURCE: u8 = 1 << 1;

const OPCODES: [WcOpcode; 7] = [
    WcOpcode::Send,
    WcOpcode::Write,
    WcOpcode::Read,
    WcOpcode::CompareSwap,
    WcOpcode::FetchAdd,
    WcOpcode::Recv,
    WcOpcode::RecvWriteImm,
];

const STATUSES: [WcStatus; 11] = [
    WcStatus::LocalLength,
    WcStatus::LocalQpOperation,
    WcStatus::LocalProtection,
    WcStatus::Flushed,
    WcStatus::BadResponse,
    WcStatus::RemoteInvalidRequest,
    WcStatus::RemoteAccess,
    WcStatus::RemoteOperation,
    WcStatus::TransportRetryExceeded,
    WcStatus::RnrRetryExceeded,
    WcStatus::General,
];

fn place<T: PartialEq>(all: &[T], value: &T) -> Option<u8> {
    all.iter().position(|known| known == value).map(|at| at as u8)
}

impl Notice {
    /// Returns its bytes. A status that has no number here becomes [`WcStatus::General`].
    #[must_use]
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut out = [0; COMPLETION_BYTES];
        put(&mut out, 4, self.queue_pair.to_le_bytes());
        let (kind, done) = match &self.event {
            Event::Sent(done) => (SENT, done),
            Event::Received(done) => (RECEIVED, done),
            Event::Failed => {
                out[0] = FAILED;
                return out;
            }
        };
        out[0] = kind;
        put(&mut out, 8, done.seq.to_le_bytes());
        match done.result {
            Ok((opcode, bytes)) => {
                out[1] = place(&OPCODES, &opcode).unwrap_or(0);
                put(&mut out, 16, bytes.to_le_bytes());
                put(&mut out, 24, done.source_qpn.unwrap_or(0).to_le_bytes());
            }
            Err((status, vendor_err)) => {
                let general = STATUSES.len() as u8 - 1;
                out[2] = place(&STATUSES, &status).unwrap_or(general) + 1;
                put(&mut out, 24, vendor_err.to_le_bytes());
            }
        }
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let has_source = done.source_qpn.is_some() && done.result.is_ok();
        out[3] = flag(done.imm.is_some(), HAS_IMM) | flag(has_source, HAS_SOURCE);
        put(&mut out, 28, done.imm.unwrap_or(0).to_le_bytes());
        out
    }

    /// Returns what these bytes say; `None` if no agent wrote them.
    #[must_use]
    pub fn decode(bytes: &[u8; COMPLETION_BYTES]) -> Option<Self> {
        let queue_pair = u32::from_le_bytes(get(bytes, 4));
        if bytes[0] == FAILED {
            return Some(Self { queue_pair, event: Event::Failed });
        }
        let result = match bytes[2] {
            0 => Ok((*OPCODES.get(usize::from(bytes[1]))?, u64::from_le_bytes(get(bytes, 16)))),
            status => {
                let status = *STATUSES.get(usize::from(status - 1))?;
                Err((status, u32::from_le_bytes(get(bytes, 24))))
            }
        };
        let done = Done {
            seq: u64::from_le_bytes(get(bytes, 8)),
            result,
            imm: (bytes[3] & HAS_IMM != 0).then(|| u32::from_le_bytes(get(bytes, 28))),
            source_qpn: (result.is_ok() && bytes[3] & HAS_SOURCE != 0)
                .then(|| u32::from_le_bytes(get(bytes, 24))),
        };
        match bytes[0] {
            SENT => Some(Self { queue_pair, event: Event::Sent(done) }),
            RECEIVED => Some(Self { queue_pair, event: Event::Received(done) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_read_back() {
        let results = OPCODES.iter().map(|opcode| Ok((*opcode, u64::MAX)));
        let failures = STATUSES.iter().map(|status| Err((*status, 0xffff_ffff)));
        for result in results.chain(failures) {
            for number in [None, Some(0), Some(u32::MAX)] {
                let source_qpn = number.filter(|_| result.is_ok());
                let done = Done { imm: number, source_qpn, ..Done::new(1 << 40, result) };
                for event in [Event::Sent(done), Event::Received(done), Event::Failed] {
                    let notice = Notice { queue_pair: 17, event };
                    assert_eq!(Notice::decode(&notice.encode()), Some(notice));
                }
            }
        }
        assert_eq!(Notice::decode(&[0; COMPLETION_BYTES]), None);
        assert_eq!(Notice::decode(&[0xff; COMPLETION_BYTES]), None);
    }
}
