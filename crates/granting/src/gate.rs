//! The gate of a link: committed blocks, until they may go.
use super::Granting;
use catchment_transfer::{HeldBlock, PostingGate, Sender};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes the blocks of one link.
pub struct LinkGate {
    granting: Arc<Granting>,
    blocks: ArrayQueue<HeldBlock>,
    /// The thread sleeps, or is about to.
    sleeps: AtomicBool,
    over: AtomicBool,
}

/// A link whose blocks its gate takes.
pub struct NewLink {
    /// What takes its blocks.
    pub gate: Arc<LinkGate>,
    /// What they are posted with.
    pub sender: Sender,
    /// Bytes on the wire for each byte of payload.
    pub wire_factor: f64,
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
        Arc::new(Self { granting, blocks: ArrayQueue::new(blocks), sleeps, over })
    }

    /// Says that nothing goes through the link any more.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.granting.ring();
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
