//! Control messages of a datagram: segment size, traffic class.
//!
//! The layout is that of the kernel's `struct cmsghdr`: length (a machine word), level, type, data,
//! each message padded to a machine word.
use std::mem;

const HEADER_BYTES: usize = mem::size_of::<libc::cmsghdr>();
const WORD_BYTES: usize = mem::size_of::<usize>();
/// Room for all control messages of one datagram.
pub(super) const CONTROL_BYTES: usize = 128;

/// Control messages of one datagram, sent or received.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; CONTROL_BYTES],
}

/// The contents of the control messages of a received datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes of each merged packet; `None` when the kernel merged nothing.
    pub(super) segment_bytes: Option<usize>,
    /// The two ECN bits.
    pub(super) ecn: u8,
}

impl Control {
    pub(super) fn empty() -> Self {
        Self { bytes: [0; CONTROL_BYTES] }
    }

    /// Appends a message at `at` and returns where the next one goes.
    fn push(&mut self, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
        let bytes = HEADER_BYTES + data.len();
        let ints = HEADER_BYTES - 2 * mem::size_of::<i32>();
        self.bytes[at..][..WORD_BYTES].copy_from_slice(&bytes.to_ne_bytes());
        self.bytes[at + ints..][..4].copy_from_slice(&level.to_ne_bytes());
        self.bytes[at + ints + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes[at + HEADER_BYTES..][..data.len()].copy_from_slice(data);
        at + bytes.next_multiple_of(WORD_BYTES)
    }

    /// Asks the kernel to cut the datagram into packets of `bytes`.
    pub(super) fn segment(&mut self, at: usize, bytes: u16) -> usize {
        self.push(at, libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes())
    }

    /// Sends with this traffic class: DSCP, and below it the ECN bits.
    pub(super) fn traffic_class(&mut self, at: usize, ipv6: bool, class: u8) -> usize {
        let value = i32::from(class).to_ne_bytes();
        if ipv6 {
            self.push(at, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value)
        } else {
            self.push(at, libc::IPPROTO_IP, libc::IP_TOS, &value)
        }
    }

    /// Reads the first `bytes` bytes, as the kernel left them.
    pub(super) fn received(&self, bytes: usize) -> Received {
        let mut found = Received::default();
        let all = &self.bytes[..bytes.min(CONTROL_BYTES)];
        let mut at = 0;
        while let Some((level, kind, data, next)) = message(all, at) {
            found.take(level, kind, data);
            at = next;
        }
        found
    }
}

impl Received {
    fn take(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_bytes = int(data).and_then(|v| usize::try_from(v).ok());
            }
            // One byte for IPv4, an int for IPv6; the ECN bits are the lowest ones.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.ecn = data.first().map_or(0, |b| b & 3),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.ecn = int(data).map_or(0, |v| (v & 3) as u8);
            }
            _ => {}
        }
    }
}

fn int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// Level, type and data of the message at `at`, and where the next one is.
fn message(all: &[u8], at: usize) -> Option<(i32, i32, &[u8], usize)> {
    let rest = all.get(at..)?;
    let bytes = usize::from_ne_bytes(*rest.first_chunk()?);
    let data = rest.get(HEADER_BYTES..bytes)?;
    let ints = HEADER_BYTES - 8;
    let level = int(rest.get(ints..)?)?;
    let kind = int(rest.get(ints + 4..)?)?;
    Some((level, kind, data, at + bytes.next_multiple_of(WORD_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for ipv6 in [true, false] {
            let mut control = Control::empty();
            let end = control.segment(0, 1056);
            let end = control.traffic_class(end, ipv6, 0xb8 | 3);
            assert!(end <= CONTROL_BYTES, "all that is sent at once fits");
            assert_eq!(control.received(end).ecn, 3);
        }
    }

    #[test]
    fn a_broken_length_ends_the_list() {
        let mut control = Control::empty();
        let end = control.traffic_class(0, false, 2);
        for length in [0, 3, usize::MAX] {
            control.bytes[..WORD_BYTES].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(control.received(end), Received::default());
        }
    }
}
