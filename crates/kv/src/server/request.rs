//! What the server does for a client that sends messages: the same operations, on its own memory.
use super::{Books, Shared};
use crate::layout::{KeyHash, UNIT_BYTES};
use crate::memory::{Memory as _, carry_out};
use crate::operation::{Block, Operation, Outcome, Step, What};
use crate::request::{HEADER_BYTES, Status, decode_request, encode_answer};
use crate::store::{NoBlock, Report};

/// Holds the blocks of the server's own PUTs.
const SERVER: u32 = 0;
/// So often an operation waits for a word to move, or a table to grow.
const WAITS: u32 = 1 << 20;

/// Writes the answer to a request into `out`.
pub(super) fn answer(shared: &Shared, request: &[u8], out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    let (status, version, value) = match decode_request(request) {
        Some((key, what)) => {
            let mut books = shared.books.lock();
            let answered = books.answer(shared, (key, what), &mut bytes);
            shared.wake_keeper(books);
            answered
        }
        None => (Status::Wrong, 0, &[][..]),
    };
    out.clear();
    out.extend_from_slice(&encode_answer(status, version, value.len()));
    debug_assert_eq!(out.len(), HEADER_BYTES);
    out.extend_from_slice(value);
}

impl Books {
    fn answer<'a>(
        &mut self,
        shared: &Shared,
        (key, what): (&[u8], What<'_>),
        bytes: &'a mut Vec<u8>,
    ) -> (Status, u64, &'a [u8]) {
        let memory = &shared.memory;
        let block = match what {
            What::Get => None,
            What::Put { .. } | What::Delete => {
                let units = Operation::units(key.len(), what);
                match self.store.take(SERVER, units, 1) {
                    Ok(blocks) => blocks.first().map(|at| Block { at: *at }),
                    Err(NoBlock::Later) => return (Status::Later, 0, &[]),
                    Err(NoBlock::Full) => return (Status::Full, 0, &[]),
                }
            }
        };
        let hash = KeyHash::new(self.store.seed(), key);
        let base = (self.store.table(), memory.bytes());
        let mut operation = Operation::new((key, hash), what, block, base);
        let mut waits = 0;
        let store = &mut self.store;
        let wait = |step| {
            if let Step::Grow(table) = step {
                store.ask_growth(table.generation);
            }
            waits += 1;
            (store.grow(memory) || waits < 2) && waits < WAITS
        };
        let at = block.map(|block| u64::from(block.at) * UNIT_BYTES);
        let outcome = carry_out(memory, &mut operation, at, bytes, wait);
        self.note(what, block, outcome);
        match outcome {
            Some(Outcome::Found { place, begins, bytes: count, .. }) => {
                (Status::Done, place.version, &bytes[begins..begins + count])
            }
            Some(Outcome::Absent { version }) => (Status::Absent, version.unwrap_or(0), &[]),
            Some(Outcome::Stored { place, .. }) => (Status::Done, place.version, &[]),
            Some(Outcome::Changed { version }) => (Status::Changed, version.unwrap_or(0), &[]),
            Some(Outcome::Damaged { at }) => (Status::Damaged, at.into(), &[]),
            None => (Status::Full, 0, &[]),
        }
    }

    fn note(&mut self, what: What<'_>, block: Option<Block>, outcome: Option<Outcome>) {
        let Some(Block { at }) = block else { return };
        let mut report = Report::default();
        match outcome {
            Some(Outcome::Stored { superseded, was, .. }) => {
                report.note(at, superseded, was, what != What::Delete);
            }
            _ => report.returned.push(at),
        }
        self.store.report(SERVER, &report);
    }
}
