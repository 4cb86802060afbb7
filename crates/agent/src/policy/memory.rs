//! The part of a policy that says what memory is registered before it is asked for.
use super::PolicyError;
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Lengths of memory chunks.
const BYTES: RangeInclusive<u64> = 64 << 10..=1 << 30;
/// Most of them that are ready.
const MOST_AHEAD: usize = 16;

/// Memory that is registered before applications ask for it: chunks, each of which is given to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryChunks {
    /// Length of a chunk.
    pub bytes: u64,
    /// How many are ready.
    pub ahead: usize,
}

impl Default for MemoryChunks {
    fn default() -> Self {
        Self { bytes: 64 << 20, ahead: 1 }
    }
}

impl MemoryChunks {
    pub(super) fn check(self) -> Result<(), PolicyError> {
        let wrong = |what, asked, least, most| {
            let text = format!("memory_chunks: {what} = {asked} is not between {least} and {most}");
            Err(PolicyError::Value(text))
        };
        if !BYTES.contains(&self.bytes) {
            return wrong("bytes", self.bytes, *BYTES.start(), *BYTES.end());
        }
        if self.ahead > MOST_AHEAD {
            return wrong("ahead", self.ahead as u64, 0, MOST_AHEAD as u64);
        }
        Ok(())
    }
}
