//! A mechanism as the measurement sees it: two ends, each sends to and receives from the other.
use crate::job::{Network, Queues};
use anyhow::{Result, bail};
use catchment_verbs::mem::VolatileSlice;
use std::sync::atomic::{Ordering, fence};

pub(crate) mod cache_line;
pub(crate) mod device;
pub(crate) mod helper;
#[cfg(feature = "iceoryx2")]
pub(crate) mod iceoryx;
pub(crate) mod memcpy;
pub(crate) mod through;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Parked,
    Working,
    Urgent,
}

/// One end of a mechanism.
///
/// The same rule for all: a send makes exactly one copy of `bytes` bytes out of a buffer of
/// `blocks` blocks, used in turn, that was filled before. (A stream socket makes more, inside.) A
/// receive looks at the first and the last byte and gives the block back; what an application
/// does with the data is not charged to any mechanism.
pub(crate) trait Link {
    /// Moves the next block to the other end, once there is room. `content` replaces the prepared
    /// data, in the twin run that verifies.
    fn send(&mut self, content: Option<&[u8]>) -> Result<()>;
    /// Waits for the next block and keeps it. Its bytes go to `content` in the twin run that
    /// verifies.
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()>;
    /// Gives back the block that was received last, where there is something to give back. A
    /// round trip answers first: giving back is no part of the way there.
    fn give_back(&mut self) -> Result<()> {
        Ok(())
    }
    /// Returns how often its status bytes were looked at so far, where the mechanism has any.
    fn status_reads(&self) -> Option<u64> {
        None
    }
    fn read_status(&mut self) -> Result<()> {
        Ok(())
    }
    /// What the device keeps for the way from the source to the collector, at this role.
    fn queues(&self) -> Option<Queues> {
        None
    }
    fn network(&self) -> Option<Network> {
        None
    }
    /// After the last send of a batch.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    /// Measures begin or end: a mechanism with threads of its own lets them go on, or stops them.
    fn set_pace(&mut self, _: Pace) -> Result<()> {
        Ok(())
    }
    /// For mechanisms without a collector: keeps its core busy until the source has finished, so
    /// that no other program of the machine runs there, and says true. Does nothing otherwise.
    fn attend(&mut self) -> Result<bool> {
        Ok(false)
    }
    /// Claims a block if there is room, for [`Link::commit`].
    fn try_claim(&mut self) -> Result<bool> {
        bail!("this mechanism only waits")
    }
    fn commit(&mut self) -> Result<()> {
        bail!("nothing was claimed")
    }
    /// Takes a block if one is there, and keeps it.
    fn try_recv(&mut self) -> Result<bool> {
        bail!("this mechanism only waits")
    }
    /// Goes on with a look at the status bytes, or begins one; true when it is done. Nothing where
    /// there are none.
    fn look(&mut self) -> Result<Option<bool>> {
        Ok(None)
    }
    /// Where acknowledgements have a thread of their own: notes from now on when it found one, and
    /// returns what it noted since the last call.
    fn note_acknowledgements(&mut self) -> Vec<u64> {
        Vec::new()
    }
    /// Puts the block that was received last behind those that are kept for longer.
    fn set_aside(&mut self) {}
    /// Gives one of those back, by its place among them, the oldest first; false if there is none.
    fn give_back_aside(&mut self, _place: usize) -> Result<bool> {
        Ok(false)
    }
}

/// Bytes for block `sequence`, different for every block and every eight bytes.
pub(crate) fn pattern(sequence: u64, out: &mut [u8]) {
    let mut word = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5555_1234_aaaa_4321;
    for chunk in out.chunks_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

pub(crate) struct Prepared {
    data: Vec<u8>,
    bytes: usize,
    next: usize,
}

impl Prepared {
    pub(crate) fn new(bytes: usize, blocks: usize) -> Self {
        let mut data = vec![0; bytes * blocks];
        for (i, block) in data.chunks_mut(bytes).enumerate() {
            pattern(i as u64, block);
        }
        Self { data, bytes, next: 0 }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> &[u8] {
        let at = self.next;
        self.next += self.bytes;
        if self.next == self.data.len() {
            self.next = 0;
        }
        &self.data[at..at + self.bytes]
    }
}

#[inline]
pub(crate) fn touch(byte: u8) {
    std::hint::black_box(byte);
}

/// Looks at the first and the last byte of a payload, and copies all of it to `content` if that is
/// given.
#[inline]
fn look_at(payload: VolatileSlice<'_>, content: Option<&mut Vec<u8>>) -> Result<()> {
    // A processor reads ahead of the check that the block is there, and so takes lines of it from
    // the source that still writes them: up to a fifth of the throughput of 64 blocks of 4 KiB.
    fence(Ordering::SeqCst);
    touch(payload.load_u8(0, Ordering::Relaxed)?);
    touch(payload.load_u8(payload.bytes() - 1, Ordering::Relaxed)?);
    if let Some(content) = content {
        *content = payload.to_vec();
    }
    Ok(())
}
