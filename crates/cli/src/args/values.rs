//! Values of options that need more than a number.
use catchment::format::FrameRate;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    /// As fast as the collector takes them.
    Max,
    /// As the input says.
    Native,
    /// This many a second.
    Fps(FrameRate),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Native => f.write_str("native"),
            Self::Fps(rate) => rate.fmt(f),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            "native" => Ok(Self::Native),
            number => {
                number.parse().map(Rate::Fps).map_err(|error: catchment::format::RateError| {
                    format!("{error}, or `max`, or `native`")
                })
            }
        }
    }
}

/// Seconds, possibly with a fraction, at most a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const MOST_S: f64 = 365.0 * 86_400.0;
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    match number {
        Ok(value) if (0.0..=MOST_S).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err("not a number of seconds from 0 to 31536000; write for example 10 or 0.5".into()),
    }
}

/// The same, above 0.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be above 0 seconds; write for example 10".into()),
        time => Ok(time),
    }
}

/// A number from 1 to 65,536.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "not a number from 1 to 65536".into())
}

/// Bytes, as a number or with a unit: `256MiB`, `1GB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
    let (name, factor) = unit.copied().unwrap_or(("", 1));
    let number = text[..text.len() - name.len()].trim().parse::<u64>();
    number
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "not a size above 0; write for example 256MiB or 1GB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_wrong_ones_say_what_to_write() {
        assert_eq!(bytes("256MiB"), Ok(256 << 20));
        assert_eq!(bytes("1GB"), Ok(1_000_000_000));
        assert_eq!(bytes("4096"), Ok(4096));
        for wrong in ["", "0", "-1", "1XB", "99999999999GiB"] {
            assert!(bytes(wrong).unwrap_err().contains("256MiB"), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "-1", "NaN", "inf", "1h", "1e300"] {
            assert!(seconds(wrong).unwrap_err().contains("0.5"), "{wrong}");
        }
        assert!(some_seconds("0").unwrap_err().contains("above 0"));
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert!("fast".parse::<Rate>().unwrap_err().contains("`max`"));
    }
}
