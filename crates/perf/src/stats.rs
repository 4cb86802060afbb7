//! Order statistics.

/// Returns the value below which `part` (0 to 1) of the values lie, for values in rising order; 0 if
/// there are none.
pub fn of_sorted(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// Returns the same for values in any order.
pub fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    of_sorted(&sorted, part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_row_of_numbers_are_those_numbers() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        for part in [0.0, 0.05, 0.5, 0.99, 1.0] {
            assert_eq!(percentile(&values, part), part * 100.0);
        }
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
