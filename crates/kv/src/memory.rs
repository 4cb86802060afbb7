//! The store's memory as the server reaches it.
use crate::item;
use crate::operation::{Operation, Outcome, Step, Swap};
use catchment_verbs::mem::{MemError, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory that clients read and change meanwhile. Offsets are in bytes; those of words multiples of eight.
///
/// Who calls gives offsets inside of the memory: an implementation may panic at others.
pub trait Memory {
    /// Returns the bytes of it.
    fn bytes(&self) -> u64;
    /// Loads a word. What its writer wrote before is seen after.
    fn load(&self, at: u64) -> u64;
    /// Stores a word after all that was written before.
    fn store(&self, at: u64, value: u64);
    /// Compares and swaps a word; returns what was there.
    fn swap(&self, swap: Swap) -> u64;
    /// Copies bytes out.
    fn read(&self, at: u64, out: &mut [u8]);
    /// Copies bytes in.
    fn write(&self, at: u64, bytes: &[u8]);
}

/// Registered memory of this process.
#[derive(Debug, Clone)]
pub struct OwnMemory(pub Arc<Region>);

/// Who calls has checked the offset: what the server follows are words of tables and blocks that it gave away, and
/// what a client has written there is checked before.
fn inside<T>(result: Result<T, MemError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a place outside of the store's memory: {error}"),
    }
}

impl Memory for OwnMemory {
    fn bytes(&self) -> u64 {
        self.0.bytes() as u64
    }

    fn load(&self, at: u64) -> u64 {
        inside(self.0.whole().load_u64(at as usize, Ordering::Acquire))
    }

    fn store(&self, at: u64, value: u64) {
        inside(self.0.whole().atomic_u64(at as usize)).store(value, Ordering::Release);
    }

    fn swap(&self, Swap { at, compare, swap }: Swap) -> u64 {
        let word = inside(self.0.whole().atomic_u64(at as usize));
        let order = Ordering::SeqCst;
        word.compare_exchange(compare, swap, order, order).unwrap_or_else(|seen| seen)
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        inside(self.0.whole().read_at(at as usize, out));
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        inside(self.0.whole().write_at(at as usize, bytes));
    }
}

/// Carries out an operation on memory of this process. What was read last is in `bytes`. `wait` is called where
/// the operation waits for the server, and returns whether there is a use in it; `None` if there is none.
pub fn carry_out(
    memory: &dyn Memory,
    operation: &mut Operation<'_>,
    block: Option<u64>,
    bytes: &mut Vec<u8>,
    mut wait: impl FnMut(Step) -> bool,
) -> Option<Outcome> {
    let mut step = operation.start(None);
    loop {
        step = match step {
            Step::Read { at, bytes: count } => {
                bytes.resize(count as usize, 0);
                if at + u64::from(count) <= memory.bytes() {
                    read_words(memory, at, bytes);
                } else {
                    bytes.fill(0);
                }
                operation.read(bytes)
            }
            Step::Publish { version, mark, swap } => {
                operation.encode(version, bytes);
                if let Some(block) = block {
                    memory.write(block, bytes);
                }
                mark.filter(|mark| mark.at < memory.bytes()).map(|mark| memory.swap(mark));
                let found = memory.swap(swap);
                operation.published(found)
            }
            Step::Pause | Step::Grow(_) => {
                if !wait(step) {
                    return None;
                }
                operation.resume()
            }
            Step::Done(outcome) => return Some(outcome),
        };
    }
}

/// Reads what may be words: each of a group in one piece.
fn read_words(memory: &dyn Memory, at: u64, out: &mut [u8]) {
    if out.len() as u64 > crate::layout::UNIT_BYTES {
        return memory.read(at, out);
    }
    for (index, word) in out.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&memory.load(at + 8 * index as u64).to_le_bytes());
    }
}

/// Returns the beginning of the item at an offset: `None` if it is none or lies outside.
pub(crate) fn head(memory: &dyn Memory, at: u64, key: &mut Vec<u8>) -> Option<item::Head> {
    // What a client wrote into a word may lead anywhere.
    let bytes = (item::HEADER_BYTES + crate::layout::KEY_BYTES_MAX) as u64;
    let bytes = bytes.min(memory.bytes().checked_sub(at)?);
    key.resize(bytes as usize, 0);
    memory.read(at, key);
    let head = item::Head::decode(key)?;
    let name = head.key(key)?.to_vec();
    *key = name;
    Some(head)
}
