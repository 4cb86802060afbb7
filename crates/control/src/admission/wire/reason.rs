//! Why a controller refuses something, on the wire.
use crate::admission::Refusal;

/// Why a controller refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The device is none that the source has registered.
    UnknownDevice,
    /// As many transfers as the controller takes wait or run.
    TooManyTransfers,
    /// Nothing to send, or more than the controller allows.
    Size,
    /// The device may not send.
    NotAllowed,
}

impl Reason {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::UnknownDevice => 1,
            Self::TooManyTransfers => 2,
            Self::Size => 3,
            Self::NotAllowed => 4,
        }
    }

    pub(super) const fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::UnknownDevice),
            2 => Some(Self::TooManyTransfers),
            3 => Some(Self::Size),
            4 => Some(Self::NotAllowed),
            _ => None,
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownDevice => Self::UnknownDevice,
            Refusal::TooManyTransfers => Self::TooManyTransfers,
            Refusal::Size => Self::Size,
            Refusal::UnknownLink
            | Refusal::UnknownPath
            | Refusal::UnknownClass
            | Refusal::ForeignDevice
            | Refusal::Busy
            | Refusal::NoRate
            | Refusal::TooManyDevices
            | Refusal::SmallFull
            | Refusal::Rate { .. } => Self::NotAllowed,
        }
    }
}
