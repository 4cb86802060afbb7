//! The least price at which something fits, by bisection: for forms that are only compared with.

/// Calls `used_at` with prices, at last with the least of 0 to `most` at which it returns no more than
/// `capacity`, as near as `steps` halvings come.
pub(crate) fn fit(mut used_at: impl FnMut(f64) -> f64, capacity: f64, most: f64, steps: usize) {
    if used_at(0.0) <= capacity {
        return;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while used_at(high) > capacity && high < most {
        high *= 4.0;
    }
    for _ in 0..steps {
        let middle = 0.5 * (low + high);
        if used_at(middle) > capacity { low = middle } else { high = middle }
    }
    used_at(high);
}
