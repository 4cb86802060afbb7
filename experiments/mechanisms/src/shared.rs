//! What the ends of several mechanisms share: the error that ended them, a queue pair that any thread
//! may use, and slots that any thread may release.
use super::EndError;
pub(crate) use catchment_channel::FirstError;
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;

/// Returns a queue with room for `count` slots that holds all of them.
pub(crate) fn all_slots(count: u32) -> ArrayQueue<u32> {
    let slots = ArrayQueue::new(count as usize);
    for slot in 0..count {
        let _ = slots.push(slot);
    }
    slots
}

/// A queue pair that one thread at a time uses.
pub(crate) struct InTurn<L>(AtomicCell<Option<Box<L>>>);

impl<L> InTurn<L> {
    pub(crate) fn new(link: L) -> Self {
        Self(AtomicCell::new(Some(Box::new(link))))
    }

    /// Repeats `work` until `is_more_due` denies its result. If another thread has the queue pair, that
    /// one asks again after it has put it back: taking it and putting it back are exchanges of one
    /// value, so a thread that comes in vain has left its work before that question.
    pub(crate) fn work<T>(
        &self,
        mut work: impl FnMut(&mut L) -> Result<T, EndError>,
        is_more_due: impl Fn(T) -> bool,
    ) -> Result<(), EndError> {
        while let Some(result) = self.with(&mut work) {
            if !is_more_due(result?) {
                break;
            }
        }
        Ok(())
    }

    /// Uses it once; `None` while another thread has it.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut L) -> T) -> Option<T> {
        let mut link = self.0.take()?;
        let result = work(&mut link);
        let before = self.0.swap(Some(link));
        debug_assert!(before.is_none(), "two threads have one queue pair");
        Some(result)
    }
}
