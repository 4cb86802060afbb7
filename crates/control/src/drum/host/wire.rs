//! Bytes between hosts, as `docs/spec/agent.md` has them.
use thiserror::Error;

const VERSION: u8 = 2;
const HEADER: usize = 40;
const OFFER: usize = 28;
const ANSWER: usize = 32;
/// Nothing that is shared is smaller or larger.
pub(super) const RANGE: std::ops::RangeInclusive<f32> = 1e-30..=1e30;

/// What both kinds of messages begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Header {
    /// Number of the host's life, from 1: higher after every crash.
    pub incarnation: u32,
    /// The addressee's, as last heard; 0 before, in offers only.
    pub heard: u32,
    /// Changes of the host's part of the problem so far.
    pub change: u32,
    /// The host's time when it made the message, in ns: rises from message to message.
    pub sequence: u64,
    /// Sequence of the newest answers (in offers) or offers (in answers) taken from the addressee; 0
    /// before.
    pub seen: u64,
    /// By how much an overloaded host raises the price of its completions; 0 in offers.
    pub rise: f32,
    /// Whether nothing changes at the host any more.
    pub still: bool,
    /// Whether rates are those of the host alone: it fell back. Never in answers.
    pub alone: bool,
    /// Whether entries are left out because they are as they were.
    pub same: bool,
    /// The round: in answers the last that the host has answered.
    pub round: Round,
}

/// Number of a round, which begins again after 2^16: hosts in step are in the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round(pub u16);

impl Round {
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    pub(super) const fn before(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// Whether this one comes after another, of two that are less than 2^15 apart.
    pub(super) const fn is_after(self, other: Self) -> bool {
        self.0 != other.0 && self.0.wrapping_sub(other.0) < 1 << 15
    }

    pub(super) const fn or_later(self, other: Self) -> Self {
        if other.is_after(self) { other } else { self }
    }
}

/// One edge as its sender has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offer {
    /// Application at the sender.
    pub from: u32,
    /// Application at the receiver.
    pub to: u32,
    /// `p x`, in Mops.
    pub value: f32,
    /// Inverse penalty.
    pub inverse: f32,
    /// Marginal utility of the rate, for each completion.
    pub marginal: f32,
    /// By how much the marginal utility falls as the rate rises, as an exponent.
    pub elasticity: f32,
    /// The grant that the sender holds, in Mops.
    pub held: f32,
}

/// One edge as its receiver answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answered {
    /// Application at the sender.
    pub from: u32,
    /// Application at the receiver.
    pub to: u32,
    /// Price of a completion.
    pub price: f32,
    /// The edge value, in Mops.
    pub value: f32,
    /// Curvature of the receiver's utility.
    pub curvature: f32,
    /// Marginal utility of a completion.
    pub worth: f32,
    /// How many edges the application has at the receiver.
    pub edges: u32,
    /// The most that the sender may use, in Mops.
    pub grant: f32,
}

/// What one host tells another in a round.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From a sender to a receiver, by `(from, to)`.
    Offers(Header, Vec<Offer>),
    /// And back.
    Answers(Header, Vec<Answered>),
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// Too short, too long, or not as many entries as the header says.
    #[error("{length} bytes do not hold what the header says")]
    Length {
        /// Bytes received.
        length: usize,
    },
    /// Kind, version or flags that this version does not know.
    #[error("{what} of {value} is not known")]
    Unknown {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u32,
    },
    /// A number out of its range, or not a number.
    #[error("{what} is out of range")]
    Range {
        /// Which one.
        what: &'static str,
    },
    /// Entries are not in order, or one comes twice.
    #[error("entries are not in order")]
    Order,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// The length was checked before.
    fn word(&mut self) -> u32 {
        let Some((word, rest)) = self.0.split_first_chunk::<4>() else { return 0 };
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    fn number(&mut self, what: &'static str, good: impl Fn(f32) -> bool) -> Result<f32, WireError> {
        let value = f32::from_bits(self.word());
        if good(value) { Ok(value) } else { Err(WireError::Range { what }) }
    }

    fn positive(&mut self, what: &'static str) -> Result<f32, WireError> {
        self.number(what, |value| RANGE.contains(&value))
    }

    fn zero_or_more(&mut self, what: &'static str) -> Result<f32, WireError> {
        self.number(what, |value| RANGE.contains(&value) || value.to_bits() == 0)
    }

    fn signed(&mut self, what: &'static str) -> Result<f32, WireError> {
        self.number(what, |value| RANGE.contains(&value.abs()) || value.to_bits() == 0)
    }
}

/// Brings a number into the range that is sent.
pub(super) fn narrow(value: f64) -> f32 {
    let value = value as f32;
    if value.abs() >= *RANGE.start() { value.clamp(-RANGE.end(), *RANGE.end()) } else { 0.0 }
}

/// As [`narrow`], for a number that is never 0.
pub(super) fn narrow_positive(value: f64) -> f32 {
    (value as f32).clamp(*RANGE.start(), *RANGE.end())
}

/// As [`narrow`], rounded down: what is granted is never more than was meant.
pub(super) fn narrow_down(value: f64) -> f32 {
    let near = narrow(value.max(0.0));
    let down = if f64::from(near) > value { near.next_down() } else { near };
    if down < *RANGE.start() { 0.0 } else { down }
}

impl Header {
    fn write(&self, bytes: &mut Vec<u8>) {
        let &Self { incarnation, heard, change, sequence, seen, rise, round, .. } = self;
        bytes.extend([incarnation, heard, change].into_iter().flat_map(u32::to_be_bytes));
        bytes.extend([sequence, seen].into_iter().flat_map(u64::to_be_bytes));
        bytes.extend(rise.to_bits().to_be_bytes());
        let flags = [self.still, self.alone, self.same].map(u32::from);
        let flags = flags[0] | flags[1] << 1 | flags[2] << 2;
        bytes.extend((u32::from(round.0) << 16 | flags).to_be_bytes());
    }

    fn read(reader: &mut Reader<'_>, is_offers: bool, count: usize) -> Result<Self, WireError> {
        let [incarnation, heard, change] = std::array::from_fn(|_| reader.word());
        let [sequence, seen] = std::array::from_fn(|_| reader.long());
        let rise = reader.zero_or_more("rise")?;
        let word = reader.word();
        let (round, flags) = (Round((word >> 16) as u16), word & 0xffff);
        let [still, alone, same] = [1, 2, 4].map(|bit| flags & bit != 0);
        let in_range =
            |what, good: bool| if good { Ok(()) } else { Err(WireError::Range { what }) };
        if flags > 7 || (alone && !is_offers) || (same && count > 0) {
            return Err(WireError::Unknown { what: "flags", value: flags });
        }
        in_range("incarnation", incarnation > 0)?;
        in_range("incarnation heard", is_offers || heard > 0)?;
        in_range("sequence", sequence > 0)?;
        in_range("rise", !is_offers || rise == 0.0)?;
        Ok(Self { incarnation, heard, change, sequence, seen, rise, still, alone, same, round })
    }
}

impl Message {
    /// Its first part.
    #[must_use]
    pub fn header(&self) -> Header {
        match self {
            Self::Offers(header, _) | Self::Answers(header, _) => *header,
        }
    }

    /// Writes a message.
    ///
    /// # Panics
    /// With more than 65,535 entries.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, count) = match self {
            Self::Offers(_, offers) => (1, offers.len()),
            Self::Answers(_, answers) => (2, answers.len()),
        };
        let count = u16::try_from(count).expect("at most 65,535 edges between two hosts");
        let mut bytes = Vec::with_capacity(HEADER + usize::from(count) * ANSWER);
        bytes.extend([kind, VERSION]);
        bytes.extend(count.to_be_bytes());
        self.header().write(&mut bytes);
        let mut put =
            |words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        match self {
            Self::Offers(_, offers) => offers.iter().for_each(|offer| {
                let &Offer { from, to, value, inverse, marginal, elasticity, held } = offer;
                put(&[from, to]);
                put(&[value, inverse, marginal, elasticity, held].map(f32::to_bits));
            }),
            Self::Answers(_, answers) => answers.iter().for_each(|answer| {
                let &Answered { from, to, price, value, curvature, worth, edges, grant } = answer;
                put(&[from, to]);
                put(&[price, value, curvature, worth].map(f32::to_bits));
                put(&[edges, grant.to_bits()]);
            }),
        }
        bytes
    }

    /// Reads a message; every byte counts.
    ///
    /// # Errors
    /// [`WireError`], for anything that [`Self::encode`] would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let length = WireError::Length { length: bytes.len() };
        let (first, rest) = bytes.split_first_chunk::<4>().ok_or(length)?;
        let [kind, version, high, low] = *first;
        let count = usize::from(u16::from_be_bytes([high, low]));
        let unknown = |what, value: u8| Err(WireError::Unknown { what, value: value.into() });
        let size = match kind {
            1 => OFFER,
            2 => ANSWER,
            _ => return unknown("kind", kind),
        };
        if version != VERSION {
            return unknown("version", version);
        }
        if bytes.len() != HEADER + count * size {
            return Err(length);
        }
        let mut reader = Reader(rest);
        let header = Header::read(&mut reader, kind == 1, count)?;
        if kind == 1 {
            let offers = (0..count).map(|_| Offer::read(&mut reader));
            let offers = offers.collect::<Result<Vec<_>, _>>()?;
            demand_order(offers.iter().map(|offer| (offer.from, offer.to)))?;
            Ok(Self::Offers(header, offers))
        } else {
            let answers = (0..count).map(|_| Answered::read(&mut reader));
            let answers = answers.collect::<Result<Vec<_>, _>>()?;
            demand_order(answers.iter().map(|answer| (answer.from, answer.to)))?;
            Ok(Self::Answers(header, answers))
        }
    }
}

fn demand_order(ends: impl Iterator<Item = (u32, u32)>) -> Result<(), WireError> {
    if ends.is_sorted_by(|one, next| one < next) { Ok(()) } else { Err(WireError::Order) }
}

impl Offer {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            from: reader.word(),
            to: reader.word(),
            value: reader.positive("value")?,
            inverse: reader.positive("inverse penalty")?,
            marginal: reader.positive("marginal utility")?,
            elasticity: reader.positive("elasticity")?,
            held: reader.zero_or_more("held grant")?,
        })
    }
}

impl Answered {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (from, to) = (reader.word(), reader.word());
        let (price, value) = (reader.signed("price")?, reader.signed("value")?);
        let (curvature, worth) = (reader.zero_or_more("curvature")?, reader.zero_or_more("worth")?);
        let edges = reader.word();
        if edges == 0 {
            return Err(WireError::Range { what: "number of edges" });
        }
        let grant = reader.zero_or_more("grant")?;
        Ok(Self { from, to, price, value, curvature, worth, edges, grant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_again() {
        let (last, first) = (Round(u16::MAX), Round(0));
        assert_eq!((last.next(), first.before()), (first, last));
        assert!(first.is_after(last) && !last.is_after(first) && !first.is_after(first));
        assert_eq!((last.or_later(first), first.or_later(last)), (first, first));
        // Who is further behind than that counts as ahead, and others follow it.
        assert!(Round(1).is_after(Round(40_000)) && !Round(40_000).is_after(Round(1)));
    }
}
