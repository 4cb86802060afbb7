//! What tests move: how much, and bytes from a seed.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test, which does not use everything"
)]

/// This many, times `CATCHMENT_TEST_SCALE`: 10 for a long run, 0.01 on an emulated machine.
pub fn scaled(count: u64) -> u64 {
    let scale = std::env::var("CATCHMENT_TEST_SCALE");
    let scale = scale.map_or(1.0, |text| text.parse::<f64>().unwrap());
    ((count as f64 * scale) as u64).max(1)
}

/// Small, seeded, good enough to fill payloads (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
