//! Integers at fixed places, most significant byte first.

/// Reads from the front of a slice that is known to be long enough.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (front, rest) = self.rest.split_at(N.min(self.rest.len()));
        taken[..front.len()].copy_from_slice(front);
        self.rest = rest;
        taken
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.take())
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}
