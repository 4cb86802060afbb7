//! Acknowledgement extended transport header (IBTA volume 1, 9.3 and 9.7.5), with its credit codes.
use catchment_verbs_types::MAX_24_BITS;
use catchment_verbs_types::timer::steps;
pub use catchment_verbs_types::timer::{rnr_timer, rnr_timer_code};

/// Length of the header.
pub(super) const BYTES: usize = 4;

/// Acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The outcome.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits: requests that the responder has completed.
    pub msn: u32,
}

/// The outcome of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All requests up to this PSN succeeded.
    Ack {
        /// Credit code of the responder's receives, 0 to 31. See [`credits`].
        credits: u8,
    },
    /// The responder has no receive posted: retransmit this PSN later.
    Rnr {
        /// Code of the time to wait, 0 to 31. See [`rnr_timer`].
        timer: u8,
    },
    /// This PSN failed.
    Nak(NakCode),
    /// A reserved code, verbatim.
    Other(u8),
}

/// Why a packet failed (IBTA volume 1, 9.7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// Packets are missing before this one: go back.
    PsnSequence = 0,
    /// The request is invalid for this queue pair.
    InvalidRequest = 1,
    /// Key, range or rights do not allow the access.
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

/// The credit code of a responder without flow control.
pub const NO_CREDITS: u8 = 31;

impl Syndrome {
    /// An acknowledgement without credits.
    pub const ACK: Self = Self::Ack { credits: NO_CREDITS };

    /// Decodes a byte. Every byte is valid.
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

    /// Returns the byte. Only the lowest 5 bits of a code are used.
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
            msn: u32::from_be_bytes(*bytes) & MAX_24_BITS,
        }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        let syndrome = u32::from(self.syndrome.to_u8());
        (syndrome << 24 | self.msn & MAX_24_BITS).to_be_bytes()
    }
}

/// Returns how many receives a credit code promises; `None` without flow control (IBTA volume 1,
/// 9.7.7).
pub const fn credits(code: u8) -> Option<u32> {
    match code & VALUE_MASK {
        NO_CREDITS => None,
        code => Some(steps(code)),
    }
}

/// Returns the largest credit code that promises no more than `receives`.
pub const fn credit_code(receives: u32) -> u8 {
    let mut code = NO_CREDITS - 1;
    while steps(code) > receives {
        code -= 1;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_keeps_its_byte() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_u8(byte).to_u8(), byte);
        }
    }

    /// IBTA volume 1, 9.7.5: the upper three bits are the kind.
    #[test]
    fn the_kinds_of_syndromes_are_those_of_the_standard() {
        assert_eq!(Syndrome::from_u8(0x1f), Syndrome::ACK);
        assert_eq!(Syndrome::from_u8(0x05), Syndrome::Ack { credits: 5 });
        assert_eq!(Syndrome::from_u8(0x3f), Syndrome::Rnr { timer: 31 });
        assert_eq!(Syndrome::from_u8(0x5f), Syndrome::Other(0x5f));
        let codes = (0x60..0x65).map(Syndrome::from_u8);
        let expected = [
            NakCode::PsnSequence,
            NakCode::InvalidRequest,
            NakCode::RemoteAccess,
            NakCode::RemoteOperation,
            NakCode::InvalidRd,
        ];
        assert!(codes.eq(expected.map(Syndrome::Nak)));
        assert_eq!(Syndrome::from_u8(0x65), Syndrome::Other(0x65));
        assert_eq!(Syndrome::from_u8(0x9f), Syndrome::Other(0x9f));
    }

    #[test]
    fn codes_out_of_range_keep_their_kind() {
        assert_eq!(Syndrome::Ack { credits: 0xff }.to_u8(), 0x1f);
        assert_eq!(Syndrome::Rnr { timer: 0x60 }.to_u8(), 0x20);
    }

    /// IBTA volume 1, 9.7.7: from code 1 the same steps as those of the waiting times.
    #[test]
    fn credits_are_those_of_the_standard() {
        assert_eq!(credits(0), Some(0));
        for code in 1..31 {
            let expected = rnr_timer(code).as_micros() as u32 / 10;
            assert_eq!(credits(code), Some(expected), "code {code}");
            assert_eq!(credit_code(expected), code);
            assert_eq!(credit_code(expected - 1), code - 1, "never more than there are");
        }
        assert_eq!(credits(NO_CREDITS), None);
        assert_eq!(credit_code(u32::MAX), 30);
    }
}
