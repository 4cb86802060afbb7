//! Injected faults: a device that loses, reorders, duplicates or corrupts what it sends, or answers
//! wrongly. They test the other end: ours, or a hardware RNIC's.
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// How long `reorder` holds a packet back: several packets overtake it, but no timeout expires.
const REORDER_HOLD: Duration = Duration::from_micros(200);

/// Faults and their rates. Written as `drop=0.01,reorder=0.02,nak-storm,seed=7`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Faults {
    /// Share of packets that are lost, 0 to 1.
    pub drop: f64,
    /// Share that is held back briefly, so that later ones overtake it.
    pub reorder: f64,
    /// Share that is sent twice.
    pub duplicate: f64,
    /// Share in which one bit is wrong, anywhere; the ICRC detects it.
    pub corrupt: f64,
    /// Share whose ICRC is wrong; all of them if the word stands alone.
    pub bad_icrc: f64,
    /// Every acknowledgement is preceded by a NAK (PSN sequence error) for the same packet.
    pub nak_storm: bool,
    /// Acknowledgements are held back for this time, forever if the word stands alone.
    pub stall_ack: Option<Duration>,
    /// Packets go to this address in place of their peer's, as if that one had sent them: something there passes them on to
    /// the peer. The peer answers this device itself.
    pub via: Option<SocketAddr>,
    /// Seed of the choices: the same seed and the same packets give the same faults.
    pub seed: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            drop: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            bad_icrc: 0.0,
            nak_storm: false,
            stall_ack: None,
            via: None,
            seed: 1,
        }
    }
}

/// Text that does not describe faults.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultParseError {
    /// An unknown word.
    #[error(
        "unknown fault {0:?}; known are drop=SHARE, reorder=SHARE, dup=SHARE, corrupt=SHARE, \
         bad-icrc[=SHARE], nak-storm, stall-ack[=TIME], via=ADDRESS, seed=NUMBER, with commas between"
    )]
    Unknown(String),
    /// A fault without the value that it needs.
    #[error("{0} needs a value, such as {0}=0.01")]
    NoValue(&'static str),
    /// A value where none is known.
    #[error("{0} takes no value, got {1:?}")]
    Value(&'static str, String),
    /// An invalid share.
    #[error("{name}={value:?}: a share is a number from 0 to 1, such as 0.01")]
    Share {
        /// The fault.
        name: &'static str,
        /// The value given.
        value: String,
    },
    /// An invalid time.
    #[error("stall-ack={0:?}: a time is a whole number with us, ms or s, such as 10ms")]
    Time(String),
    /// An invalid address.
    #[error("via={0:?}: an address is an IP address and a UDP port, such as 127.0.0.1:5000")]
    Via(String),
    /// An invalid seed.
    #[error("seed={0:?}: a seed is a whole number")]
    Seed(String),
}

impl FromStr for Faults {
    type Err = FaultParseError;

    fn from_str(text: &str) -> Result<Self, FaultParseError> {
        let mut faults = Self::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim())),
                None => (word, None),
            };
            faults.set(name, value)?;
        }
        Ok(faults)
    }
}

impl Faults {
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), FaultParseError> {
        match name {
            "drop" => self.drop = share("drop", value)?,
            "reorder" => self.reorder = share("reorder", value)?,
            "dup" | "duplicate" => self.duplicate = share("dup", value)?,
            "corrupt" => self.corrupt = share("corrupt", value)?,
            "bad-icrc" => self.bad_icrc = share("bad-icrc", value.or(Some("1")))?,
            "nak-storm" => match value {
                None => self.nak_storm = true,
                Some(value) => return Err(FaultParseError::Value("nak-storm", value.into())),
            },
            "stall-ack" => self.stall_ack = Some(value.map_or(Ok(Duration::MAX), time)?),
            "via" => {
                let text = value.ok_or(FaultParseError::NoValue("via"))?;
                let via = text.parse().map_err(|_| FaultParseError::Via(text.into()))?;
                self.via = Some(via);
            }
            "seed" => {
                let text = value.ok_or(FaultParseError::NoValue("seed"))?;
                self.seed = text.parse().map_err(|_| FaultParseError::Seed(text.into()))?;
            }
            other => return Err(FaultParseError::Unknown(other.chars().take(64).collect())),
        }
        Ok(())
    }
}

fn share(name: &'static str, value: Option<&str>) -> Result<f64, FaultParseError> {
    let text = value.ok_or(FaultParseError::NoValue(name))?;
    let share = text.parse::<f64>().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| FaultParseError::Share { name, value: text.into() })
}

fn time(text: &str) -> Result<Duration, FaultParseError> {
    let wrong = || FaultParseError::Time(text.into());
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number = text[..digits].parse().map_err(|_| wrong())?;
    match text[digits..].trim() {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(wrong()),
    }
}

impl fmt::Display for Faults {
    /// As it is parsed, without faults of rate 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("drop", self.drop),
            ("reorder", self.reorder),
            ("dup", self.duplicate),
            ("corrupt", self.corrupt),
            ("bad-icrc", self.bad_icrc),
        ];
        for (name, share) in shares.iter().filter(|(_, share)| *share > 0.0) {
            write!(f, "{name}={share},")?;
        }
        if self.nak_storm {
            write!(f, "nak-storm,")?;
        }
        match self.stall_ack {
            Some(Duration::MAX) => write!(f, "stall-ack,")?,
            Some(time) => write!(f, "stall-ack={}us,", time.as_micros())?,
            None => {}
        }
        if let Some(via) = self.via {
            write!(f, "via={via},")?;
        }
        write!(f, "seed={}", self.seed)
    }
}

/// How often faults were injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FaultCounters {
    /// Packets that passed.
    pub packets: u64,
    /// Packets lost.
    pub dropped: u64,
    /// Packets held back so that others overtake them.
    pub reordered: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
    /// Packets with a wrong ICRC.
    pub bad_icrcs: u64,
    /// NAKs sent without a reason.
    pub naks: u64,
    /// Acknowledgements held back or lost.
    pub stalled_acks: u64,
}

/// A whole datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Transport bytes and ICRC.
    pub(crate) bytes: Vec<u8>,
}

/// The kind of a packet, as far as faults treat it differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pure acknowledgement.
    Ack,
    /// Anything else.
    Other,
}

/// Decides about each packet.
pub(crate) struct FaultInjector {
    faults: Faults,
    random: Random,
    /// Packets that are held back, with the time when they leave.
    held: Vec<(u64, Datagram)>,
    pub(crate) counters: FaultCounters,
}

impl FaultInjector {
    pub(crate) fn new(faults: &Faults) -> Self {
        Self {
            faults: *faults,
            random: Random(faults.seed),
            held: Vec::new(),
            counters: FaultCounters::default(),
        }
    }

    /// Returns whether acknowledgements need a NAK in front.
    pub(crate) fn storms(&mut self) -> bool {
        self.counters.naks += u64::from(self.faults.nak_storm);
        self.faults.nak_storm
    }

    /// Returns who passes packets on.
    pub(crate) fn via(&self) -> Option<SocketAddr> {
        self.faults.via
    }

    /// Returns when the next held packet leaves.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.held.iter().map(|(due, _)| *due).min()
    }

    /// Returns the packets whose time has come.
    pub(crate) fn due(&mut self, now_ns: u64, mut send: impl FnMut(&Datagram)) {
        self.held.retain(|(due, datagram)| {
            if *due <= now_ns {
                send(datagram);
            }
            *due > now_ns
        });
    }

    /// Sends a packet, unless a fault prevents it.
    pub(crate) fn pass(
        &mut self,
        now_ns: u64,
        kind: Kind,
        mut datagram: Datagram,
        mut send: impl FnMut(&Datagram),
    ) {
        self.counters.packets += 1;
        if self.random.happens(self.faults.drop) {
            self.counters.dropped += 1;
            return;
        }
        self.damage(&mut datagram);
        if kind == Kind::Ack
            && let Some(time) = self.faults.stall_ack
        {
            self.counters.stalled_acks += 1;
            if time != Duration::MAX {
                self.hold(now_ns, time, datagram);
            }
            return;
        }
        if self.random.happens(self.faults.reorder) {
            self.counters.reordered += 1;
            return self.hold(now_ns, REORDER_HOLD, datagram);
        }
        send(&datagram);
        if self.random.happens(self.faults.duplicate) {
            self.counters.duplicated += 1;
            send(&datagram);
        }
    }

    fn damage(&mut self, datagram: &mut Datagram) {
        if self.random.happens(self.faults.corrupt) {
            self.counters.corrupted += 1;
            let bit = self.random.next() as usize % (datagram.bytes.len() * 8);
            datagram.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if self.random.happens(self.faults.bad_icrc)
            && let Some(last) = datagram.bytes.last_mut()
        {
            self.counters.bad_icrcs += 1;
            *last ^= 0xff;
        }
    }

    fn hold(&mut self, now_ns: u64, time: Duration, datagram: Datagram) {
        self.held.push((now_ns.saturating_add(time.as_nanos() as u64), datagram));
    }
}

/// A small deterministic generator of random numbers (splitmix64).
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in [
            "drop=0.01,reorder=0.02,dup=0.5,corrupt=1,nak-storm,bad-icrc,stall-ack,seed=9",
            "stall-ack=10ms",
            "via=127.0.0.1:5000,drop=0.5",
            "via=[::1]:5000",
            "",
        ] {
            let faults: Faults = text.parse().unwrap();
            assert_eq!(faults.to_string().parse(), Ok(faults), "{text}");
        }
        let faults: Faults = " drop=0.25 , stall-ack=3s ".parse().unwrap();
        assert_eq!(faults.drop, 0.25);
        assert_eq!(faults.stall_ack, Some(Duration::from_secs(3)));
    }

    #[test]
    fn wrong_text_is_named() {
        for (text, part) in [
            ("drops=1", "\"drops\""),
            ("drop", "drop needs a value"),
            ("drop=2", "drop=\"2\""),
            ("drop=NaN", "drop=\"NaN\""),
            ("stall-ack=10", "stall-ack=\"10\""),
            ("nak-storm=1", "takes no value"),
            ("seed=x", "seed=\"x\""),
            ("via=localhost", "via=\"localhost\""),
            ("via", "via needs a value"),
        ] {
            let error = text.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn shares_are_kept_and_seeds_repeat() {
        let faults = "drop=0.1,dup=0.2,seed=5".parse().unwrap();
        let run = || {
            let mut injector = FaultInjector::new(&faults);
            let mut sent = 0;
            for _ in 0..10_000 {
                let at = ([127, 0, 0, 1], 4791).into();
                let datagram = Datagram { from: at, to: at, bytes: vec![0; 16] };
                injector.pass(0, Kind::Other, datagram, |_| sent += 1);
            }
            (injector.counters, sent)
        };
        let (counters, sent) = run();
        assert!((900..1100).contains(&counters.dropped), "{counters:?}");
        assert_eq!(sent, 10_000 - counters.dropped + counters.duplicated);
        assert_eq!(run(), (counters, sent));
    }
}
