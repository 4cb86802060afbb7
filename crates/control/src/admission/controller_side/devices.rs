//! The numbers of the devices of a source, by their places. Most sources have one, which takes no memory of its own.
use crate::admission::DeviceId;
use std::ops::Deref;

#[derive(Clone, Debug)]
pub(super) enum Devices {
    One([DeviceId; 1]),
    Any(Box<[DeviceId]>),
}

impl Default for Devices {
    fn default() -> Self {
        Self::Any(Box::default())
    }
}

impl Deref for Devices {
    type Target = [DeviceId];

    fn deref(&self) -> &[DeviceId] {
        match self {
            Self::One(one) => one,
            Self::Any(all) => all,
        }
    }
}

impl FromIterator<DeviceId> for Devices {
    fn from_iter<I: IntoIterator<Item = DeviceId>>(devices: I) -> Self {
        let all: Vec<DeviceId> = devices.into_iter().collect();
        match all[..] {
            [one] => Self::One([one]),
            _ => Self::Any(all.into()),
        }
    }
}
