//! Configuration of a link.
use crate::{Chance, Random};
use std::time::Duration;

/// A one-way link. The default is perfect: infinitely fast, no delay, unlimited queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkConfig {
    /// Bits of IP packets per second; `None` is infinitely fast.
    pub(crate) rate_bps: Option<u64>,
    /// From the last bit sent to the last bit received.
    pub(crate) delay: Duration,
    /// Limit of bytes queued or being sent, the frame being sent counted whole. A frame that does
    /// not fit is dropped. `None` is unlimited.
    pub(crate) queue_bytes: Option<usize>,
    /// Queue length in bytes above which ECN-capable frames are marked as CE. `None` marks none.
    pub(crate) mark_above: Option<usize>,
    /// Longest IP packet; a longer one is dropped, not fragmented. `None` is unlimited.
    pub(crate) mtu: Option<usize>,
    /// Frames lost on the wire, after their transmission.
    pub(crate) loss: Loss,
    /// Frames delayed so that later ones overtake them.
    pub(crate) reorder: Delay,
    /// Frames that arrive a second time, this much later.
    pub(crate) duplicate: Delay,
    /// Frames with inverted bits.
    pub(crate) corrupt: Corruption,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Loss {
    #[default]
    None,
    Random(Chance),
    Bursts {
        /// Long-term fraction of frames lost, 0 to 1.
        fraction: f64,
        /// Burst length.
        length: BurstLength,
    },
    /// Exactly these frames, numbered from 0 in the order in which the link sends them.
    Chosen(Vec<u64>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BurstLength {
    Fixed(u32),
    /// This mean, geometrically distributed, at least one.
    Mean(f64),
}

impl BurstLength {
    fn mean(self) -> f64 {
        match self {
            Self::Fixed(frames) => f64::from(frames.max(1)),
            Self::Mean(frames) => frames.max(1.0),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delay {
    pub(crate) chance: Chance,
    /// The maximum; delays are uniform up to it. For about n frames to overtake, use n times
    /// [`LinkConfig::transmit_time`].
    pub(crate) most: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Corruption {
    /// Chance that a frame is corrupted.
    pub(crate) chance: Chance,
    /// Maximum of inverted bits in a frame; their number is uniform from 1 to this.
    pub(crate) bits_most: u32,
}

impl LinkConfig {
    /// Returns the serialization time of `bytes`, rounded up to whole nanoseconds.
    pub(crate) fn transmit_time(&self, bytes: usize) -> Duration {
        self.transmit_time_after(bytes, 0).0
    }

    /// Returns the same behind a frame whose time was rounded up by so much, in nanoseconds times the rate, and by how
    /// much this one is.
    pub(crate) fn transmit_time_after(&self, bytes: usize, rounded: u128) -> (Duration, u128) {
        let Some(rate_bps) = self.rate_bps else { return (Duration::ZERO, 0) };
        let rate_bps = u128::from(rate_bps.max(1));
        let bit_ns = (bytes as u128 * 8 * 1_000_000_000).saturating_sub(rounded);
        let ns = bit_ns.div_ceil(rate_bps);
        (Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)), ns * rate_bps - bit_ns)
    }
}

#[derive(Debug)]
pub(crate) struct Losses {
    loss: Loss,
    /// Frames decided so far.
    frames: u64,
    /// Frames that the current burst of fixed length still takes.
    left: u32,
    in_burst: bool,
}

impl Losses {
    pub(crate) fn new(mut loss: Loss) -> Self {
        if let Loss::Chosen(frames) = &mut loss {
            frames.sort_unstable();
        }
        Self { loss, frames: 0, left: 0, in_burst: false }
    }

    /// Returns whether the next frame is lost.
    pub(crate) fn next(&mut self, random: &mut Random) -> bool {
        let frame = self.frames;
        self.frames += 1;
        match &self.loss {
            Loss::None => false,
            Loss::Random(chance) => random.happens(*chance),
            Loss::Chosen(frames) => frames.binary_search(&frame).is_ok(),
            Loss::Bursts { fraction, length } => {
                let (fraction, length) = (*fraction, *length);
                self.in_burst = if self.in_burst {
                    self.goes_on(length, random) || random.happens(begins(fraction, length))
                } else {
                    random.happens(begins(fraction, length))
                };
                self.in_burst && self.begin_or_count(length)
            }
        }
    }

    /// Returns whether the current burst also takes this frame.
    fn goes_on(&mut self, length: BurstLength, random: &mut Random) -> bool {
        match length {
            BurstLength::Fixed(_) => self.left > 0,
            BurstLength::Mean(frames) => random.happens(Chance::of(1.0 - 1.0 / frames.max(1.0))),
        }
    }

    fn begin_or_count(&mut self, length: BurstLength) -> bool {
        if let BurstLength::Fixed(frames) = length {
            self.left = match self.left {
                0 => frames.max(1) - 1,
                left => left - 1,
            };
        }
        true
    }
}

/// Returns the chance q that a burst begins at a frame outside of one, so that `fraction` is lost
/// overall.
///
/// Between bursts of mean length L there are (1-q)/q frames, so fraction = L / (L + (1-q)/q).
fn begins(fraction: f64, length: BurstLength) -> Chance {
    Chance::of(fraction / (fraction + length.mean() * (1.0 - fraction)))
}
