//! The gate of a link: committed blocks, until they may go.
use super::Granting;
use super::dropped::Dropped;
use catchment_transfer::{HeldBlock, PostingGate, Sender};
use catchment_verbs::sync::Mutex;
use crossbeam_queue::ArrayQueue;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes the blocks of one link.
pub struct LinkGate {
    granting: Arc<Granting>,
    blocks: ArrayQueue<HeldBlock>,
    /// The thread sleeps, or is about to.
    sleeps: AtomicBool,
    over: AtomicBool,
    /// What was dropped. Locked only where something was, and when the link ends.
    dropped: Mutex<Dropped>,
    has_dropped: AtomicBool,
}

/// A link whose blocks its gate takes.
pub struct NewLink {
    /// What takes its blocks.
    pub gate: Arc<LinkGate>,
    /// What they are posted with.
    pub sender: Sender,
    /// Bytes on the wire for each byte of payload.
    pub wire_factor: f64,
    /// The queue pair keeps a rate that is set.
    pub paces: bool,
    /// Requests are done inside of the post, and nobody announces that.
    pub is_immediate: bool,
}

impl std::fmt::Debug for LinkGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LinkGate({} blocks)", self.blocks.len())
    }
}

impl PostingGate for LinkGate {
    fn hold(&self, block: HeldBlock) {
        // There is room: one entry for every slot.
        let _ = self.blocks.push(block);
        self.wake();
    }

    fn completed(&self) {
        self.wake();
    }
}

impl LinkGate {
    pub(super) fn new(granting: Arc<Granting>, blocks: usize) -> Arc<Self> {
        let (sleeps, over) = (AtomicBool::new(true), AtomicBool::new(false));
        let (dropped, has_dropped) = (Mutex::default(), AtomicBool::new(false));
        let blocks = ArrayQueue::new(blocks);
        Arc::new(Self { granting, blocks, sleeps, over, dropped, has_dropped })
    }

    /// Says that nothing goes through the link any more, and nothing that it held is dropped.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.dropped.lock().is_over = true;
        self.granting.ring();
    }

    /// Returns the packet numbers of a stream whose frames were dropped as too late: the newest runs of them, in their
    /// order. All that the collector may still lack is in them.
    pub fn dropped(&self, stream: u32) -> Vec<Range<u64>> {
        self.dropped.lock().runs(stream)
    }

    /// Drops a block that was taken out and of which nothing was posted. Returns whether it is gone: not once the link
    /// is over.
    pub(super) fn drop_block(&self, sender: &Sender, block: &HeldBlock) -> bool {
        let mut dropped = self.dropped.lock();
        if dropped.is_over {
            return false;
        }
        let Some(numbers) = sender.take_back(block) else { return false };
        // What is not delivered lies between at most as many runs as there are blocks.
        dropped.add(block.stream, numbers, self.blocks.capacity() + 1);
        self.has_dropped.store(true, Ordering::Release);
        true
    }

    /// Lets a block of which nothing was posted say what was dropped directly before it.
    pub(super) fn begin(&self, sender: &Sender, block: &HeldBlock) {
        if !self.has_dropped.load(Ordering::Acquire) {
            return;
        }
        let dropped = self.dropped.lock();
        let before = dropped.before(block.stream, block.packet_number);
        if let Some(before) = before.filter(|_| !dropped.is_over) {
            sender.pass_over(block, &before);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Takes the next block out. Say with [`LinkGate::will_sleep`] that there was none before sleeping.
    pub(super) fn take(&self) -> Option<HeldBlock> {
        self.blocks.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Makes the next block and the next completion ring.
    pub(super) fn will_sleep(&self) {
        self.sleeps.store(true, Ordering::SeqCst);
    }

    fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            self.granting.ring();
        }
    }
}
