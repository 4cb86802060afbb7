//! Memory that is reached word by word.
use catchment_kv::memory::Memory;
use catchment_kv::operation::Swap;
use std::cell::RefCell;

pub(crate) const MEMORY_BYTES: usize = 1 << 20;

pub(crate) struct Words(RefCell<Vec<u64>>);

impl Words {
    pub(crate) fn zeroed() -> Self {
        Self(RefCell::new(vec![0; MEMORY_BYTES / 8]))
    }
}

impl Memory for Words {
    fn bytes(&self) -> u64 {
        MEMORY_BYTES as u64
    }
    fn load(&self, at: u64) -> u64 {
        self.0.borrow()[at as usize / 8]
    }
    fn store(&self, at: u64, value: u64) {
        self.0.borrow_mut()[at as usize / 8] = value;
    }
    fn swap(&self, Swap { at, compare, swap }: Swap) -> u64 {
        let before = self.load(at);
        if before == compare {
            self.store(at, swap);
        }
        before
    }
    fn read(&self, at: u64, out: &mut [u8]) {
        for (n, bytes) in out.chunks_mut(8).enumerate() {
            let count = bytes.len();
            bytes.copy_from_slice(&self.load(at + 8 * n as u64).to_le_bytes()[..count]);
        }
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        for (n, bytes) in bytes.chunks_exact(8).enumerate() {
            self.store(at + 8 * n as u64, u64::from_le_bytes(bytes.try_into().expect("a word")));
        }
    }
}
