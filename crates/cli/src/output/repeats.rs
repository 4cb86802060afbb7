//! A line that says again what another one said is counted, not written.
//!
//! Two lines say the same if they differ in numbers only, but for the device that they are about. The
//! first is written at once, the others as one line with their number, after a pause that doubles while
//! they go on.
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first pause, and the longest.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Causes that are told apart.
const CAUSES_MAX: usize = 1024;

/// The lines of a process, by cause.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    causes: Mutex<HashMap<String, Cause>>,
    counted: Condvar,
}

#[derive(Debug)]
struct Cause {
    written: Instant,
    pause: Duration,
    /// Lines since then, and the last of them.
    more: u64,
    line: String,
}

impl Repeats {
    fn causes(&self) -> MutexGuard<'_, HashMap<String, Cause>> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line. Returns whether it is to be written now.
    pub(super) fn take(&self, line: &str, now: Instant) -> bool {
        let mut causes = self.causes();
        let mut key = cause_of(line);
        if causes.len() >= CAUSES_MAX && !causes.contains_key(&key) {
            causes.retain(|_, cause| cause.more > 0 || now < cause.written + cause.pause);
            if causes.len() >= CAUSES_MAX {
                key = String::new();
            }
        }
        let known = causes.get_mut(&key);
        let Some(cause) = known.filter(|c| c.more > 0 || now < c.written + c.pause) else {
            let cause = Cause { written: now, pause: PAUSE, more: 0, line: String::new() };
            causes.insert(key, cause);
            return true;
        };
        cause.more += 1;
        line.clone_into(&mut cause.line);
        self.counted.notify_one();
        false
    }

    /// Returns the lines that are due.
    fn due(causes: &mut HashMap<String, Cause>, now: Instant) -> Vec<String> {
        let due = causes.values_mut().filter(|c| c.more > 0 && c.written + c.pause <= now);
        let line = |cause: &mut Cause| {
            let s = now.duration_since(cause.written).as_secs();
            let (line, more) = (cause.line.trim_end(), cause.more);
            let times = if more == 1 { "once" } else { "times" };
            let count = if more == 1 { String::new() } else { format!("{more} ") };
            let text = format!("{line} ({count}{times} more in {s} s)\n");
            cause.more = 0;
            cause.written = now;
            cause.pause = (2 * cause.pause).min(PAUSE_MAX);
            text
        };
        due.map(line).collect()
    }

    /// Returns what was counted and not written.
    pub(super) fn rest(&self, now: Instant) -> Vec<String> {
        let mut causes = self.causes();
        causes.values_mut().for_each(|cause| cause.pause = Duration::ZERO);
        Self::due(&mut causes, now)
    }

    /// Waits until lines are due, and returns them. Sleeps while nothing is counted.
    pub(super) fn wait(&self) -> Vec<String> {
        let mut causes = self.causes();
        loop {
            let due = Self::due(&mut causes, Instant::now());
            if !due.is_empty() {
                return due;
            }
            let waiting = causes.values().filter(|cause| cause.more > 0);
            let first = waiting.map(|cause| cause.written + cause.pause).min();
            causes = match first {
                None => self.counted.wait(causes).unwrap_or_else(PoisonError::into_inner),
                Some(first) => {
                    let time = first.saturating_duration_since(Instant::now());
                    let woken = self.counted.wait_timeout(causes, time);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// What lines of one cause have in common: all but numbers, and the device with them.
fn cause_of(line: &str) -> String {
    let mut cause = String::with_capacity(line.len());
    for word in line.split(' ') {
        if word.starts_with("device=") {
            cause.push_str(word);
        } else {
            let number = |c: char| c.is_ascii_digit();
            let mut texts = word.split(number).filter(|text| !text.is_empty());
            cause.extend(texts.next());
            texts.for_each(|text| cause.extend(["#", text]));
        }
        cause.push(' ');
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_one_line_with_a_count() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let line = |free: u64| format!("WARN the disk is full device=cam0 free={free}\n");
        assert!(repeats.take(&line(1), now));
        for free in 2..100 {
            assert!(!repeats.take(&line(free), now));
        }
        assert!(repeats.take("WARN the disk is full device=cam1 free=1\n", now), "another device");
        assert!(Repeats::due(&mut repeats.causes(), now).is_empty());
        let due = Repeats::due(&mut repeats.causes(), now + PAUSE);
        assert_eq!(due, ["WARN the disk is full device=cam0 free=99 (98 times more in 10 s)\n"]);
        // It goes on: the next line comes after twice the time.
        assert!(!repeats.take(&line(1), now + PAUSE));
        assert!(Repeats::due(&mut repeats.causes(), now + 2 * PAUSE).is_empty());
        assert_eq!(repeats.rest(now + 2 * PAUSE).len(), 1);
    }

    #[test]
    fn a_cause_that_comes_back_after_a_while_is_written_at_once() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let line = "WARN 127.0.0.1:4711 is no source\n";
        assert!(repeats.take(line, now));
        assert!(!repeats.take("WARN 127.0.0.1:4712 is no source\n", now));
        assert_eq!(repeats.rest(now).len(), 1);
        assert!(repeats.take(line, now + 3 * PAUSE));
    }

    #[test]
    fn endless_causes_take_no_endless_memory() {
        let repeats = Repeats::default();
        let now = Instant::now();
        for n in 0..5 * CAUSES_MAX {
            let letters: String = format!("{n}").bytes().map(|b| char::from(b + 49)).collect();
            repeats.take(&letters, now);
        }
        assert!(repeats.causes().len() <= CAUSES_MAX + 1);
        assert_eq!(repeats.rest(now).len(), 1);
    }
}
