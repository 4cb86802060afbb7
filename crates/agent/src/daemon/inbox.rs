//! Receives of a shared queue pair for what the other agent says in band, and what arrived in them.
use crate::inband::{MESSAGE_BYTES, Message};
use catchment_verbs::{Access, Mr, Pd, Qp, RecvWr, Sge, VerbsError};
use std::sync::Arc;

/// Receives that an agent has posted on each shared queue pair.
pub(super) const INBOX: u32 = 512;
/// Marks receives; the others are counted from 0.
const IN: u64 = 1 << 63;

/// What arrived over a shared queue pair.
pub(super) struct Arrived {
    pub(super) host: u32,
    /// Where.
    pub(super) place: usize,
    /// The number of the queue pair here.
    pub(super) to: u32,
    /// A message of an application, of so many bytes, that is in its receive; else an in-band message.
    pub(super) written: Option<u64>,
    bytes: [u8; MESSAGE_BYTES],
    count: usize,
}

impl Arrived {
    pub(super) fn message(&self) -> Option<Message<'_>> {
        Message::decode(&self.bytes[..self.count])
    }
}

/// Memory of the receives of a shared queue pair, which are all posted.
pub(super) struct Inbox {
    mr: Arc<dyn Mr>,
}

impl Inbox {
    /// Posts all receives of a queue pair in INIT.
    pub(super) fn new(pd: &dyn Pd, qp: &mut dyn Qp) -> Result<Self, VerbsError> {
        let bytes = INBOX as usize * MESSAGE_BYTES;
        let inbox = Self { mr: pd.alloc_mr(bytes, Access::LOCAL_WRITE)? };
        for slot in 0..INBOX.into() {
            inbox.post(qp, slot).map_err(|reason| VerbsError::Invalid(reason.to_owned()))?;
        }
        Ok(inbox)
    }

    fn post(&self, qp: &mut dyn Qp, slot: u64) -> Result<(), &'static str> {
        let addr = self.mr.addr() + slot * MESSAGE_BYTES as u64;
        let sges = [Sge { addr, bytes: MESSAGE_BYTES as u32, lkey: self.mr.lkey() }];
        let posted = qp.post_recv(&[RecvWr { wr_id: IN | slot, sges: &sges }]);
        posted.map_err(|_| "receives of a shared queue pair")
    }

    /// Returns whether a `wr_id` is one of its receives.
    pub(super) fn has(wr_id: u64) -> bool {
        wr_id & IN != 0
    }

    /// Takes what is in a receive, and posts it again.
    pub(super) fn take(
        &self,
        qp: &mut dyn Qp,
        wr_id: u64,
        (host, place, to): (u32, usize, u32),
        (written, bytes): (bool, u64),
    ) -> Option<Arrived> {
        let slot = wr_id & !IN;
        let written = written.then_some(bytes);
        let count = if written.is_some() { 0 } else { (bytes as usize).min(MESSAGE_BYTES) };
        let bytes = [0; MESSAGE_BYTES];
        let mut arrived = Arrived { host, place, to, written, bytes, count };
        let offset = slot as usize * MESSAGE_BYTES;
        self.mr.region().whole().read_at(offset, &mut arrived.bytes[..count]).ok()?;
        self.post(qp, slot).ok()?;
        Some(arrived)
    }
}
