//! A queue pair of the provider for processes of one host, and how two roles connect theirs.
use crate::job::Queues;
use anyhow::{Context as _, Result};
use catchment_verbs::{
    Access, Context, Cq, Endpoint, Pd, Qp, QpInit, QpTransition, RtrAttr, RtsAttr,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where a queue pair is, as one role tells the other.
#[derive(Serialize, Deserialize)]
pub(super) struct Address(String);

/// A queue pair that only sends, with its completion queue.
pub(super) struct QueuePair {
    pub(super) qp: Box<dyn Qp>,
    pub(super) cq: Arc<dyn Cq>,
}

/// Inline bytes of a request.
pub(super) const MAX_INLINE_BYTES: u32 = 64;

impl QueuePair {
    /// One with room for so many requests and so many completions.
    pub(super) fn new(
        context: &dyn Context,
        pd: &dyn Pd,
        max_send_wr: u32,
        completions: u32,
    ) -> Result<QueuePair> {
        let cq = context.create_cq(completions, None)?;
        let qp = pd.create_qp(QpInit {
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            max_send_wr,
            max_recv_wr: 0,
            max_sge: 1,
            max_inline_bytes: MAX_INLINE_BYTES,
            strict: false,
        })?;
        Ok(QueuePair { qp, cq })
    }

    /// What the device keeps for it.
    pub(super) fn queues(max_send_wr: u32, completions: u32) -> Queues {
        Queues {
            queue_pairs: 1,
            completion_queues: 1,
            send_queue_depth: max_send_wr,
            receive_queue_depth: 0,
            completion_queue_depth: completions,
        }
    }

    /// Connects it to the peer's.
    pub(super) fn connect(&mut self, peer: &Address) -> Result<()> {
        let remote = peer.endpoint()?;
        let access = Access::REMOTE;
        self.qp.modify(QpTransition::ToInit { access })?;
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(remote)))?;
        self.qp.modify(QpTransition::ToRts(RtsAttr::default()))?;
        Ok(())
    }

    /// Where it is.
    pub(super) fn address(&self) -> Address {
        Address(self.qp.endpoint().to_string())
    }
}

impl Address {
    fn endpoint(&self) -> Result<Endpoint> {
        self.0.parse().context("where the peer's queue pair is")
    }
}
