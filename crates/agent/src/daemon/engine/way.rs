//! How long the way to each host is, and what of the line is under way meanwhile: the window is no larger than that needs,
//! as whoever comes waits behind it, and no smaller, or the line would stand still until completions come.
use super::Engine;
use crate::policy::{Mode, Policy, WINDOW_CHUNKS};
use crate::scheduler::{Chunk, ConnectionId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Of the last of this many, the least counts: others have waited for a processor.
const SAMPLES: usize = 16;
/// Once there are so many, one in this many is taken: to ask for the time costs a thirtieth of a request.
const ONE_IN: u32 = 64;
/// A window, at most. Who answers late makes this host wait for itself only.
const MOST_BYTES: u64 = 64 << 20;

/// See the module. Only where the policy gives a line, and no window.
#[derive(Debug)]
pub(super) struct Way {
    line_bytes_per_s: f64,
    chunk_bytes: u64,
    /// By host; none: the device of this one.
    samples: BTreeMap<Option<u32>, Samples>,
    /// The chunk that was given to the device when it had nothing.
    lone: Option<Lone>,
    passed_over: u32,
    window_bytes: u64,
}

#[derive(Debug)]
struct Lone {
    connection: ConnectionId,
    host: Option<u32>,
    bytes: u64,
    given: Instant,
    /// What the device was done with then.
    done: u64,
}

/// How long chunks took that were alone, but for their own time on the line.
#[derive(Debug, Default)]
struct Samples {
    all: [Duration; SAMPLES],
    count: usize,
}

impl Samples {
    fn add(&mut self, sample: Duration) {
        self.all[self.count % SAMPLES] = sample;
        self.count += 1;
    }

    fn least(&self) -> Duration {
        let known = &self.all[..self.count.min(SAMPLES)];
        known.iter().min().copied().unwrap_or_default()
    }
}

impl Way {
    pub(super) fn new(policy: &Policy) -> Option<Self> {
        let has_order = matches!(policy.mode, Mode::Drum | Mode::Justitia);
        let is_open = has_order && policy.window_bytes.is_none();
        let line = policy.between.send_bytes_per_s.filter(|_| is_open)?;
        let limits = policy.limits();
        Some(Self {
            line_bytes_per_s: line as f64,
            chunk_bytes: limits.chunk_bytes.into(),
            samples: BTreeMap::new(),
            lone: None,
            passed_over: 0,
            window_bytes: limits.window_bytes,
        })
    }

    /// Takes the time that a lone chunk took; returns the window, if it is another one now.
    fn sample(&mut self, host: Option<u32>, bytes: u64, took: Duration) -> Option<u64> {
        // For ever, on a line that carries nothing.
        let own = Duration::try_from_secs_f64(bytes as f64 / self.line_bytes_per_s);
        let rest = took.saturating_sub(own.unwrap_or(Duration::MAX));
        self.samples.entry(host).or_default().add(rest);
        let longest = self.samples.values().map(Samples::least).max().unwrap_or_default();
        let under_way = (longest.as_secs_f64() * self.line_bytes_per_s) as u64;
        // The chunk that fills the line while the completion of the one before comes.
        let least = WINDOW_CHUNKS * self.chunk_bytes;
        let window = (under_way + self.chunk_bytes).clamp(least, MOST_BYTES);
        // Else it would change with each sample.
        let is_other = window.abs_diff(self.window_bytes) > self.window_bytes / 8;
        is_other.then(|| {
            self.window_bytes = window;
            window
        })
    }
}

impl Engine {
    /// Notes that a chunk is given to the device, which had `in_flight` bytes before that.
    #[inline]
    pub(super) fn note_given(&mut self, chunk: &Chunk, in_flight: u64) {
        let Some(way) = &mut self.way else { return };
        if let Some(lone) = &way.lone {
            if lone.connection != chunk.connection {
                // It may be done first.
                way.lone = None;
            }
            return;
        }
        if in_flight > 0 {
            return;
        }
        let connection = self.connections[chunk.connection.index()].as_ref();
        let host = connection.and_then(|one| one.shared.as_ref()).map(|shared| shared.host);
        let has_enough = way.samples.get(&host).is_some_and(|known| known.count >= SAMPLES);
        way.passed_over += 1;
        if has_enough && way.passed_over < ONE_IN {
            return;
        }
        way.passed_over = 0;
        way.lone = Some(Lone {
            connection: chunk.connection,
            host,
            bytes: chunk.bytes,
            given: Instant::now(),
            done: self.scheduler.done_bytes(),
        });
    }

    /// Looks whether the lone chunk is done.
    #[inline]
    pub(super) fn look_at_way(&mut self) {
        let Some(way) = &mut self.way else { return };
        let done = self.scheduler.done_bytes();
        let Some(Lone { host, bytes, given, .. }) = way.lone.take_if(|lone| lone.done != done)
        else {
            return;
        };
        if let Some(window) = way.sample(host, bytes, given.elapsed()) {
            self.scheduler.set_window(window);
        }
    }

    /// A connection or a host may be gone: what is counted as done may not be.
    pub(super) fn forget_lone(&mut self) {
        if let Some(way) = &mut self.way {
            way.lone = None;
        }
    }

    /// Nothing goes to a host any more.
    pub(super) fn forget_way(&mut self, host: u32) {
        if let Some(way) = &mut self.way {
            way.samples.remove(&Some(host));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(line: u64) -> Way {
        let text = format!(r#"{{"applications": [], "between": {{"send_bytes_per_s": {line}}}}}"#);
        Way::new(&Policy::parse(&text).unwrap()).unwrap()
    }

    /// A window is what the line carries while a completion comes from the farthest host, and a chunk; the least of the last
    /// samples of each counts.
    #[test]
    fn the_window_follows_the_way_to_the_farthest_host() {
        let us = Duration::from_micros;
        let mut way = way(125_000_000);
        assert_eq!(
            (way.chunk_bytes, way.window_bytes),
            (8192, 65_536),
            "as long as nothing is known"
        );
        // 8,192 bytes take 65.5 us of the line; 500 us more are 62,500 bytes, and a chunk.
        assert_eq!(way.sample(Some(1), 8192, us(566)), None, "as much as there is");
        assert_eq!(way.sample(Some(1), 64, us(101)), Some(12_561 + 8192));
        assert_eq!(way.sample(Some(2), 64, us(31)), None, "the farthest counts");
        assert_eq!(way.sample(Some(2), 64, us(9)), None);
        let far = way.sample(Some(3), 64, us(5000));
        assert_eq!(far, Some(624_936 + 8192), "a long way has what is under way on it");
        for _ in 0..SAMPLES {
            way.sample(Some(1), 64, us(10));
        }
        way.samples.remove(&Some(3));
        assert_eq!(way.sample(Some(1), 64, us(10)), Some(2 * 8192), "two chunks at least");
        assert_eq!(way.sample(Some(4), 64, Duration::from_secs(60)), Some(MOST_BYTES));
    }

    #[test]
    fn whatever_the_line_is_there_is_a_window() {
        for line in [0, 1, u64::MAX] {
            let mut way = way(line);
            let window = way.sample(None, 4096, Duration::from_micros(40));
            assert!(
                window.is_none_or(|bytes| (8192..=MOST_BYTES).contains(&bytes)),
                "{line}: {window:?}"
            );
        }
    }

    #[test]
    fn a_policy_that_gives_a_window_or_no_line_has_that() {
        for text in [
            r#"{"applications": []}"#,
            r#"{"applications": [], "window_bytes": 99999, "between": {"send_bytes_per_s": 5}}"#,
        ] {
            assert!(Way::new(&Policy::parse(text).unwrap()).is_none(), "{text}");
        }
    }
}
