//! Chunks, window and what a request costs, as a policy says them or its line gives them.
use super::{Policy, PolicyError};
use crate::scheduler::Limits;
use std::ops::RangeInclusive;

/// What a request may cost at least, in bytes.
const REQUESTS_BYTES: RangeInclusive<u32> = 64..=1 << 16;
const CHUNKS_BYTES: RangeInclusive<u32> = 1 << 10..=1 << 24;

/// What a chunk has by default, and the line from which on it does: there it takes 65 us. On a slower one a chunk is
/// shorter, or who comes would wait for milliseconds.
const CHUNK_BYTES: u32 = 64 << 10;
const CHUNK_LINE_BYTES_PER_S: f64 = 1e9;
/// The line from which on a window has the bytes of two such chunks while nothing is known of the way: 524 us.
const WINDOW_LINE_BYTES_PER_S: f64 = 250e6;
/// Chunks of slower lines are whole packets of the longest path MTU.
const CHUNK_STEP_BYTES: u32 = 4096;
/// Chunks in a window at least: one is on its way while the completion of the other comes back.
pub(crate) const WINDOW_CHUNKS: u64 = 2;

/// What the shortest request takes of a device, and how much it moves where no line is given: 40 Gbit/s, with the times
/// of the DRUM paper. Shared memory takes 132 ns, at 12.8 GB/s.
const REQUEST_S: f64 = 355e-9;
const DEVICE_BYTES_PER_S: f64 = 5e9;

impl Policy {
    /// Returns what the order of requests is decided by: what the policy says, else what follows from what its device
    /// can send to other hosts, as far as it says that.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let line = self.between.send_bytes_per_s.map_or(DEVICE_BYTES_PER_S, |line| line as f64);
        let chunk_bytes = self.chunk_bytes.unwrap_or(of_line(line, CHUNK_LINE_BYTES_PER_S));
        let window = WINDOW_CHUNKS * u64::from(of_line(line, WINDOW_LINE_BYTES_PER_S));
        let window_bytes = self.window_bytes.unwrap_or(window);
        // A faster device needs less time.
        let in_time = line.min(DEVICE_BYTES_PER_S) * REQUEST_S;
        let request_bytes = self.request_bytes.unwrap_or_else(|| request_bytes(in_time));
        Limits { chunk_bytes, window_bytes, request_bytes }
    }

    pub(super) fn check_limits(&self) -> Result<(), PolicyError> {
        let checks = [
            ("chunk_bytes", self.chunk_bytes, CHUNKS_BYTES),
            ("request_bytes", self.request_bytes, REQUESTS_BYTES),
        ];
        for (what, asked, range) in checks {
            if let Some(asked) = asked.filter(|asked| !range.contains(asked)) {
                let (least, most) = (range.start(), range.end());
                let text = format!("{what} = {asked} is not between {least} and {most}");
                return Err(PolicyError::Value(text));
            }
        }
        Ok(())
    }
}

/// Returns a part of [`CHUNK_BYTES`], as a line is of one that takes a whole one.
fn of_line(line_bytes_per_s: f64, whole_bytes_per_s: f64) -> u32 {
    let bytes = f64::from(CHUNK_BYTES) * (line_bytes_per_s / whole_bytes_per_s).min(1.0);
    (bytes as u32).max(1).next_multiple_of(CHUNK_STEP_BYTES)
}

/// Returns what a request costs that takes as long as so many bytes, as far as a policy may say so.
pub(crate) fn request_bytes(bytes: f64) -> u32 {
    (bytes.round() as u32).clamp(*REQUESTS_BYTES.start(), *REQUESTS_BYTES.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        Policy::parse(&format!(r#"{{"applications": []{text}}}"#)).unwrap().limits()
    }

    /// A chunk of a slow line takes no longer than one of a fast line, and a request costs what it takes of the line.
    #[test]
    fn limits_follow_the_line() {
        let at = |bytes_per_s: u64| {
            let limits = limits(&format!(r#", "between": {{"send_bytes_per_s": {bytes_per_s}}}"#));
            (limits.chunk_bytes, limits.window_bytes, limits.request_bytes)
        };
        assert_eq!(at(12_325_000), (4096, 8192, 64));
        assert_eq!(at(123_250_000), (8192, 65_536, 64));
        assert_eq!(at(5_000_000_000), (65_536, 131_072, 1775));
        assert_eq!(at(1), (4096, 8192, 64));
        assert_eq!(at(u64::MAX), (65_536, 131_072, 1775));
        let unknown = Limits { chunk_bytes: 65_536, window_bytes: 131_072, request_bytes: 1775 };
        assert_eq!(limits(""), unknown);
    }

    #[test]
    fn what_a_policy_says_is_not_changed() {
        let said = r#", "chunk_bytes": 5000, "window_bytes": 77, "request_bytes": 99, "between": {"send_bytes_per_s": 7}"#;
        let expected = Limits { chunk_bytes: 5000, window_bytes: 77, request_bytes: 99 };
        assert_eq!(limits(said), expected);
        assert_eq!(limits(r#", "chunk_bytes": 5000"#).window_bytes, 131_072);
        let justitia = limits(r#", "mode": "justitia", "request_bytes": 99"#);
        assert_eq!(justitia.request_bytes, 99, "a token counts requests too");
    }
}
