//! Numbers for people.

/// `1234567` as `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    indicatif::HumanCount(n).to_string()
}

/// Counts things in words: `no note`, `1 note`, `2 notes`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    match n {
        0 => format!("no {what}"),
        1 => format!("1 {what}"),
        n => format!("{} {what}s", count(n)),
    }
}

/// Bytes with a decimal unit: `276 MB`.
pub(crate) fn bytes(n: f64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = n;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value, unit == 0), UNITS[unit])
}

/// Microseconds as `410 µs`, `1.25 ms` or `2.40 s`; a dash where there are none.
pub(crate) fn latency(us: Option<f64>) -> String {
    let Some(us) = us else { return "-".to_owned() };
    let (value, unit) = if us < 999.5 {
        (us, "µs")
    } else if us < 999_500.0 {
        (us / 1e3, "ms")
    } else {
        (us / 1e6, "s")
    };
    format!("{} {unit}", three_digits(value, false))
}

fn three_digits(value: f64, whole: bool) -> String {
    let decimals = match value {
        _ if whole || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Rounds to one decimal, for JSON: more would be noise.
pub(crate) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let sizes = [0.0, 64.0, 1500.0, 276_480_000.0, 12_340_000_000.0];
        assert_eq!(sizes.map(bytes), ["0 B", "64 B", "1.50 kB", "276 MB", "12.3 GB"]);
        let times = [Some(4.25), Some(410.4), Some(1250.0), Some(2.4e6), None];
        assert_eq!(times.map(latency), ["4.25 µs", "410 µs", "1.25 ms", "2.40 s", "-"]);
        assert_eq!(tenths(12.345), 12.3);
    }
}
