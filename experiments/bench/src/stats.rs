//! Medians, percentiles, and how sure a median is.
pub(crate) use catchment_perf::stats::{of_sorted, percentile};
use catchment_sim::Random;
use serde::Serialize;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1000;
/// The same values give the same interval.
const BOOTSTRAP_SEED: u64 = 0x0b00_75e7;

/// The mean of the values from the first to the third quartile. 0 if there are none.
pub(crate) fn middle_of_sorted(sorted: &[f64]) -> f64 {
    let middle = &sorted[sorted.len() / 4..sorted.len() - sorted.len() / 4];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

/// A time in nanoseconds, rounded to a tenth.
pub(crate) fn tenths(ns: f64) -> f64 {
    decimals(ns, 1)
}

/// Rounded: more digits would only say what chance there was.
pub(crate) fn decimals(value: f64, count: i32) -> f64 {
    let scale = 10f64.powi(count);
    (value * scale).round() / scale
}

/// A median with the range in which most values lie.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) p5: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        Self {
            p5: percentile(values, 0.05),
            p50: percentile(values, 0.50),
            p95: percentile(values, 0.95),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    pub(crate) median: f64,
    /// Lower end of the 95 % interval of the median, by bootstrap.
    pub(crate) ci_low: f64,
    pub(crate) ci_high: f64,
    pub(crate) p5: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Summary {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (ci_low, ci_high) = median_interval(&sorted);
        Self {
            samples: sorted.len(),
            median: of_sorted(&sorted, 0.50),
            ci_low,
            ci_high,
            p5: of_sorted(&sorted, 0.05),
            p95: of_sorted(&sorted, 0.95),
            p99: of_sorted(&sorted, 0.99),
            max: sorted.last().copied().unwrap_or(0.0),
            mean: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
        }
    }
}

/// Of values that were not measured in turn, so that no one belongs to another: the ratio of the
/// medians, and an interval from the ends of both, which is wider than 95 %.
pub(crate) fn ratio_of_medians(top: &Summary, below: &Summary) -> Summary {
    let median = top.median / below.median;
    Summary {
        samples: top.samples.min(below.samples),
        median,
        ci_low: top.ci_low / below.ci_high,
        ci_high: top.ci_high / below.ci_low,
        ..Summary::default()
    }
}

/// Of ratios of values that were measured one after the other: those with the same place. Where one
/// side has more, its last ones are left out.
pub(crate) fn ratio(top: &[f64], below: &[f64]) -> Summary {
    let ratios: Vec<f64> = top.iter().zip(below).map(|(t, b)| t / b).collect();
    Summary::of(&ratios)
}

fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let mut random = Random::new(BOOTSTRAP_SEED);
    let mut picked = vec![0; sorted.len()];
    let medians = (0..RESAMPLES).map(|_| {
        picked.fill_with(|| random.index(sorted.len()));
        let middle = sorted.len().saturating_sub(1).div_ceil(2);
        match picked.get(middle) {
            Some(_) => sorted[*picked.select_nth_unstable(middle).1],
            None => 0.0,
        }
    });
    let mut medians: Vec<f64> = medians.collect();
    medians.sort_by(f64::total_cmp);
    (of_sorted(&medians, 0.025), of_sorted(&medians, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_median_and_shrinks_with_more_values() {
        let width = |count: u64| {
            let mut random = Random::new(7);
            let values: Vec<f64> = (0..count).map(|_| random.below(1000) as f64).collect();
            let summary = Summary::of(&values);
            assert!(summary.ci_low <= summary.median && summary.median <= summary.ci_high);
            assert!((summary.median - 500.0).abs() < summary.ci_high - summary.ci_low);
            summary.ci_high - summary.ci_low
        };
        assert!(width(2000) < width(100) / 2.0);
        assert_eq!(Summary::of(&[3.0]).ci_high, 3.0);
        assert_eq!(Summary::of(&[]), Summary::default());
    }

    #[test]
    fn ratios_are_of_neighbours() {
        // A machine that becomes ten times as fast half way.
        let (top, below) = ([2.0, 2.0, 20.0, 20.0], [1.0, 1.0, 10.0, 10.0, 9.0]);
        let ratio = ratio(&top, &below);
        assert_eq!((ratio.median, ratio.ci_low, ratio.ci_high), (2.0, 2.0, 2.0));
        assert_eq!(ratio.samples, 4);
    }

    #[test]
    fn percentiles_of_a_row_of_numbers_are_those_numbers() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let expected = Spread { p5: 5.0, p50: 50.0, p95: 95.0 };
        assert_eq!(Spread::of(&values), expected);
        assert_eq!(percentile(&values, 0.99), 99.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(middle_of_sorted(&[0.0, 2.0, 3.0, 4.0, 100.0]), 3.0);
        assert_eq!(middle_of_sorted(&[]), 0.0);
    }
}
