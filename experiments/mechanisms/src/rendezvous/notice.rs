//! The two messages of a rendezvous. Numbers are little-endian.
use super::NOTICE_BYTES;

pub(super) type NoticeBytes = [u8; NOTICE_BYTES as usize];

/// "A block may go here", from the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressNotice {
    pub addr: u64,
    pub rkey: u32,
    pub bytes: u32,
}

/// "The block is there", from the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionNotice {
    pub addr: u64,
    /// Bytes written, up to the end of the slot.
    pub bytes: u32,
}

impl AddressNotice {
    /// Address, key, length.
    pub fn encode(&self) -> [u8; 16] {
        join(self.addr, self.rkey, self.bytes)
    }

    pub fn decode(bytes: &[u8; 16]) -> Self {
        let (addr, rkey, bytes) = split(bytes);
        Self { addr, rkey, bytes }
    }
}

impl CompletionNotice {
    /// Address, length, zeros.
    pub fn encode(&self) -> [u8; 16] {
        join(self.addr, self.bytes, 0)
    }

    /// The reverse of [`CompletionNotice::encode`]; `None` where there should be zeros.
    pub fn decode(bytes: &[u8; 16]) -> Option<Self> {
        let (addr, bytes, zeros) = split(bytes);
        (zeros == 0).then_some(Self { addr, bytes })
    }
}

fn join(addr: u64, first: u32, second: u32) -> NoticeBytes {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&addr.to_le_bytes());
    out[8..12].copy_from_slice(&first.to_le_bytes());
    out[12..].copy_from_slice(&second.to_le_bytes());
    out
}

fn split(bytes: &NoticeBytes) -> (u64, u32, u32) {
    let all = u128::from_le_bytes(*bytes);
    (all as u64, (all >> 64) as u32, (all >> 96) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let address =
            AddressNotice { addr: 0x0102_0304_0506_0708, rkey: 0x1112_1314, bytes: 0x2122_2324 };
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21];
        assert_eq!(address.encode(), bytes);
        assert_eq!(AddressNotice::decode(&bytes), address);
        let completion = CompletionNotice { addr: 0x0102_0304_0506_0708, bytes: 0x1112_1314 };
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0, 0, 0, 0];
        assert_eq!(completion.encode(), bytes);
        assert_eq!(CompletionNotice::decode(&bytes), Some(completion));
        let wrong = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(CompletionNotice::decode(&wrong), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(addr: u64, rkey: u32, bytes: u32) {
            let address = AddressNotice { addr, rkey, bytes };
            prop_assert_eq!(AddressNotice::decode(&address.encode()), address);
            let completion = CompletionNotice { addr, bytes };
            prop_assert_eq!(CompletionNotice::decode(&completion.encode()), Some(completion));
        }
    }
}
