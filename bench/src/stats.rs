//! Medians and percentiles.

/// The value below which `part` of the values lie.
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    of_sorted(&sorted, part)
}

/// As [`percentile`], for values in rising order. 0 if there are none.
pub(crate) fn of_sorted(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * part).round() as usize)
        .copied()
        .unwrap_or(0.0)
}

/// The mean of the values from the first to the third quartile. 0 if there are none.
pub(crate) fn middle_of_sorted(sorted: &[f64]) -> f64 {
    let middle = &sorted[sorted.len() / 4..sorted.len() - sorted.len() / 4];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

/// A median with the range in which most values lie.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spread {
    /// 5th percentile.
    pub(crate) p5: f64,
    /// Median.
    pub(crate) p50: f64,
    /// 95th percentile.
    pub(crate) p95: f64,
}

impl Spread {
    /// Of these values.
    pub(crate) fn of(values: &[f64]) -> Spread {
        Spread {
            p5: percentile(values, 0.05),
            p50: percentile(values, 0.50),
            p95: percentile(values, 0.95),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_row_of_numbers_are_those_numbers() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let expected = Spread {
            p5: 5.0,
            p50: 50.0,
            p95: 95.0,
        };
        assert_eq!(Spread::of(&values), expected);
        assert_eq!(percentile(&values, 0.99), 99.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(middle_of_sorted(&[0.0, 2.0, 3.0, 4.0, 100.0]), 3.0);
        assert_eq!(middle_of_sorted(&[]), 0.0);
    }
}
