//! Acknowledgement extended transport header: how it went (IBTA volume 1, 9.3.5 and 9.7.5.2).
//!
//! The numbers that its codes stand for, credits and waiting times, are here too.

use std::time::Duration;

/// Length of the header.
pub(super) const BYTES: usize = 4;

/// MSNs have 24 bits.
const MSN_MASK: u32 = 0x00ff_ffff;

/// Acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// How it went.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits: requests that the responder has completed.
    pub msn: u32,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All went well up to this PSN.
    Ack {
        /// Code of the receives that the responder has, 0 to 31. See [`credits`].
        credits: u8,
    },
    /// The responder has no receive posted: send this PSN again later.
    Rnr {
        /// Code of the time to wait, 0 to 31. See [`rnr_timer`].
        timer: u8,
    },
    /// This PSN failed.
    Nak(NakCode),
    /// A reserved code, verbatim.
    Other(u8),
}

/// Why a packet failed (IBTA volume 1, table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// Packets are missing before this one: go back.
    PsnSequence = 0,
    /// The request is one that this queue pair does not take.
    InvalidRequest = 1,
    /// Key, range or rights do not fit.
    RemoteAccess = 2,
    /// The responder itself failed.
    RemoteOperation = 3,
    /// Reliable datagrams only.
    InvalidRd = 4,
}

const KIND_ACK: u8 = 0;
const KIND_RNR: u8 = 1 << 5;
const KIND_NAK: u8 = 3 << 5;
const VALUE_MASK: u8 = 0x1f;

/// The credit code that says: do not count on me.
pub const NO_CREDITS: u8 = 31;

impl Syndrome {
    /// An acknowledgement that takes no part in flow control by credits.
    pub const ACK: Self = Self::Ack {
        credits: NO_CREDITS,
    };

    /// The meaning of a byte. Every byte has one.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Self {
        let value = byte & VALUE_MASK;
        match byte & !VALUE_MASK {
            KIND_ACK => Self::Ack { credits: value },
            KIND_RNR => Self::Rnr { timer: value },
            KIND_NAK => match NakCode::from_u8(value) {
                Some(code) => Self::Nak(code),
                None => Self::Other(byte),
            },
            _ => Self::Other(byte),
        }
    }

    /// The byte. Only the lowest 5 bits of a code count.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credits } => KIND_ACK | credits & VALUE_MASK,
            Self::Rnr { timer } => KIND_RNR | timer & VALUE_MASK,
            Self::Nak(code) => KIND_NAK | code as u8,
            Self::Other(byte) => byte,
        }
    }
}

impl NakCode {
    const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperation,
            4 => Self::InvalidRd,
            _ => return None,
        })
    }
}

impl Aeth {
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Self {
        Self {
            syndrome: Syndrome::from_u8(bytes[0]),
            msn: u32::from_be_bytes(*bytes) & MSN_MASK,
        }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        let syndrome = u32::from(self.syndrome.to_u8());
        (syndrome << 24 | self.msn & MSN_MASK).to_be_bytes()
    }
}

/// What a code stands for: 1, 2, 3, 4, 6, 8, 12, then each the double of the one two before.
const fn steps(code: u8) -> u32 {
    match code {
        0 => 0,
        1 => 1,
        _ if code.is_multiple_of(2) => 1 << (code / 2),
        _ => 3 << (code / 2 - 1),
    }
}

/// How many receives a credit code promises; none when it promises nothing (IBTA volume 1,
/// table 47).
#[must_use]
pub const fn credits(code: u8) -> Option<u32> {
    match code & VALUE_MASK {
        NO_CREDITS => None,
        code => Some(steps(code)),
    }
}

/// The largest credit code that promises no more than `receives`.
#[must_use]
pub const fn credit_code(receives: u32) -> u8 {
    let mut code = NO_CREDITS - 1;
    while steps(code) > receives {
        code -= 1;
    }
    code
}

/// How long to wait after an RNR NAK with this timer code: 10 µs to 655.36 ms (IBTA volume 1,
/// table 45).
#[must_use]
pub const fn rnr_timer(code: u8) -> Duration {
    let steps = match code & VALUE_MASK {
        0 => 1 << 16,
        code => steps(code),
    };
    Duration::from_micros(10 * steps as u64)
}

/// The code of the shortest wait that is at least `wait`; the longest one when there is none.
#[must_use]
pub const fn rnr_timer_code(wait: Duration) -> u8 {
    let mut code = 1;
    while code < 32 {
        if rnr_timer(code).as_nanos() >= wait.as_nanos() {
            return code;
        }
        code += 1;
    }
    0
}
