//! Path MTU: the payload of one packet.
use super::packet::WORD_BYTES;
use super::{ICRC_BYTES, bth, net, reth};

/// Path MTU: payload bytes of all but the last packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the number is the length in bytes")]
pub enum PathMtu {
    Mtu256,
    Mtu512,
    Mtu1024,
    Mtu2048,
    Mtu4096,
}

/// Overhead of the longest packet besides payload and IP header: a WRITE with immediate.
const OVERHEAD_BYTES: usize = net::UDP_BYTES + bth::BYTES + reth::BYTES + WORD_BYTES + ICRC_BYTES;

impl PathMtu {
    /// All of them, the smallest first.
    pub const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Returns the number of payload bytes.
    pub const fn bytes(self) -> usize {
        256 << self as usize
    }

    /// Returns the path MTU with this length; `None` if there is none.
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        Some(match bytes {
            256 => Self::Mtu256,
            512 => Self::Mtu512,
            1024 => Self::Mtu1024,
            2048 => Self::Mtu2048,
            4096 => Self::Mtu4096,
            _ => return None,
        })
    }

    /// Returns the largest path MTU whose packets pass an interface with an MTU of
    /// `interface_bytes`;
    /// `None` if even the smallest do not.
    pub fn for_interface_mtu(interface_bytes: usize, ipv6: bool) -> Option<Self> {
        let ip = if ipv6 { net::IPV6_BYTES } else { net::IPV4_BYTES };
        let room = interface_bytes.checked_sub(ip + OVERHEAD_BYTES)?;
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_names_are_the_same() {
        for mtu in PathMtu::ALL {
            assert_eq!(format!("{mtu:?}"), format!("Mtu{}", mtu.bytes()));
            assert_eq!(PathMtu::from_bytes(mtu.bytes()), Some(mtu));
            assert_eq!(PathMtu::from_bytes(mtu.bytes() + 1), None);
        }
    }

    #[test]
    fn usual_interfaces_have_the_usual_path_mtu() {
        for ipv6 in [false, true] {
            let of = |bytes| PathMtu::for_interface_mtu(bytes, ipv6);
            assert_eq!(of(1500), Some(PathMtu::Mtu1024));
            assert_eq!(of(4200), Some(PathMtu::Mtu4096));
            assert_eq!(of(9000), Some(PathMtu::Mtu4096));
            assert_eq!(of(65536), Some(PathMtu::Mtu4096));
            assert_eq!(of(300), None);
            assert_eq!(of(0), None);
        }
    }

    #[test]
    fn the_longest_packet_just_passes() {
        for (ipv6, beside) in [(false, 64), (true, 84)] {
            for mtu in PathMtu::ALL {
                let fits = mtu.bytes() + beside;
                assert_eq!(PathMtu::for_interface_mtu(fits, ipv6), Some(mtu));
                assert!(PathMtu::for_interface_mtu(fits - 1, ipv6) < Some(mtu));
            }
        }
    }
}
