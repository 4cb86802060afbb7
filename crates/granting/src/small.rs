//! Small transfers: frames that leave without asking, out of a bucket that the controller gave their device.
use super::arrivals::Arrivals;
use super::gate::NewLink;
use super::moving::{Moving, Way};
use catchment_transfer::{Broken, HeldBlock};
use catchment_verbs::{Flow, TokenBucket};
use std::collections::VecDeque;

/// A larger frame asks.
const SMALL_BYTES_MAX: u32 = 64 << 10;

/// Buckets by device, and what the queue had no room for.
#[derive(Default)]
pub(super) struct Small {
    buckets: Vec<Option<(TokenBucket, Flow)>>,
    waiting: VecDeque<(u32, Moving)>,
}

impl Small {
    /// Takes the rates of the buckets: bits of payload a second by device; 0, or none, for those that ask always.
    pub(super) fn set(&mut self, rates_bps: &[u64]) {
        let burst_bytes = u64::from(SMALL_BYTES_MAX);
        let bucket = |rate_bps: &u64| {
            let flow = Flow { rate_bps: *rate_bps, burst_bytes, backlog_bytes: burst_bytes };
            (*rate_bps > 0).then(|| (TokenBucket::default(), flow))
        };
        self.buckets = rates_bps.iter().map(bucket).collect();
    }

    /// Takes a block that is a whole frame, if it is small and the bucket of its device allows it now.
    pub(super) fn take(&mut self, device: u32, block: HeldBlock, now_ns: u64) -> bool {
        let is_whole = block.is_last && u64::from(block.bytes) >= block.frame_bytes;
        let Some(Some((bucket, flow))) = self.buckets.get_mut(device as usize) else {
            return false;
        };
        if !is_whole || block.bytes > SMALL_BYTES_MAX || !bucket.may_send(now_ns, *flow) {
            return false;
        }
        bucket.take(now_ns, block.bytes.into(), *flow);
        self.waiting.push_back((device, Moving::new(block, false)));
        true
    }

    /// Posts what was taken, as far as the queue has room.
    pub(super) fn post(&mut self, link: &NewLink, arrivals: &mut Arrivals) -> Result<(), Broken> {
        while let Some((device, moving)) = self.waiting.front_mut() {
            moving.post(Way { device: *device, link, arrivals }, u64::MAX)?;
            if !moving.blocks.is_empty() {
                return Ok(());
            }
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Forgets what a link held that ended.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn block(bytes: u32, frame_bytes: u64) -> HeldBlock {
        HeldBlock {
            slot: 0,
            stream: 0,
            packet_number: 0,
            bytes,
            frame_bytes,
            is_last: true,
            capture_time_ns: 0,
        }
    }

    #[test]
    fn frames_leave_at_the_rate_of_the_bucket_and_others_ask() {
        let mut small = Small::default();
        assert!(!small.take(0, block(100, 100), SECOND_NS), "nothing was given");
        // 16 KiB a second for device 1.
        small.set(&[0, 8 * (16 << 10)]);
        assert!(!small.take(0, block(100, 100), SECOND_NS), "the other device's");
        assert!(!small.take(2, block(100, 100), SECOND_NS), "no such device");
        assert!(!small.take(1, block((64 << 10) + 1, (64 << 10) + 1), SECOND_NS), "too large");
        assert!(!small.take(1, block(100, 200), SECOND_NS), "a part of a frame");
        let left = |small: &mut Small, from_ns: u64| {
            (0..100).filter(|_| small.take(1, block(16 << 10, 16 << 10), from_ns)).count()
        };
        assert_eq!(left(&mut small, SECOND_NS), 4, "a burst of 64 KiB");
        assert_eq!(left(&mut small, SECOND_NS), 0);
        assert_eq!(left(&mut small, 3 * SECOND_NS), 2, "two seconds later");
        small.set(&[]);
        assert_eq!(left(&mut small, 90 * SECOND_NS), 0, "a controller that gives none");
    }
}
