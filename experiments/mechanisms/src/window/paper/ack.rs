//! The sender's side of acknowledgements.
use super::ACK_BYTES;
use crate::{EndError, FirstError, Helper, PeerFault};
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::{CqWatch, Doorbell};
use catchment_verbs::{Completion, Cq, Mr, PostError, Qp, QpState, RecvWr, Sge, Watch, WcOpcode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the sending thread and the thread for acknowledgements share.
pub(super) struct Window {
    pub(super) blocks: u32,
    /// Blocks acknowledged: the tail.
    pub(super) tail: AtomicU64,
    /// Two threads post here, and a `Qp` has no lock.
    pub(super) qp: Mutex<Box<dyn Qp>>,
    pub(super) broken: FirstError,
    /// Wakes the sending thread when the tail has moved.
    pub(super) bell: Arc<Doorbell>,
}

impl Window {
    pub(super) fn new(blocks: u32, qp: Box<dyn Qp>, bell: Arc<Doorbell>) -> Self {
        Self {
            blocks,
            tail: AtomicU64::new(0),
            qp: Mutex::new(qp),
            broken: FirstError::default(),
            bell,
        }
    }

    /// Detects the end of the session where no request would.
    pub(super) fn check(&self) -> Result<(), EndError> {
        if self.qp.lock().state() == QpState::Err {
            self.broken.set(EndError::PeerGone);
        }
        self.broken.check()
    }
}

/// Takes acknowledgements and moves the tail of the window. In the paper it has a thread of its own
/// ([`Helper`]); without one, the sending thread does its work when the window is full.
pub struct AckThread {
    pub(super) window: Arc<Window>,
    cq: Arc<dyn Cq>,
    acks: Arc<dyn Mr>,
    watch: Arc<CqWatch>,
}

impl AckThread {
    /// Posts the first receives.
    pub(super) fn new(
        window: Arc<Window>,
        cq: Arc<dyn Cq>,
        acks: Arc<dyn Mr>,
        watch: Arc<CqWatch>,
    ) -> Result<Self, PostError> {
        let thread = Self { window, cq, acks, watch };
        (0..u64::from(thread.window.blocks)).try_for_each(|buffer| thread.post(buffer))?;
        Ok(thread)
    }

    /// Posts the receive with this buffer.
    fn post(&self, buffer: u64) -> Result<(), PostError> {
        let sges = [Sge {
            addr: self.acks.addr() + buffer * u64::from(ACK_BYTES),
            bytes: ACK_BYTES,
            lkey: self.acks.lkey(),
        }];
        self.window.qp.lock().post_recv(&[RecvWr { wr_id: buffer, sges: &sges }])
    }

    /// Takes one acknowledgement, if one is there.
    pub(super) fn take(&self) -> Result<bool, EndError> {
        let mut out = [Completion::EMPTY];
        if self.cq.poll(&mut out)? == 0 {
            return Ok(false);
        }
        let [completion] = out;
        let success = completion.result.map_err(EndError::from)?;
        let is_ack = success.opcode == WcOpcode::Recv && success.bytes == u64::from(ACK_BYTES);
        if !is_ack {
            return Err(PeerFault::Message(success.bytes).into());
        }
        self.note(completion.wr_id)?;
        Ok(true)
    }

    /// Says whether the queue has overrun.
    pub(super) fn check_queue(&self) -> Result<(), EndError> {
        Ok(self.cq.poll(&mut []).map(drop)?)
    }

    fn note(&self, buffer: u64) -> Result<(), EndError> {
        let mut bytes = [0; ACK_BYTES as usize];
        let offset = (buffer * u64::from(ACK_BYTES)) as usize;
        self.acks.region().whole().read_at(offset, &mut bytes).expect("a buffer that was posted");
        let position = u32::from_be_bytes(bytes);
        let tail = self.window.tail.load(Ordering::Relaxed);
        if u64::from(position) != tail % u64::from(self.window.blocks) {
            return Err(PeerFault::Acknowledgement(position).into());
        }
        // The next block in this place will be acknowledged into this receive.
        self.post(buffer)?;
        self.window.tail.store(tail + 1, Ordering::Release);
        Ok(())
    }

    pub(super) fn cq_watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }
}

impl Helper for AckThread {
    fn step(&mut self) -> Result<bool, EndError> {
        let result = self.window.broken.check().and_then(|()| self.take());
        if let Err(error) = result {
            self.window.broken.set(error);
            self.window.bell.ring();
        }
        if result? {
            self.window.bell.ring();
            return Ok(true);
        }
        Ok(false)
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(self.cq_watch())
    }
}
