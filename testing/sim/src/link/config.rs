//! What a link is like.
use crate::{Chance, Random};
use std::time::Duration;

/// A link in one direction. The default is perfect: infinitely fast, no delay, endless queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkConfig {
    /// Bits of IP packets a second; nothing means infinitely fast.
    pub(crate) rate_bps: Option<u64>,
    /// From the last bit sent to the last bit received.
    pub(crate) delay: Duration,
    /// The most bytes that wait or are being sent, the frame on its way out counted whole.
    /// A frame that does not fit is dropped. Nothing means no limit.
    pub(crate) queue_bytes: Option<usize>,
    /// A frame that finds more bytes than these in the queue is marked: congestion experienced. Only
    /// where its sender understands marks. Nothing means none is.
    pub(crate) mark_above: Option<usize>,
    /// The longest IP packet; a longer one is dropped, nothing is fragmented. Nothing: no limit.
    pub(crate) mtu: Option<usize>,
    /// Frames that get lost after they took their time on the wire.
    pub(crate) loss: Loss,
    /// Frames that are held back, so that later ones overtake them.
    pub(crate) reorder: Delay,
    /// Frames that arrive a second time, that much later.
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
        /// The part of all frames that is lost over a long time, from 0 to 1.
        fraction: f64,
        /// How long bursts are.
        length: BurstLength,
    },
    /// Exactly these: the numbers of frames as the link sends them, the first is 0.
    Chosen(Vec<u64>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BurstLength {
    Fixed(u32),
    /// As many on average, geometrically distributed, at least one.
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
    /// The longest; each is drawn evenly up to it. To let about n frames overtake, take n times
    /// [`LinkConfig::transmit_time`].
    pub(crate) most: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Corruption {
    /// How many frames have any.
    pub(crate) chance: Chance,
    /// The most bits in a frame; each number from 1 up to it is as likely.
    pub(crate) bits_most: u32,
}

impl LinkConfig {
    /// How long the link takes to send `bytes`, rounded up to whole nanoseconds.
    pub(crate) fn transmit_time(&self, bytes: usize) -> Duration {
        let Some(rate_bps) = self.rate_bps else { return Duration::ZERO };
        let bit_ns = bytes as u128 * 8 * 1_000_000_000;
        let ns = bit_ns.div_ceil(u128::from(rate_bps.max(1)));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
pub(crate) struct Losses {
    loss: Loss,
    /// Frames decided so far.
    frames: u64,
    /// Frames that the current burst still takes, where its length is fixed.
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

    /// Whether the next frame is lost.
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

    /// Whether the burst that took the frame before takes this one too.
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

/// The chance that a burst begins at a frame that is in none, so that `fraction` is lost overall.
///
/// Between two bursts of mean length L lie (1-q)/q frames, so fraction = L / (L + (1-q)/q).
fn begins(fraction: f64, length: BurstLength) -> Chance {
    Chance::of(fraction / (fraction + length.mean() * (1.0 - fraction)))
}
