//! Requests of many connections at once, each with something by which it is known where it belongs: what went
//! elsewhere, and what never came, is counted.
use super::{Options, PATIENCE, Side};
use catchment_verbs::{Completion, Payload, SendOp, SendWr};
use std::time::Instant;

/// Bytes from one place of a connection to the next; 8 of them are written.
const SLOT: usize = 64;
const SLOTS: usize = 32;
const WORD: usize = 8;

/// Requests that went astray.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strays {
    /// Completions that were not the next one of their connection, and words where another one, or none, belongs.
    pub misrouted: u64,
    /// Requests that failed or never completed, and places that were never written.
    pub lost: u64,
}

/// What both sides of such a connection are made with.
pub fn exchange_options() -> Options {
    Options { bytes: 2 * SLOTS * SLOT, ..Options::default() }
}

/// A connection at work. Request `n` is a WRITE of its word into a place of its own, or, where `n` is odd, a READ of
/// the word before it into the other half of the memory.
struct Line<'a> {
    /// The connection's number.
    at: u64,
    sides: &'a mut (Side, Side),
    posted: u64,
    done: u64,
    strays: Strays,
}

impl Line<'_> {
    fn word(&self, n: u64) -> [u8; WORD] {
        ((self.at + 1) << 40 | n).to_ne_bytes()
    }

    fn place(n: u64) -> usize {
        (n / 2) as usize % SLOTS * SLOT
    }

    /// Posts as many as there are places for.
    fn post(&mut self, each: u64) {
        while self.posted < each && self.posted < self.done + 2 * SLOTS as u64 - 2 {
            let (n, place) = (self.posted, Self::place(self.posted));
            let word = self.word(n);
            let (a, b) = &mut *self.sides;
            let (op, from) = if n.is_multiple_of(2) {
                a.put(place, &word);
                (SendOp::Write(b.remote(place)), place)
            } else {
                (SendOp::Read(b.remote(place)), SLOTS * SLOT + place)
            };
            let sges = [a.sge(from, WORD)];
            a.post(SendWr::new(n, op, Payload::Sges(&sges)));
            self.posted += 1;
        }
    }

    /// Takes completions; returns whether there were any.
    fn take(&mut self) -> bool {
        let mut out = [Completion::EMPTY; 16];
        let taken = self.sides.0.send_cq.poll(&mut out).unwrap();
        for completion in &out[..taken] {
            let (n, qpn) = (self.done, self.sides.0.qp.qpn());
            self.done += 1;
            if (completion.wr_id, completion.qpn) != (n, qpn) {
                self.strays.misrouted += 1;
            } else if completion.result.is_err() {
                self.strays.lost += 1;
            } else if !n.is_multiple_of(2) {
                let seen = self.sides.0.get(SLOTS * SLOT + Self::place(n), WORD);
                self.strays.misrouted += u64::from(seen != self.word(n - 1));
            }
        }
        taken > 0
    }

    /// Looks at what the peer has: the last word of each place that was written, and nothing beside.
    fn look(&mut self, each: u64) {
        self.strays.lost += each - self.done.min(each);
        let writes = each.div_ceil(2);
        for slot in 0..SLOTS {
            let bytes = self.sides.1.get(slot * SLOT, SLOT);
            let (word, beside) = bytes.split_at(WORD);
            let owner = u64::from_ne_bytes(word.try_into().unwrap()) >> 40;
            let is_written = (slot as u64) < writes;
            self.strays.lost += u64::from(is_written && owner == 0);
            let is_foreign = owner != 0 && owner != self.at + 1;
            let is_astray = is_foreign || beside.iter().any(|byte| *byte != 0);
            self.strays.misrouted += u64::from(is_astray);
        }
        let other_half = self.sides.1.get(SLOTS * SLOT, SLOTS * SLOT);
        self.strays.misrouted += u64::from(other_half.iter().any(|byte| *byte != 0));
    }
}

/// Posts WRITEs and READs over all connections at once, so many in all, and counts what went astray. `meanwhile` is called
/// with the number of each round. Ends when nothing came for [`PATIENCE`].
pub fn exchange(
    pairs: &mut [(Side, Side)],
    requests: u64,
    mut meanwhile: impl FnMut(u64),
) -> Strays {
    let each = requests / pairs.len() as u64;
    let line = |(at, sides)| Line { at, sides, posted: 0, done: 0, strays: Strays::default() };
    let mut lines: Vec<Line<'_>> = (0..).zip(pairs).map(line).collect();
    let (mut round, mut moved) = (0, Instant::now());
    while lines.iter().any(|line| line.done < each) && moved.elapsed() < PATIENCE {
        round += 1;
        meanwhile(round);
        for line in &mut lines {
            line.post(each);
            if line.take() {
                moved = Instant::now();
            } else {
                std::thread::yield_now();
            }
        }
    }
    lines.iter_mut().for_each(|line| line.look(each));
    lines.iter().fold(Strays::default(), |sum, Line { strays, .. }| Strays {
        misrouted: sum.misrouted + strays.misrouted,
        lost: sum.lost + strays.lost,
    })
}
