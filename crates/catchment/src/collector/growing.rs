//! A queue from one thread to one other that is large enough after a while.
//!
//! A stream has at most as many blocks as the ring, but rarely more than its share of them. So the
//! queue begins with room for that share, and doubles when it is full. Once it has grown to what
//! its stream needs, pushing and popping allocate nothing.
use super::primitives::{ArrayQueue, OnceLock};
use std::sync::Arc;

/// One piece of the queue. When it is full, the producer goes on in the next one.
struct Piece<T> {
    entries: ArrayQueue<T>,
    next: OnceLock<Arc<Self>>,
}

/// The end that pushes.
pub(super) struct Producer<T>(Arc<Piece<T>>);

/// The end that pops, in the order of the pushes.
pub(super) struct Consumer<T>(Arc<Piece<T>>);

impl<T> Piece<T> {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { entries: ArrayQueue::new(capacity), next: OnceLock::new() })
    }
}

/// Creates a queue with room for `capacity` entries, at least one, before it grows.
pub(super) fn growing_queue<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let piece = Piece::new(capacity.max(1));
    (Producer(piece.clone()), Consumer(piece))
}

impl<T> Producer<T> {
    /// Appends an entry.
    pub(super) fn push(&mut self, entry: T) {
        if let Err(entry) = self.0.entries.push(entry) {
            self.grow(entry);
        }
    }

    /// Returns for how many entries there is room before the queue grows again.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.entries.capacity()
    }

    #[cold]
    fn grow(&mut self, entry: T) {
        let next = Piece::new(2 * self.0.entries.capacity());
        // The new piece has room, and is this thread's alone until it is published.
        let pushed = next.entries.push(entry);
        debug_assert!(pushed.is_ok(), "an empty piece has room");
        let published = self.0.next.set(next.clone());
        debug_assert!(published.is_ok(), "one producer");
        self.0 = next;
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        loop {
            if let Some(entry) = self.0.entries.pop() {
                return Some(entry);
            }
            let next = self.0.next.get()?.clone();
            // The producer has left this piece, so what is in it now is all that ever will be.
            if let Some(entry) = self.0.entries.pop() {
                return Some(entry);
            }
            self.0 = next;
        }
    }
}
