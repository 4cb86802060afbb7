//! The server's memory over the run.
use anyhow::{Result, ensure};
use std::fmt;
use std::time::Duration;

/// Growth that is taken for chance: clients and threads that are there at one look and not at
/// another.
pub(super) const CHANCE_MIB: f64 = 1.0;
/// Growth in an hour that is allowed (S3.16).
pub(super) const MIB_AN_HOUR: f64 = 1.0;
/// Looks without which nothing is judged.
const ENOUGH: usize = 40;

#[derive(Debug, Default)]
pub(super) struct Memory {
    looks: Vec<(Duration, u64)>,
}

impl Memory {
    pub(super) fn note(&mut self, at: Duration, resident_kib: u64) {
        self.looks.push((at, resident_kib));
    }

    /// The looks after the first quarter, in which allocators and tables fill: hours and MiB.
    fn settled(&self) -> Vec<(f64, f64)> {
        let looks = self.looks.iter().skip(self.looks.len() / 4);
        looks.map(|(at, kib)| (at.as_secs_f64() / 3600.0, *kib as f64 / 1024.0)).collect()
    }

    /// Slope of the line through them by least squares, in MiB an hour, and the hours.
    fn growth(&self) -> (f64, f64) {
        let looks = self.settled();
        let n = looks.len().max(1) as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| looks.iter().map(of).sum::<f64>() / n;
        let (mean_x, mean_y) = (mean(|look| look.0), mean(|look| look.1));
        let spread: f64 = looks.iter().map(|look| (look.0 - mean_x).powi(2)).sum();
        let both = |look: &(f64, f64)| (look.0 - mean_x) * (look.1 - mean_y);
        let together: f64 = looks.iter().map(both).sum();
        let hours = looks.last().map_or(0.0, |last| last.0) - looks.first().map_or(0.0, |l| l.0);
        let slope = if spread > 0.0 { together / spread } else { 0.0 };
        (slope, hours)
    }

    pub(super) fn demand_flat(&self) -> Result<()> {
        if self.looks.len() < ENOUGH {
            return Ok(());
        }
        let (slope, hours) = self.growth();
        let allowed = CHANCE_MIB.max(MIB_AN_HOUR * hours);
        ensure!(
            slope * hours <= allowed,
            "the server's memory grew by {:.1} MiB in {:.0} minutes ({self})",
            slope * hours,
            hours * 60.0
        );
        Ok(())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tenths = self.looks.chunks(self.looks.len().div_ceil(10).max(1)).map(|looks| {
            let mut kib: Vec<u64> = looks.iter().map(|look| look.1).collect();
            kib.sort_unstable();
            kib[kib.len() / 2] as f64 / 1024.0
        });
        match (tenths.clone().next(), tenths.next_back()) {
            (Some(first), Some(last)) => write!(f, "server {first:.1} MiB, then {last:.1} MiB"),
            _ => write!(f, "the server's memory was not looked at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mib: impl Fn(f64) -> f64) -> Memory {
        let mut memory = Memory::default();
        for minute in 0..60 {
            let kib = mib(f64::from(minute)) * 1024.0;
            memory.note(Duration::from_secs(60 * minute as u64), kib as u64);
        }
        memory
    }

    #[test]
    fn growth_is_told_from_warming_up_and_from_chance() {
        of(|_| 9.0).demand_flat().unwrap();
        of(|minute| if minute < 10.0 { minute } else { 10.0 }).demand_flat().unwrap();
        of(|minute| 9.0 + minute % 3.0).demand_flat().unwrap();
        let error = of(|minute| 9.0 + minute / 20.0).demand_flat().unwrap_err();
        assert!(error.to_string().contains("grew by 2.2 MiB"), "{error}");
        assert_eq!(of(|_| 9.0).to_string(), "server 9.0 MiB, then 9.0 MiB");
    }
}
