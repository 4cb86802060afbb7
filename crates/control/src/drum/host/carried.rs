//! The numbers of an edge in eight bytes of a header of data (paper S5, its ideas): what a round says of it, less exact, and
//! without what may be used.
//!
//! Data of an edge go to its receiver, so they carry what was offered there last, and the price of completions here that
//! the edge back was told. They take the place of messages that were lost: what is as old as the newest message changes nothing.
use super::Host;
use super::application::Sending;
use super::receiving::{Incoming, MOST_OFFERED};
use super::wire::{RANGE, WireError, narrow, narrow_positive};
use crate::drum::step;

/// Of a sequence, what stands in a header: units of 65,536 ns, 4.3 s of them.
const STAMP_SHIFT: u32 = 16;
/// A price that moves an edge value by more than this part of it is of a change, which a round begins anew: it waits for its message.
const MOST_MOVED: f64 = 0.5;

/// What data of an edge carry: a stamp of two bytes, and eight bytes of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Bits 16 to 31 of the sequence of the newest offers.
    pub stamp: u16,
    /// What they offer of this edge: its value in Mops, and the inverse penalty, with 8 bits of mantissa.
    pub offer: Option<(f32, f32)>,
    /// Price of a completion at who sends the data, for who gets them, with 8 bits of mantissa.
    pub price: Option<f32>,
}

/// Bytes of [`Carried`], but for the stamp.
pub type Numbers = [u8; 8];

/// The upper half of the bits of an f32 (bfloat16), to the nearest, ties to even.
fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn from_half(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Minus zero, which no number is.
const NOTHING: u16 = 0x8000;

impl Carried {
    /// Writes the numbers: f32 value, then price and inverse penalty, which are the upper halves of an f32; all big-endian.
    #[must_use]
    pub fn encode(&self) -> Numbers {
        let (value, inverse) =
            self.offer.map_or((0.0, 0), |(value, inverse)| (value, to_half(inverse)));
        let price = self.price.map_or(NOTHING, to_half);
        let halves = u32::from(price) << 16 | u32::from(inverse);
        (u64::from(value.to_bits()) << 32 | u64::from(halves)).to_be_bytes()
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`WireError`], for a number out of its range, or one of an offer without the other.
    pub fn decode(stamp: u16, numbers: Numbers) -> Result<Self, WireError> {
        let word = u64::from_be_bytes(numbers);
        let value = f32::from_bits((word >> 32) as u32);
        let (price, inverse) = ((word >> 16) as u16, from_half(word as u16));
        let check = |what, good: bool| if good { Ok(()) } else { Err(WireError::Range { what }) };
        let is_none = value.to_bits() == 0 && inverse.to_bits() == 0;
        check("value", is_none || RANGE.contains(&value))?;
        check("inverse penalty", is_none || HALF_RANGE.contains(&inverse))?;
        let offer = (!is_none).then_some((value, inverse));
        let price = (price != NOTHING).then(|| from_half(price));
        let in_range = |price: f32| HALF_RANGE.contains(&price.abs()) || price.to_bits() == 0;
        check("price", price.is_none_or(in_range))?;
        Ok(Self { stamp, offer, price })
    }
}

/// As [`RANGE`], whose ends may be rounded away from each other.
const HALF_RANGE: std::ops::RangeInclusive<f32> = 0.99e-30..=1.01e30;

/// Returns the sequence that a stamp is of, if that is newer than one that is known.
fn newer(stamp: u16, known: u64) -> Option<u64> {
    let units = known >> STAMP_SHIFT;
    let ahead = stamp.wrapping_sub(units as u16) as i16;
    let ahead = u64::try_from(ahead).ok().filter(|ahead| *ahead > 0)?;
    Some((units + ahead) << STAMP_SHIFT)
}

impl Host {
    /// Returns what data of an edge carry until the next message to its receiver is made; nothing while this host answers a
    /// change, or has fallen back.
    #[must_use]
    pub fn carried(&self, application: u32, (to, at): (u32, u32)) -> Option<Carried> {
        let (_, sequence) = self.sent?;
        if self.changed || self.guard.fallen || to == self.config.host {
            return None;
        }
        // Who has not heard the last answers offers what would move prices twice.
        let target = self.targets.get(&to).filter(|target| !target.lapsed && !target.leaves);
        let knows = target.is_some_and(|target| target.misses == 0 && target.taken > 0);
        let offer = self.edge(application, (to, at)).filter(|_| knows);
        let back =
            self.incoming.contains_key(&(to, at, application)) && !self.prices.is_following();
        let price = self.receiving.get(&application).filter(|_| back);
        let carried = Carried {
            stamp: (sequence >> STAMP_SHIFT) as u16,
            offer: offer.map(|(value, inverse)| (narrow_positive(value), narrow_positive(inverse))),
            price: price.map(|receiving| narrow(receiving.price())),
        };
        (carried.offer.is_some() || carried.price.is_some()).then_some(carried)
    }

    /// Value and inverse penalty of an edge that begins here.
    fn edge(&self, application: u32, ends: (u32, u32)) -> Option<(f64, f64)> {
        let place = self.applications.binary_search_by_key(&application, |one| one.application);
        let sending = self.applications.get(place.ok()?)?;
        let edge = sending.edges.iter().find(|edge| (edge.host, edge.application) == ends)?;
        let takes_part = sending.takes_part(&self.targets);
        takes_part.then_some((edge.completions * sending.x, edge.inverse))
    }

    /// Takes what data carried from an application of another host to one of this.
    pub(super) fn take_carried(&mut self, from: u32, (theirs, ours): (u32, u32), carried: Carried) {
        let Carried { stamp, offer, price } = carried;
        let offered =
            offer.is_some_and(|offer| self.take_offer(from, (theirs, ours), stamp, offer));
        let told = price.is_some_and(|price| self.take_price(from, (ours, theirs), stamp, price));
        self.counts.carried += u64::from(offered) + u64::from(told);
    }

    /// An offer of which the message has not come. What it may use stays as it is.
    fn take_offer(
        &mut self,
        from: u32,
        (theirs, ours): (u32, u32),
        stamp: u16,
        (value, inverse): (f32, f32),
    ) -> bool {
        let Some(known) = self.sources.get(&from).and_then(|source| source.steps_from()) else {
            return false;
        };
        if self.prices.is_following() {
            return false;
        }
        let most = MOST_OFFERED * self.config.completion_capacity;
        let Some(edge) = self.incoming.get_mut(&(from, theirs, ours)) else { return false };
        let Some(heard) = newer(stamp, known.max(edge.carried)) else { return false };
        edge.carry(heard, f64::from(value).min(most), f64::from(inverse));
        true
    }

    /// A price of which the answer has not come: the edge value follows from it, as the receiver computes it.
    fn take_price(
        &mut self,
        from: u32,
        (ours, theirs): (u32, u32),
        stamp: u16,
        price: f32,
    ) -> bool {
        let Some(target) = self.targets.get(&from).filter(|target| !target.lapsed) else {
            return false;
        };
        if newer(stamp, target.taken).is_none() || self.follow.is_following() {
            return false;
        }
        let place = self.applications.binary_search_by_key(&ours, |one| one.application);
        let Some(sending) = place.ok().and_then(|at| self.applications.get_mut(at)) else {
            return false;
        };
        sending.carry_price((from, theirs), f64::from(price))
    }
}

impl Incoming {
    /// Takes an offer as one that came in time.
    fn carry(&mut self, heard: u64, value: f64, inverse: f64) {
        (self.carried, self.offered, self.inverse, self.fresh) = (heard, value, inverse, true);
    }
}

impl Sending {
    /// Moves the price of an edge, and its value with it; returns whether it did.
    fn carry_price(&mut self, ends: (u32, u32), price: f64) -> bool {
        let x = self.x;
        let edge = self.edges.iter_mut().find(|edge| (edge.host, edge.application) == ends);
        let Some(edge) = edge else { return false };
        let (value, inverse) = (edge.completions * x, edge.inverse);
        let Some(told) = &mut edge.told else { return false };
        // As exact as what is known, or what it says is rounding.
        let is_news = to_half(narrow(told.price)) != to_half(narrow(price));
        let moved = price - told.price;
        if !is_news || (moved * inverse).abs() > MOST_MOVED * value {
            return false;
        }
        told.value = step::relax(value, told.value) - moved * inverse;
        told.price = price;
        true
    }
}
