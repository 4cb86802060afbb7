//! What a side spends: time and processor time.
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Returns the processor time of all threads of this process so far, user and kernel.
pub fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Measures a span of this process.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    cpu: Duration,
    start: Instant,
}

impl Meter {
    /// Starts now.
    pub fn start() -> Self {
        Self { cpu: process_cpu_time(), start: Instant::now() }
    }

    /// Returns the time since the start, and the processor time of this process in it.
    pub fn stop(&self) -> (Duration, Duration) {
        (self.start.elapsed(), process_cpu_time().saturating_sub(self.cpu))
    }
}

/// What one side used from the beginning to the end of what was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of all threads of the process.
    pub cpu_s: f64,
    /// What [`crate::LocalDevice::counters`] counted, in its order.
    pub counters: Vec<u64>,
}

impl Usage {
    /// Reads the meters of this process and its device.
    pub(crate) fn now(counters: &dyn Fn() -> Vec<u64>) -> Self {
        Self { cpu_s: process_cpu_time().as_secs_f64(), counters: counters() }
    }

    /// Returns what was used since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.cpu_s -= before.cpu_s;
        for (now, before) in self.counters.iter_mut().zip(&before.counters) {
            *now = now.saturating_sub(*before);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_difference_and_processor_time_only_grows() {
        let before = Usage::now(&|| vec![3, 9]);
        let used = Usage::now(&|| vec![5, 9]).since(&before);
        assert_eq!(used.counters, [2, 0]);
        assert!(used.cpu_s >= 0.0);
        let (time, cpu) = Meter::start().stop();
        assert!(cpu <= process_cpu_time() && time >= Duration::ZERO);
    }
}
