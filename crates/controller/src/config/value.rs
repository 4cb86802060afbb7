//! Values with units.

/// Less than this holds no two packets of two sources.
const QUEUE_BYTES_MIN: u64 = 16 << 10;

/// Reads a rate: `20Gbit`, `500Mbit`, `1.5Gbit/s`.
///
/// # Errors
/// What a rate looks like.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let units = [("Tbit", 12), ("Gbit", 9), ("Mbit", 6), ("kbit", 3), ("bit", 0)];
    let bare = text.strip_suffix("/s").unwrap_or(text);
    let rate_bps = scaled(bare, &units);
    rate_bps
        .filter(|rate_bps| *rate_bps > 0)
        .ok_or_else(|| "write a rate such as 20Gbit".to_owned())
}

/// Reads a time: `200ms`, `50us`, `1s`.
pub(super) fn parse_time(text: &str) -> Result<u64, String> {
    let units = [("ms", 6), ("us", 3), ("ns", 0), ("s", 9)];
    let time_ns = scaled(text, &units).filter(|time_ns| *time_ns > 0);
    time_ns.ok_or_else(|| "write a time such as 200ms".to_owned())
}

/// Reads a size: `1MiB`, `64KiB`.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("MiB", 20), ("KiB", 10)];
    let of = |(unit, shift): &(&str, u32)| {
        let number = text.strip_suffix(unit)?.trim().parse::<u64>().ok()?;
        number.checked_mul(1 << shift)
    };
    units.iter().find_map(of).ok_or_else(|| "write a size such as 1MiB".to_owned())
}

/// Reads what waits before a link at most: bytes.
///
/// # Errors
/// What to write instead.
pub fn parse_queue(text: &str) -> Result<u64, String> {
    parse_bytes(text).and_then(|bytes| match bytes {
        QUEUE_BYTES_MIN.. => Ok(bytes),
        _ => Err("at least 16KiB: packets of two sources wait there".to_owned()),
    })
}

/// Returns a number with at most three decimals times a power of ten.
fn scaled(text: &str, units: &[(&str, u32)]) -> Option<u64> {
    let (number, power) =
        units.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?.trim(), *power)))?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let scale = 10_u64.checked_pow(power)?;
    let part_scale = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    let part = if decimals.is_empty() { 0 } else { decimals.parse::<u64>().ok()? };
    let part = part.checked_mul(scale)? / part_scale;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_times_and_sizes_have_units() {
        let good = [
            ("20Gbit", 20_000_000_000),
            ("500 Mbit/s", 500_000_000),
            ("1.5Gbit", 1_500_000_000),
            ("1bit", 1),
        ];
        for (text, value) in good {
            assert_eq!(parse_rate(text), Ok(value), "{text}");
        }
        for text in
            ["", "20", "0Gbit", "-1Gbit", "1e9bit", "99999999999Tbit", "Gbit", "1.2345Gbit", "20GB"]
        {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        let times = ["200ms", "50us", "1s", "0.5ms"].map(|text| parse_time(text).unwrap());
        assert_eq!(times, [200_000_000, 50_000, 1_000_000_000, 500_000]);
        assert!(parse_time("5m").is_err() && parse_time("0s").is_err());
        assert_eq!(parse_bytes("1MiB"), Ok(1 << 20));
        assert_eq!(parse_queue("16KiB"), Ok(16 << 10));
        assert!(parse_queue("15KiB").is_err() && parse_queue("1").is_err());
        assert!(parse_bytes("1MB").is_err() && parse_bytes("18446744073709551615KiB").is_err());
    }
}
