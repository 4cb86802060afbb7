//! What stores are measured with: the mixes of YCSB and of the DRUM paper, on keys of a Zipf distribution.
//!
//! - A to F are those of Cooper et al., SoCC 2010, table 2: A half reads, half writes; B 95 % reads; C reads; D 95 % reads of what
//!   is new, 5 % new keys; E 95 % scans, 5 % new keys; F half reads, half read-modify-writes.
//! - A scan is 1 to 100 GETs of keys one after the other, and counts as one operation. A read-modify-write is a
//!   GET and a PUT of the version that was read, again until it succeeds.
//! - A client has one operation at a time (closed loop).
use crate::client::{Client, Replaced};
use crate::error::KvError;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Skew of the popularity of keys.
pub const ZIPF: f64 = 0.99;
/// Longest scan.
const SCAN_MAX: u64 = 100;
/// Shortest value: each begins with a number that no other has.
pub const VALUE_BYTES_MIN: usize = 8;

/// Which operations there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// This many reads of 100, the others writes of keys that exist.
    Reads(u8),
    /// D.
    Latest,
    /// E.
    Scans,
    /// F.
    Modify,
}

impl Mix {
    /// All that have a name.
    pub const ALL: [(&'static str, Self); 9] = [
        ("ycsb-a", Self::Reads(50)),
        ("ycsb-b", Self::Reads(95)),
        ("ycsb-c", Self::Reads(100)),
        ("ycsb-d", Self::Latest),
        ("ycsb-e", Self::Scans),
        ("ycsb-f", Self::Modify),
        ("paper-95-5", Self::Reads(95)),
        ("paper-50-50", Self::Reads(50)),
        ("paper-0-100", Self::Reads(0)),
    ];

    /// Finds one by its name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, mix)| mix)
    }
}

/// What clients do.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Which operations.
    pub mix: Mix,
    /// Keys at the beginning.
    pub keys: u64,
    /// Bytes of a value, at least [`VALUE_BYTES_MIN`].
    pub value_bytes: usize,
}

/// One operation on a key, for a checker. Times are nanoseconds of the clock of the load; values are named by their
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The key's number.
    pub key: u64,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What it did.
    pub did: Did,
}

/// What an operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// Read a value and its version, or found none.
    Get(Option<(u64, u64)>),
    /// Wrote a value, which got this version.
    Put(u64, u64),
    /// Wrote a value in place of a version and the value read with it.
    Replace {
        /// The new value.
        value: u64,
        /// The version and value that it replaces.
        only: (u64, u64),
        /// How it ended.
        ended: Replaced,
    },
}

/// What a client did.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// GETs.
    pub gets: u64,
    /// Bytes of values that were read and written.
    pub bytes: u64,
    /// Times of reads and scans.
    pub get_ns: Vec<f64>,
    /// Times of writes, of new keys and of read-modify-writes.
    pub put_ns: Vec<f64>,
    /// Read-modify-writes that had to begin again.
    pub lost: u64,
}

/// Random numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Ranks from 0, rank `r` in proportion to `1 / (r + 1)^theta`: the generator of Gray et al., SIGMOD 1994, figure 7.
#[derive(Debug, Clone)]
struct Zipf {
    count: f64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (all, two) = (zeta(count), zeta(2.min(count)));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - two / all);
        Self { count: count as f64, theta, zeta: all, alpha: 1.0 / (1.0 - theta), eta }
    }

    fn draw(&self, draw: &mut Draw) -> u64 {
        let unit = draw.unit();
        let at = unit * self.zeta;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.count * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count as u64 - 1)
    }
}

/// What the clients of a load share.
#[derive(Debug)]
pub struct Run {
    load: Load,
    zipf: Zipf,
    /// Keys that exist.
    keys: AtomicU64,
    clock: Instant,
    stop: AtomicBool,
}

/// Returns the name of a key.
fn name(key: u64, out: &mut Vec<u8>) {
    out.clear();
    // Writing to memory does not fail.
    let _ = write!(out, "user{key:019}");
}

/// Spreads popular ranks over the keys.
fn spread(rank: u64, keys: u64) -> u64 {
    Draw(rank).next() % keys
}

impl Run {
    /// Prepares a load.
    pub fn new(load: Load) -> Self {
        let keys = load.keys.max(1);
        Self {
            load,
            zipf: Zipf::new(keys, ZIPF),
            keys: AtomicU64::new(keys),
            clock: Instant::now(),
            stop: AtomicBool::new(false),
        }
    }

    /// Ends it for all clients.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Writes one of `of` parts of the keys.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn fill(
        &self,
        client: &mut Client,
        (part, of): (u64, u64),
        note: &mut dyn FnMut(Record),
    ) -> Result<(), KvError> {
        let mut user = User::new(self, client, part, note);
        (part..self.load.keys).step_by(of as usize).try_for_each(|key| user.put(key))
    }

    /// Runs one client until the load is stopped. `who` is another number for each.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn measure(
        &self,
        client: &mut Client,
        who: u64,
        note: &mut dyn FnMut(Record),
    ) -> Result<Tally, KvError> {
        let mut user = User::new(self, client, (1 << 20) + who, note);
        while !self.stop.load(Ordering::Relaxed) {
            user.operate()?;
        }
        Ok(user.tally)
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }
}

struct User<'a> {
    run: &'a Run,
    client: &'a mut Client,
    draw: Draw,
    /// Of its next value.
    number: u64,
    name: Vec<u8>,
    value: Vec<u8>,
    tally: Tally,
    note: &'a mut dyn FnMut(Record),
}

impl<'a> User<'a> {
    fn new(
        run: &'a Run,
        client: &'a mut Client,
        who: u64,
        note: &'a mut dyn FnMut(Record),
    ) -> Self {
        Self {
            run,
            client,
            draw: Draw(who),
            number: who << 32,
            name: Vec::new(),
            value: vec![0x5a; run.load.value_bytes.max(VALUE_BYTES_MIN)],
            tally: Tally::default(),
            note,
        }
    }

    fn operate(&mut self) -> Result<(), KvError> {
        let percent = self.draw.below(100) as u8;
        let start = self.run.now_ns();
        let is_read = match self.run.load.mix {
            Mix::Reads(reads) => {
                let key = self.popular();
                if percent < reads {
                    self.get(key).map(|_| true)
                } else {
                    self.put(key).map(|()| false)
                }
            }
            Mix::Latest if percent < 95 => {
                let keys = self.run.keys.load(Ordering::Relaxed);
                let key = keys - 1 - self.run.zipf.draw(&mut self.draw).min(keys - 1);
                self.get(key).map(|_| true)
            }
            Mix::Scans if percent < 95 => self.scan().map(|()| true),
            Mix::Latest | Mix::Scans => {
                let key = self.run.keys.fetch_add(1, Ordering::Relaxed);
                self.put(key).map(|()| false)
            }
            Mix::Modify if percent < 50 => {
                let key = self.popular();
                self.get(key).map(|_| true)
            }
            Mix::Modify => self.modify().map(|()| false),
        }?;
        let took = (self.run.now_ns() - start) as f64;
        self.tally.operations += 1;
        let times = if is_read { &mut self.tally.get_ns } else { &mut self.tally.put_ns };
        times.push(took);
        Ok(())
    }

    fn popular(&mut self) -> u64 {
        spread(self.run.zipf.draw(&mut self.draw), self.run.load.keys.max(1))
    }

    /// Reads a key; returns version and number of its value.
    fn get(&mut self, key: u64) -> Result<Option<(u64, u64)>, KvError> {
        name(key, &mut self.name);
        let start_ns = self.run.now_ns();
        let got = self.client.get(&self.name)?;
        let end_ns = self.run.now_ns();
        let seen = got.map(|value| {
            self.tally.bytes += value.bytes.len() as u64;
            let number = value.bytes.iter().take(8).rev();
            (value.version, number.fold(0, |number, byte| number << 8 | u64::from(*byte)))
        });
        self.tally.gets += 1;
        let did = Did::Get(seen.map(|(version, value)| (value, version)));
        (self.note)(Record { key, start_ns, end_ns, did });
        Ok(seen)
    }

    /// Makes the next value.
    fn next_value(&mut self) -> u64 {
        self.number += 1;
        self.value[..8].copy_from_slice(&self.number.to_le_bytes());
        self.tally.bytes += self.value.len() as u64;
        self.number
    }

    fn put(&mut self, key: u64) -> Result<(), KvError> {
        let value = self.next_value();
        name(key, &mut self.name);
        let start_ns = self.run.now_ns();
        let version = self.client.put(&self.name, &self.value)?;
        let end_ns = self.run.now_ns();
        (self.note)(Record { key, start_ns, end_ns, did: Did::Put(value, version) });
        Ok(())
    }

    fn scan(&mut self) -> Result<(), KvError> {
        let first = self.popular();
        let keys = self.run.keys.load(Ordering::Relaxed);
        let last = (first + 1 + self.draw.below(SCAN_MAX)).min(keys);
        (first..last).try_for_each(|key| self.get(key).map(drop))
    }

    fn modify(&mut self) -> Result<(), KvError> {
        let key = self.popular();
        loop {
            let Some(only) = self.get(key)? else { return self.put(key) };
            let value = self.next_value();
            let start_ns = self.run.now_ns();
            let ended = self.client.replace(&self.name, only.0, &self.value)?;
            let end_ns = self.run.now_ns();
            let did = Did::Replace { value, only, ended };
            (self.note)(Record { key, start_ns, end_ns, did });
            if matches!(ended, Replaced::Stored(_)) {
                return Ok(());
            }
            self.tally.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_falls_as_zipf_says() {
        let (zipf, mut draw) = (Zipf::new(1000, ZIPF), Draw(1));
        let mut counts = vec![0_f64; 1000];
        let draws = 200_000;
        for _ in 0..draws {
            counts[zipf.draw(&mut draw) as usize] += 1.0;
        }
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-ZIPF)).sum();
        // The first two ranks are exact, of the others the generator is an approximation.
        for (rank, within) in [(0, 0.03), (1, 0.03)] {
            let expected = f64::from(draws) * f64::from(rank + 1).powf(-ZIPF) / sum;
            let ratio = counts[rank as usize] / expected;
            assert!((ratio - 1.0).abs() < within, "rank {rank}: {ratio}");
        }
        let tail: f64 = counts[500..].iter().sum::<f64>() / f64::from(draws);
        let expected = (501..=1000).map(|rank| f64::from(rank).powf(-ZIPF)).sum::<f64>() / sum;
        assert!((tail / expected - 1.0).abs() < 0.1, "{tail} {expected}");
    }

    #[test]
    fn mixes_have_names() {
        assert_eq!(Mix::find("ycsb-b"), Some(Mix::Reads(95)));
        assert_eq!(Mix::find("paper-0-100"), Some(Mix::Reads(0)));
        assert_eq!(Mix::find("ycsb-g"), None);
    }
}
