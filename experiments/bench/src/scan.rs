//! `scan`: what it costs to learn which slots were released, by the scan that ships and by a plain
//! loop over the status bytes (S1.32).
//!
//! Both look at the same array of `free[]`. The loop compares each byte with its own record of it;
//! the scan compares 64 bytes at once with its picture of the array. Two costs are measured:
//!
//! - *find*: the slots whose byte is news. This is what the goal is about.
//! - *look*: the same, and each of them claimed, since any thread may look: by the same call in both
//!   ways. The scan must then change its picture by one more atomic operation, because other
//!   threads change their slots in the same words.
//!
//! One thread, everything in its cache: what the other core's stores cost is the same for both.
use crate::goal::{Goal, Limit};
use crate::stats::{Spread, decimals};
use crate::{host, output, sys};
use anyhow::{Result, ensure};
use catchment_sim::Random;
use catchment_transfer::protocol::{
    ByteMirror, ReleaseStatus, SenderSlots, Threads, released_byte,
};
use catchment_verbs::mem::{Region, RegionOptions, VolatileSlice};
use serde::Serialize;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SLOTS: [u32; 4] = [64, 256, 1024, 4096];
/// Rings that are looked at one after the other, so that a clock is read seldom: as many as stay
/// in the cache, with their slots' states.
const CACHE_BYTES: u32 = 192 << 10;
/// Bytes of a slot in both arrays, in its state, and in the loop's record.
const BYTES_PER_SLOT: u32 = 11;
/// Slots at which the goal was set, and what the scan may cost at most, as a part of the loop.
const GOAL_SLOTS: u32 = 1024;
const GOAL: f64 = 0.25;
/// What finding them may take for 64 slots, in nanoseconds.
const GOAL_NS: f64 = 5.0;

const TABLE_HEAD: &str = "slots released  find ns: scan      loop  ratio (p5-p95)       \
                          find and claim ns: scan      loop  ratio";

/// Measure how fast released slots are found, beside a loop over the status bytes
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Looks at every ring, for each way to look
    #[arg(long, default_value_t = 301)]
    rounds: u32,
}

/// One number of slots and of releases among them.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    slots: u32,
    /// Slots that were released since the last look.
    released: u32,
    /// Nanoseconds to find them by the scan: median over rounds.
    find_ns_scan: f64,
    find_ns_loop: f64,
    find_ratio: f64,
    find_ratio_p5: f64,
    find_ratio_p95: f64,
    /// Nanoseconds to find and claim them by the scan: median over rounds.
    look_ns_scan: f64,
    look_ns_loop: f64,
    look_ratio: f64,
    rounds: u32,
}

/// The row that a goal is about.
#[derive(Debug, Serialize, derive_more::Display)]
#[display(", {slots} slots, {released} released")]
struct Place {
    slots: u32,
    released: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    sys::settle(host::cores() - 1)?;
    let ticks = sys::Ticks::calibrate();
    let mut goals = Vec::new();
    if !options.json {
        output::line(TABLE_HEAD)?;
    }
    for slots in SLOTS {
        for released in [0, 1, 8, slots / 2] {
            let row = measure(slots, released, options.rounds, ticks)?;
            output::either(options.json, &row, Row::line)?;
            goals.extend(row.goals());
        }
    }
    for goal in goals {
        output::either(options.json, &goal, Goal::line)?;
    }
    Ok(())
}

impl Row {
    fn line(&self) -> String {
        format!(
            "{:>5} {:>8} {:>14.1} {:>9.1}  {:.3} ({:.3}-{:.3}) {:>23.1} {:>9.1}  {:.3}",
            self.slots,
            self.released,
            self.find_ns_scan,
            self.find_ns_loop,
            self.find_ratio,
            self.find_ratio_p5,
            self.find_ratio_p95,
            self.look_ns_scan,
            self.look_ns_loop,
            self.look_ratio,
        )
    }

    fn goals(&self) -> Vec<Goal<Place>> {
        if self.slots != GOAL_SLOTS {
            return Vec::new();
        }
        let place = || Place { slots: self.slots, released: self.released };
        let name = "finding released slots, scan / loop over the bytes";
        let ns = self.find_ns_scan * 64.0 / f64::from(self.slots);
        vec![
            Goal::new(name, place(), self.find_ratio, Limit::AtMost(GOAL)),
            Goal::new("finding released slots, ns for 64", place(), ns, Limit::AtMost(GOAL_NS)),
        ]
    }
}

fn measure(slots: u32, released: u32, rounds: u32, ticks: sys::Ticks) -> Result<Row> {
    let rings = (CACHE_BYTES / (slots * BYTES_PER_SLOT)).max(4);
    let mut scans = rings_of(rings, || Ring::new(slots, Scan::new(slots)))?;
    let mut loops = rings_of(rings, || Ring::new(slots, Bytes::new(slots)))?;
    let mut random = Random::new(u64::from(slots) << 32 | u64::from(released));
    let (mut find, mut look) = (Pairs::default(), Pairs::default());
    for _ in 0..rounds {
        let picked: Vec<Vec<u32>> =
            (0..rings).map(|_| pick(&mut random, slots, released)).collect();
        release(&scans, &picked)?;
        release(&loops, &picked)?;
        find.push([
            timed(&mut scans, released, ticks, Ring::find)?,
            timed(&mut loops, released, ticks, Ring::find)?,
        ]);
        look.push([
            timed(&mut scans, released, ticks, Ring::look)?,
            timed(&mut loops, released, ticks, Ring::look)?,
        ]);
    }
    let find_ratio = Spread::of(&find.ratios);
    Ok(Row {
        what: "scan",
        slots,
        released,
        find_ns_scan: find.ns_p50(0),
        find_ns_loop: find.ns_p50(1),
        find_ratio: decimals(find_ratio.p50, 3),
        find_ratio_p5: decimals(find_ratio.p5, 3),
        find_ratio_p95: decimals(find_ratio.p95, 3),
        look_ns_scan: look.ns_p50(0),
        look_ns_loop: look.ns_p50(1),
        look_ratio: decimals(Spread::of(&look.ratios).p50, 3),
        rounds,
    })
}

/// Times of the scan and of the loop, round by round.
#[derive(Default)]
struct Pairs {
    ns: [Vec<f64>; 2],
    ratios: Vec<f64>,
}

impl Pairs {
    fn push(&mut self, [scan, plain]: [f64; 2]) {
        self.ns[0].push(scan);
        self.ns[1].push(plain);
        self.ratios.push(scan / plain);
    }

    fn ns_p50(&self, way: usize) -> f64 {
        decimals(Spread::of(&self.ns[way]).p50, 1)
    }
}

fn rings_of<L>(count: u32, ring: impl Fn() -> Result<Ring<L>>) -> Result<Vec<Ring<L>>> {
    (0..count).map(|_| ring()).collect()
}

fn release<L: Look>(rings: &[Ring<L>], picked: &[Vec<u32>]) -> Result<()> {
    rings.iter().zip(picked).try_for_each(|(ring, slots)| ring.release(slots))
}

/// Looks at all rings. Nanoseconds for one of them.
fn timed<L>(
    rings: &mut [Ring<L>],
    released: u32,
    ticks: sys::Ticks,
    look: fn(&mut Ring<L>) -> u32,
) -> Result<f64> {
    let start = sys::Ticks::now();
    let found: u32 = rings.iter_mut().map(look).sum();
    let ns = ticks.ns(start, sys::Ticks::now());
    let wanted = released * rings.len() as u32;
    ensure!(found == wanted, "a look found {found} of {wanted} released slots");
    Ok(ns / rings.len() as f64)
}

trait Look {
    /// Names every released slot, and says how many there were.
    fn find(&mut self, free: &VolatileSlice<'_>) -> u32;
    /// Claims every released slot, and says how many there were.
    fn look(&mut self, free: &VolatileSlice<'_>, states: &SenderSlots) -> u32;
}

/// The collector's `free[]`, and what the source knows of the slots.
struct Ring<L> {
    free: Arc<Region>,
    states: SenderSlots,
    look: L,
}

impl<L: Look> Ring<L> {
    fn new(slots: u32, look: L) -> Result<Self> {
        Ok(Self {
            free: Region::alloc(slots as usize, RegionOptions::default())?,
            states: SenderSlots::new(slots),
            look,
        })
    }

    /// As a source that sends a block in each of these slots and a collector that takes it.
    fn release(&self, slots: &[u32]) -> Result<()> {
        for &slot in slots {
            let generation = self.states.next_generation(slot);
            self.states.launch(slot, generation);
            let byte = self.free.whole().atomic_u8(slot as usize)?;
            byte.store(released_byte(generation), Ordering::Release);
        }
        Ok(())
    }

    #[inline(never)]
    fn find(&mut self) -> u32 {
        self.look.find(&self.free.whole())
    }

    #[inline(never)]
    fn look(&mut self) -> u32 {
        self.look.look(&self.free.whole(), &self.states)
    }
}

struct Scan(ByteMirror);

impl Scan {
    fn new(slots: u32) -> Self {
        Self(ByteMirror::new(slots))
    }
}

impl Look for Scan {
    fn find(&mut self, free: &VolatileSlice<'_>) -> u32 {
        let mut found = 0;
        let _ = self.0.look(free, 0, |slot| {
            black_box(slot);
            found += 1;
            ControlFlow::<()>::Continue(())
        });
        found
    }

    fn look(&mut self, free: &VolatileSlice<'_>, states: &SenderSlots) -> u32 {
        let mut found = 0;
        let _ = self.0.look(free, 0, |slot| {
            if let Some(byte) = claim(slot, free, states) {
                let before = released_byte(states.next_generation(slot) - 2);
                self.0.change(Threads::Many, slot, before, byte);
                found += 1;
            }
            ControlFlow::<()>::Continue(())
        });
        found
    }
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn new(slots: u32) -> Self {
        Self(vec![0; slots as usize])
    }
}

impl Look for Bytes {
    fn find(&mut self, free: &VolatileSlice<'_>) -> u32 {
        let mut found = 0;
        for (slot, seen) in (0..).zip(&self.0) {
            let byte = free.load_u8(slot as usize, Ordering::Acquire);
            if byte.is_ok_and(|byte| byte != *seen) {
                black_box(slot);
                found += 1;
            }
        }
        found
    }

    fn look(&mut self, free: &VolatileSlice<'_>, states: &SenderSlots) -> u32 {
        let mut found = 0;
        for (slot, seen) in (0..).zip(&mut self.0) {
            let byte = free.load_u8(slot as usize, Ordering::Acquire);
            if byte.is_ok_and(|byte| byte == *seen) {
                continue;
            }
            if let Some(byte) = claim(slot, free, states) {
                *seen = byte;
                found += 1;
            }
        }
        found
    }
}

/// The byte of a slot that was released, for the one that learnt it first.
#[inline]
fn claim(slot: u32, free: &VolatileSlice<'_>, states: &SenderSlots) -> Option<u8> {
    let byte = free.load_u8(slot as usize, Ordering::Acquire).ok()?;
    let news = states.note_free(Threads::Many, slot, byte);
    (news == ReleaseStatus::Released).then_some(byte)
}

/// So many of the slots, by chance.
fn pick(random: &mut Random, slots: u32, count: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..slots).collect();
    for i in 0..count as usize {
        let other = i + random.index(all.len() - i);
        all.swap(i, other);
    }
    all.truncate(count as usize);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_each_release_once() {
        let mut random = Random::new(7);
        let scan = &mut Ring::new(256, Scan::new(256)).unwrap();
        let plain = &mut Ring::new(256, Bytes::new(256)).unwrap();
        // Generations go round in a byte meanwhile.
        for round in 0..600 {
            let picked = pick(&mut random, 256, round % 256);
            scan.release(&picked).unwrap();
            plain.release(&picked).unwrap();
            assert_eq!((scan.find(), plain.find()), (round % 256, round % 256));
            assert_eq!((scan.look(), plain.look()), (round % 256, round % 256));
            assert_eq!((scan.look(), plain.look()), (0, 0));
        }
    }

    #[test]
    fn picked_slots_differ_and_lie_inside() {
        let mut picked = pick(&mut Random::new(3), 64, 32);
        picked.sort_unstable();
        picked.dedup();
        assert_eq!(picked.len(), 32);
        assert!(picked.iter().all(|slot| *slot < 64));
    }
}
