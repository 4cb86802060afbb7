//! The ring and the send queue that a source asks for, by the round trip of its path.
use super::prepared::SEND_WRS;
use crate::session::check::BLOCKS_MAX;
use crate::session::message::RingWish;
use std::time::Duration;

/// Memory at the collector that a source requests, unless its devices need more for one block each.
pub(super) const RING_BYTES: u64 = 256 << 20;
/// From this round trip on a path is long.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(2);
/// What the ring allows there: 1 Gbit/s.
const LONG_BYTES_PER_S: f64 = 125e6;
/// Requests that may be outstanding there if nothing else is said.
const SEND_QUEUE_MOST: u32 = 4096;
/// Requests of a block: its WRITE, and that of its status byte.
pub(super) const SEND_QUEUE_LEAST: u32 = 2;

/// The ring that a source requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// Blocks that the application asked for.
    pub(super) asked: Option<u32>,
    /// Blocks where it did not, and the path is short.
    pub(super) usual: u32,
    pub(super) block_bytes: u32,
    /// Requests that the application asked for.
    pub(super) send_queue: Option<u32>,
}

impl Wish {
    /// Returns the ring for a path with this round trip. A block is free again after about two of them: it
    /// travels, is released, and the release is read. A lost packet takes one or two more, for all behind it, and
    /// the READ may wait for one too.
    pub(super) fn at(&self, round_trip: Duration) -> RingWish {
        let block_bytes = self.block_bytes;
        let most = (RING_BYTES / u64::from(block_bytes)).min(BLOCKS_MAX.into()) as u32;
        let bytes = LONG_BYTES_PER_S * (9 * round_trip).as_secs_f64();
        let long = match round_trip >= LONG_ROUND_TRIP {
            true => ((bytes / f64::from(block_bytes)).ceil() as u32).min(most),
            false => 0,
        };
        RingWish { blocks: self.asked.unwrap_or(self.usual.max(long)), block_bytes }
    }

    /// Returns how many requests may be outstanding with a ring of `blocks`: on a long path all are under way at
    /// once.
    pub(super) fn send_queue(&self, round_trip: Duration, blocks: u32) -> u32 {
        let long = match round_trip >= LONG_ROUND_TRIP {
            true => blocks.saturating_mul(SEND_QUEUE_LEAST).min(SEND_QUEUE_MOST),
            false => 0,
        };
        self.send_queue.unwrap_or(SEND_WRS.max(long))
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::{DeviceSpec, SourceBuilder};
    use super::*;

    fn wish(frame_bytes: usize) -> Wish {
        let device = DeviceSpec::new("cam").frame_bytes(frame_bytes);
        SourceBuilder::new("host:1".to_owned()).device(device).wish()
    }

    #[test]
    fn a_long_path_gets_a_ring_that_holds_what_is_on_the_way() {
        let camera = wish(921_600);
        assert_eq!(camera.at(Duration::ZERO).blocks, 8);
        assert_eq!(camera.at(Duration::from_micros(1999)).blocks, 8);
        assert_eq!(camera.at(Duration::from_millis(200)).blocks, 245, "225 MB");
        let most = camera.at(Duration::from_secs(3600));
        assert_eq!(u64::from(most.blocks), RING_BYTES / u64::from(most.block_bytes));
        assert_eq!(wish(64).at(Duration::from_secs(1)).blocks, BLOCKS_MAX);
    }

    #[test]
    fn what_the_application_asks_for_it_gets_on_any_path() {
        let spec = SourceBuilder::new("host:1".to_owned()).device(DeviceSpec::new("cam")).blocks(5);
        assert_eq!(spec.wish().at(Duration::from_millis(200)).blocks, 5);
        assert_eq!(spec.wish().send_queue(Duration::from_millis(200), 5), SEND_WRS);
        let narrow = spec.send_queue(2).wish();
        assert_eq!(narrow.send_queue(Duration::from_millis(200), 5000), 2);
    }
}
