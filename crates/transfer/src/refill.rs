//! When to read the status bytes: a decision without clock, queue or memory (S1.33).
//!
//! A READ takes time, and a sender that waits for it stalls. A READ too early finds few releases,
//! and another one must follow. The latest good moment is when the known free slots last as long as
//! the READ. Both are counted in blocks: as many as were committed while a READ was in flight must be
//! left when the next one is posted. No clock is needed.
//!
//! Several READs may be in flight: a byte names its generation, and an old one does no harm
//! (EXPERIMENTS I2). With few slots that is needed: where a READ takes longer than a block, each
//! finds one release, and every block needs its own. With many slots the one in flight will find
//! enough; how many is learnt too.
//!
//! A collector that gives blocks back once it has all of them makes READs ahead vain: the releases come
//! when no slot is left. Such READs earn and spend a credit; without any they are tried now and then.
//!
//! Where the provider executes a READ while it is posted (one host), there is no latency to hide, and
//! the best moment is when no slot is left.
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// When to read the status bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refill {
    /// When no free slot is known, as in the paper.
    WhenEmpty,
    /// When this many are left, while the others are still in use.
    Ahead {
        /// Known free slots at which to read.
        threshold: u32,
    },
    /// When as many are left as are used while a READ is in flight, as learnt from earlier READs.
    Adaptive,
}

/// READs that may be in flight at once.
pub const MAX_READS: usize = 4;

/// Averages are kept in fractions of a block: this is one block.
const ONE: u32 = 16;
/// An average moves by this fraction towards a new value in its cautious direction, and by half in the
/// other.
const SMOOTH: u32 = 8;
/// READs in flight at once are at least [`Pace`]'s lead divided by this apart. They leave in the order of what was posted, and
/// a source that is faster than the path posts all free slots at once: next to each other they find the same.
const SPREAD: u32 = 8;
/// A ring of so many blocks is read twice in a round at least: the READ in its middle leaves while the second half
/// still waits to leave.
const MANY_BLOCKS: u32 = 128;
/// [`Pace`]'s lead goes down by this fraction, and up at once: a READ that takes longer now and then, behind a
/// packet that is sent again, must not empty the ring.
const LONG_SMOOTH: u32 = 32;
/// READs ahead that may find nothing before they are held back. One that finds releases earns [`EARNED`].
const CREDIT: u32 = 6;
/// Under the loads of the goal fewer than one in ten finds nothing.
const EARNED: u32 = 1;
/// What is held back is tried again after so many commits: both kinds cost less than 1 % of a READ for each block.
const TRIED_AGAIN: u64 = 256;

/// What the sender has done so far: this module's measure of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// Blocks committed.
    pub commits: u64,
    /// Claims refused.
    pub refused: u64,
}

/// Decides for claiming threads when to read. Lock-free.
#[derive(Debug)]
pub struct Pace {
    refill: Refill,
    blocks: u32,
    /// Blocks that must be left when a READ is posted, in parts of [`ONE`]; 0 never to read ahead,
    /// because a READ takes no time.
    lead: AtomicU32,
    /// Releases that a READ finds, in parts of [`ONE`].
    yields: AtomicU32,
    /// Whether the last one found all blocks released.
    found_all: AtomicBool,
    /// [`Moment::commits`] when a READ was last asked for ahead.
    asked: AtomicU64,
    /// Why a READ was last asked for, one of [`Asked`].
    why: AtomicU32,
    /// How much READs ahead may still cost: of those with free slots left, and of those with none.
    credits: [Credit; 2],
}

/// Why a READ is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Asked {
    /// Ahead, with free slots left.
    Early,
    /// Ahead, with the last one just claimed.
    Last,
    /// A claim was refused, or slots are to be used again: its time says nothing of when to read ahead.
    #[default]
    Empty,
}

impl Asked {
    /// Returns the place of its credit.
    fn credit(self) -> Option<usize> {
        match self {
            Self::Early => Some(0),
            Self::Last => Some(1),
            Self::Empty => None,
        }
    }

    fn of(number: u32) -> Self {
        match number {
            0 => Self::Early,
            1 => Self::Last,
            _ => Self::Empty,
        }
    }
}

/// Whether READs ahead pay. A collector that gives blocks back only once it has many, or all, makes
/// each of them vain but the last.
#[derive(Debug)]
struct Credit {
    left: AtomicU32,
    /// [`Moment::commits`] of the last READ.
    tried: AtomicU64,
}

impl Credit {
    fn new() -> Self {
        Self { left: AtomicU32::new(CREDIT), tried: AtomicU64::new(0) }
    }

    /// Returns whether such a READ may be posted.
    fn allows(&self, now: Moment) -> bool {
        self.left.load(Ordering::Relaxed) > 0
            || now.commits.saturating_sub(self.tried.load(Ordering::Relaxed)) >= TRIED_AGAIN
    }

    fn learn(&self, found: u32) {
        let left = self.left.load(Ordering::Relaxed);
        let left = if found > 0 { (left + EARNED).min(CREDIT) } else { left.saturating_sub(1) };
        self.left.store(left, Ordering::Relaxed);
    }
}

impl Pace {
    /// Creates the pace for a ring of this many slots.
    pub fn new(refill: Refill, blocks: u32) -> Self {
        Self {
            refill,
            blocks,
            lead: AtomicU32::new(match refill {
                Refill::WhenEmpty => 0,
                Refill::Ahead { threshold } => threshold.min(blocks) * ONE,
                Refill::Adaptive => blocks / 2 * ONE,
            }),
            yields: AtomicU32::new(blocks * ONE),
            found_all: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            why: AtomicU32::new(Asked::Empty as u32),
            credits: [Credit::new(), Credit::new()],
        }
    }

    /// Returns whether it may read ahead, as learnt so far. Costs one load.
    #[inline]
    pub fn may_read_ahead(&self) -> bool {
        self.lead.load(Ordering::Relaxed) > 0
    }

    /// Returns whether to read now: a slot was just claimed, `known` free ones are left, and
    /// `in_flight` READs are in flight.
    #[inline]
    pub fn reads_ahead(&self, known: u32, in_flight: u32, now: Moment) -> bool {
        let lead = self.lead.load(Ordering::Relaxed);
        let reads = match self.refill {
            Refill::WhenEmpty => false,
            Refill::Ahead { .. } => {
                known * ONE <= lead && in_flight == 0 && self.is_due((lead / ONE).div_ceil(2), now)
            }
            Refill::Adaptive => {
                let yields = self.yields.load(Ordering::Relaxed);
                let missing = known * ONE + in_flight * yields < lead.min(self.blocks * ONE);
                let wants = missing && (in_flight == 0 || self.is_due(lead / ONE / SPREAD, now))
                    || self.blocks >= MANY_BLOCKS && self.is_due(self.blocks / 2, now);
                wants && self.credits[usize::from(known == 0)].allows(now)
            }
        };
        if reads {
            self.asked.store(now.commits, Ordering::Relaxed);
            self.credits[usize::from(known == 0)].tried.store(now.commits, Ordering::Relaxed);
            let why = if known == 0 { Asked::Last } else { Asked::Early };
            self.why.store(why as u32, Ordering::Relaxed);
        }
        reads
    }

    /// Returns whether so many blocks were committed since the last READ.
    fn is_due(&self, blocks: u32, now: Moment) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        now.commits.saturating_sub(asked) >= u64::from(blocks)
    }

    /// Returns whether to read now that no free slot is known. One READ at a time: the releases it
    /// returns are all that can be known soon.
    #[inline]
    pub fn reads_when_empty(&self, in_flight: u32) -> bool {
        if in_flight == 0 {
            self.why.store(Asked::Empty as u32, Ordering::Relaxed);
        }
        in_flight == 0
    }

    /// Returns whether to read now, as [when none is left](Self::reads_when_empty), so that slots that came back are used again
    /// while they are in the cache: `apart` blocks after the last READ.
    #[inline]
    pub fn reads_to_reuse(&self, in_flight: u32, apart: u32, now: Moment) -> bool {
        let reads = in_flight == 0 && self.is_due(apart, now);
        if reads {
            self.asked.store(now.commits, Ordering::Relaxed);
        }
        reads
    }

    fn why(&self) -> Asked {
        Asked::of(self.why.load(Ordering::Relaxed))
    }

    /// Learns how many blocks are committed while a READ is in flight. A lead that is too long costs a few
    /// READs; too short, it costs stalls.
    fn learn_lead(&self, needed: u32) {
        if self.refill == Refill::Adaptive {
            let lead = self.lead.load(Ordering::Relaxed);
            self.lead.store(towards(lead, needed * ONE, 1, LONG_SMOOTH), Ordering::Relaxed);
        }
    }

    /// Learns how many releases a READ finds that was asked for so. To expect too much of one in flight costs
    /// stalls.
    fn learn_found(&self, asked: Asked, found: u32, all: bool) {
        if self.refill == Refill::Adaptive {
            // One that finds nothing behind one that found all was not needed: less would not be enough.
            if found > 0 || !self.found_all.load(Ordering::Relaxed) {
                let yields = self.yields.load(Ordering::Relaxed);
                self.yields.store(towards(yields, found * ONE, SMOOTH, 2), Ordering::Relaxed);
            }
            self.found_all.store(all && found > 0, Ordering::Relaxed);
            if let Some(at) = asked.credit() {
                self.credits[at].learn(found);
            }
        }
    }

    fn learn_that_reads_take_no_time(&self) {
        if self.refill == Refill::Adaptive {
            self.lead.store(0, Ordering::Relaxed);
        }
    }
}

/// Moves an average towards a value: by 1/`up` or 1/`down` of the difference.
fn towards(average: u32, value: u32, up: u32, down: u32) -> u32 {
    if value >= average {
        average + (value - average).div_ceil(up)
    } else {
        average - (average - value).div_ceil(down)
    }
}

/// The READs in flight, for the thread that drives the queue pair.
#[derive(Debug, Default)]
pub struct ReadsInFlight {
    posted: [(Moment, Asked); MAX_READS],
    first: usize,
    count: usize,
}

impl ReadsInFlight {
    /// Returns the number of READs in flight.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether another one may be posted.
    pub fn has_room(&self) -> bool {
        self.count < MAX_READS
    }

    /// Notes that a READ was posted, for which the pace was asked last.
    ///
    /// # Panics
    /// Without [`ReadsInFlight::has_room`].
    pub fn posted(&mut self, pace: &Pace, now: Moment) {
        assert!(self.has_room(), "{MAX_READS} READs are in flight");
        self.posted[(self.first + self.count) % MAX_READS] = (now, pace.why());
        self.count += 1;
    }

    /// Notes that the oldest READ has completed and found so many releases; `all` if no block is in use now,
    /// `at_once` if the provider executed it while it was posted.
    ///
    /// # Panics
    /// When none is in flight.
    pub fn completed(&mut self, pace: &Pace, now: Moment, found: u32, all: bool, at_once: bool) {
        let (posted, asked) = self.take_oldest();
        if at_once {
            return pace.learn_that_reads_take_no_time();
        }
        // Posted a block earlier, this READ would have avoided the stall that it ended.
        let late = now.refused > posted.refused && found > 0;
        pace.learn_lead(commits_between(posted, now) + 1 + u32::from(late));
        pace.learn_found(asked, found, all);
    }

    /// Notes that the oldest READ has completed, and another one after it at the same look: who of the two found
    /// what is not known, as they write the same memory.
    ///
    /// # Panics
    /// When none is in flight.
    pub fn overtaken(&mut self, pace: &Pace, now: Moment) {
        let (posted, _) = self.take_oldest();
        pace.learn_lead(commits_between(posted, now) + 1);
    }

    fn take_oldest(&mut self) -> (Moment, Asked) {
        assert!(self.count > 0, "no READ is in flight");
        let oldest = self.posted[self.first];
        self.first = (self.first + 1) % MAX_READS;
        self.count -= 1;
        oldest
    }
}

fn commits_between(posted: Moment, now: Moment) -> u32 {
    now.commits.saturating_sub(posted.commits).min(u64::from(u16::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(commits: u64) -> Moment {
        Moment { commits, refused: 0 }
    }

    /// READs during each of which so many blocks are committed.
    fn after_reads(pace: &Pace, commits: u64, found: u32) {
        let mut reads = ReadsInFlight::default();
        for _ in 0..400 {
            reads.posted(pace, at(0));
            reads.completed(pace, at(commits), found, false, false);
        }
    }

    #[test]
    fn as_many_are_left_as_are_used_during_a_read() {
        let pace = Pace::new(Refill::Adaptive, 64);
        assert!(pace.reads_ahead(31, 0, at(0)), "at half before anything is known");
        after_reads(&pace, 5, 40);
        assert!(pace.reads_ahead(5, 0, at(0)));
        assert!(!pace.reads_ahead(6, 0, at(0)));
    }

    #[test]
    fn another_read_follows_only_where_one_finds_little() {
        let pace = Pace::new(Refill::Adaptive, 64);
        after_reads(&pace, 5, 40);
        assert!(!pace.reads_ahead(0, 1, at(0)));
        after_reads(&pace, 5, 1);
        assert!(pace.reads_ahead(3, 2, at(0)));
        assert!(!pace.reads_ahead(4, 2, at(0)));
    }

    #[test]
    fn reads_of_a_source_that_is_faster_than_the_path_are_apart() {
        let pace = Pace::new(Refill::Adaptive, 64);
        after_reads(&pace, 31, 1);
        assert!(pace.reads_ahead(0, 0, at(0)), "none is in flight");
        assert!(!pace.reads_ahead(0, 1, at(3)) && pace.reads_ahead(0, 1, at(4)));
        assert!(!pace.reads_ahead(0, 2, at(7)) && pace.reads_ahead(0, 2, at(8)));
        assert!(!pace.reads_ahead(64, 0, at(1000)), "all are free");
    }

    #[test]
    fn a_large_ring_is_read_in_its_middle() {
        let pace = Pace::new(Refill::Adaptive, 200);
        after_reads(&pace, 5, 200);
        assert!(!pace.reads_ahead(150, 1, at(99)) && pace.reads_ahead(150, 1, at(100)));
        assert!(!pace.reads_ahead(150, 1, at(199)) && pace.reads_ahead(150, 1, at(200)));
    }

    /// Asks for a READ ahead until it is posted, which finds so much.
    fn read_ahead(pace: &Pace, known: u32, commits: u64, found: u32) -> bool {
        let mut reads = ReadsInFlight::default();
        let posts = pace.reads_ahead(known, 0, at(commits));
        if posts {
            reads.posted(pace, at(commits));
            reads.completed(pace, at(commits + 3), found, false, false);
        }
        posts
    }

    #[test]
    fn reads_ahead_in_vain_are_held_back_by_kind_and_tried_again() {
        let pace = Pace::new(Refill::Adaptive, 4);
        let in_vain = (0..100).filter(|i| read_ahead(&pace, 1, *i, 0)).count();
        assert_eq!(in_vain, CREDIT as usize);
        assert!(read_ahead(&pace, 0, 100, 1), "with none left they are not held back");
        let again = u64::from(CREDIT) - 1 + TRIED_AGAIN;
        assert!(!read_ahead(&pace, 1, again - 1, 1) && read_ahead(&pace, 1, again, 1));
        assert!(read_ahead(&pace, 1, again + 1, 0), "it has found something");
    }

    #[test]
    fn reads_because_none_is_left_teach_nothing_about_those_ahead() {
        let (pace, mut reads) = (Pace::new(Refill::Adaptive, 4), ReadsInFlight::default());
        for i in 0..100 {
            assert!(pace.reads_when_empty(0));
            reads.posted(&pace, at(i));
            reads.completed(&pace, at(i), 0, false, false);
        }
        assert!(read_ahead(&pace, 0, 100, 0));
    }

    #[test]
    fn one_behind_a_read_that_found_all_was_not_needed() {
        let seen = |all| {
            let (pace, mut reads) = (Pace::new(Refill::Adaptive, 4), ReadsInFlight::default());
            for _ in 0..100 {
                (0..2).for_each(|_| reads.posted(&pace, at(0)));
                reads.completed(&pace, at(3), 4, all, false);
                reads.completed(&pace, at(3), 0, false, false);
            }
            pace.reads_ahead(0, 1, at(200))
        };
        assert!(seen(false) && !seen(true));
    }

    #[test]
    fn of_reads_that_complete_together_the_last_one_has_found_it() {
        let (pace, mut reads) = (Pace::new(Refill::Adaptive, 4), ReadsInFlight::default());
        (0..2).for_each(|i| reads.posted(&pace, at(i)));
        reads.overtaken(&pace, at(3));
        assert_eq!(reads.count(), 1);
        reads.completed(&pace, at(3), 4, false, false);
        assert_eq!(reads.count(), 0);
        assert!(pace.reads_ahead(2, 0, at(3)), "the first one took three blocks");
    }

    #[test]
    fn nothing_is_read_ahead_where_a_read_takes_no_time() {
        let pace = Pace::new(Refill::Adaptive, 64);
        let mut reads = ReadsInFlight::default();
        reads.posted(&pace, at(7));
        reads.completed(&pace, at(7), 3, true, true);
        assert!(!pace.may_read_ahead() && !pace.reads_ahead(0, 0, at(8)));
        assert!(pace.reads_when_empty(0) && !pace.reads_when_empty(1));
    }

    #[test]
    fn a_read_to_use_slots_again_is_for_several_blocks() {
        let pace = Pace::new(Refill::Adaptive, 64);
        let due: Vec<u64> =
            (1..=64).filter(|commits| pace.reads_to_reuse(0, 16, at(*commits))).collect();
        assert_eq!(due, [16, 32, 48, 64]);
        assert!(!pace.reads_to_reuse(1, 16, at(100)), "one is in flight");
        assert!((0..3).all(|_| pace.reads_to_reuse(0, 0, at(100))), "or for each");
    }

    #[test]
    fn a_fixed_threshold_stays_and_waits_between_reads() {
        let pace = Pace::new(Refill::Ahead { threshold: 4 }, 8);
        after_reads(&pace, 7, 1);
        assert!(!pace.reads_ahead(5, 0, at(10)));
        assert!(pace.reads_ahead(4, 0, at(10)));
        assert!(!pace.reads_ahead(3, 0, at(11)) && pace.reads_ahead(3, 0, at(12)));
        assert!(!pace.reads_ahead(1, 1, at(20)));
        assert!(!Pace::new(Refill::WhenEmpty, 8).reads_ahead(0, 0, at(20)));
    }

    #[test]
    fn reads_complete_in_the_order_in_which_they_were_posted() {
        let (pace, mut reads) = (Pace::new(Refill::Adaptive, 8), ReadsInFlight::default());
        for round in 0..3 {
            (0..MAX_READS as u64).for_each(|i| reads.posted(&pace, at(round + i)));
            assert!(!reads.has_room());
            (0..MAX_READS as u64)
                .for_each(|i| reads.completed(&pace, at(round + i), 1, false, false));
            assert_eq!(reads.count(), 0);
        }
    }
}
