//! Values of options that need more than a number.
use catchment::format::FrameRate;
use catchment::observe::cpu;
use catchment::session::io::Address;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
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

/// HOST:PORT.
pub(crate) fn host_and_port(text: &str) -> Result<Address, String> {
    match text.parse::<Address>() {
        Ok(address @ Address::Tcp { .. }) => Ok(address),
        Ok(Address::Unix(_)) => Err("write HOST:PORT: a controller grants by UDP".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What is given to a device: `DEVICE=VALUE`.
pub(crate) fn assigned(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((device, value)) if !device.is_empty() && !value.is_empty() => {
            Ok((device.to_owned(), value.to_owned()))
        }
        _ => Err("write DEVICE=VALUE, such as cam0=urgent".to_owned()),
    }
}

/// A time that is given to a device, in ms or s: `DEVICE=100ms`.
pub(crate) fn assigned_time(text: &str) -> Result<(String, Duration), String> {
    let wrong = || "write DEVICE=TIME, such as cam0=100ms or cam0=1s".to_owned();
    let (device, time) = assigned(text).map_err(|_| wrong())?;
    let number = |unit| time.strip_suffix(unit).and_then(|number| number.parse::<u32>().ok());
    let time = match (number("ms"), number("s")) {
        (Some(ms), _) => Duration::from_millis(ms.into()),
        (None, Some(s)) => Duration::from_secs(s.into()),
        (None, None) => return Err(wrong()),
    };
    if time.is_zero() { Err(wrong()) } else { Ok((device, time)) }
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

/// A number above 0.
pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    let is_above = number > 0.0 && number.is_finite();
    is_above.then_some(number).ok_or_else(|| format!("{text} is not above 0"))
}

/// A number from 1 to 65,536.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "not a number from 1 to 65536".into())
}

/// Bytes, as a number or with a unit: `256MiB`, `1GB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("TiB", 1 << 40),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
    ];
    let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
    let (name, factor) = unit.copied().unwrap_or(("", 1));
    let digits = text[..text.len() - name.len()].trim();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
        return Err("not a whole number with a unit (B, kB, KiB and so on up to TB, TiB); \
                    write for example 256MiB or 1GB"
            .into());
    }
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(0) => Err("must be above 0; write for example 256MiB or 1GB".into()),
        Some(bytes) => Ok(bytes),
        None => Err("more bytes than 64 bits count; write for example 256MiB or 1GB".into()),
    }
}

/// The same, for memory of which a source has a ring: not less than one needs, nor more than there is.
pub(crate) fn ring_bytes(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 4 << 10;
    let bytes = bytes(text)?;
    let memory = cpu::host_memory_bytes().unwrap_or(u64::MAX);
    if bytes < LEAST {
        return Err("less than the smallest ring has, 4KiB; write for example 256MiB".into());
    }
    // The default holds on small hosts too.
    if bytes > memory.max(1 << 30) {
        let memory = memory >> 20;
        return Err(format!(
            "more than the memory of this host, {memory}MiB; write for example 1GiB"
        ));
    }
    Ok(bytes)
}

/// An IP address with a port.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let remedy = "write for example 127.0.0.1:9117 or [::1]:9117";
    if text.contains("://") {
        return Err(format!("a URL, where an address is wanted; {remedy}"));
    }
    text.parse().map_err(|_| {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_bare = text.parse::<IpAddr>().is_ok();
        let reason = if is_bare || !text.contains(':') {
            "it has no port"
        } else if port.parse::<u16>().is_err() {
            "its port is not a number from 0 to 65535"
        } else if bare.parse::<IpAddr>().is_ok() {
            "an IPv6 address with a port stands in brackets"
        } else {
            "its host is a name, and the page listens on an IP address"
        };
        format!("{reason}; {remedy}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_wrong_ones_say_what_to_write() {
        assert_eq!(bytes("256MiB"), Ok(256 << 20));
        assert_eq!(bytes("1GB"), Ok(1_000_000_000));
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("9999TiB"), Ok(9999 << 40));
        for (wrong, reason) in [
            ("", "whole number"),
            ("0", "above 0"),
            ("-1", "whole number"),
            ("1XB", "unit"),
            ("99999999999GiB", "64 bits"),
        ] {
            let error = bytes(wrong).unwrap_err();
            assert!(error.contains(reason) && error.contains("256MiB"), "{wrong}: {error}");
        }
        for (wrong, reason) in [
            ("localhost:1", "is a name"),
            ("http://127.0.0.1:1", "a URL"),
            ("127.0.0.1", "no port"),
            ("::1", "no port"),
            ("127.0.0.1:70000", "its port"),
            ("::1]:80", "brackets"),
        ] {
            let error = socket_address(wrong).unwrap_err();
            assert!(error.contains(reason) && error.contains("[::1]:9117"), "{wrong}: {error}");
        }
        assert!(ring_bytes("3").unwrap_err().contains("smallest ring"));
        assert!(ring_bytes("9999TiB").unwrap_err().contains("memory of this host"));
        assert_eq!(ring_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "-1", "NaN", "inf", "1h", "1e300"] {
            assert!(seconds(wrong).unwrap_err().contains("0.5"), "{wrong}");
        }
        assert!(some_seconds("0").unwrap_err().contains("above 0"));
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert!("fast".parse::<Rate>().unwrap_err().contains("`max`"));
    }
}
