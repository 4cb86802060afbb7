//! A queue pair of the provider for processes of one host, and how two roles connect theirs.
use crate::address::{Address, Memory};
use crate::control::Control;
use crate::job::Queues;
use anyhow::Result;
use catchment_verbs::{Context, Cq, Mr, Pd, Qp, QpInit, RemoteAddr, Service};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
            service: Service::Rc,
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
}

/// What a role tells the other one.
#[derive(Serialize, Deserialize)]
struct Hello {
    /// Of the queue pair by which this role sends.
    out: Address,
    /// Of the queue pair by which this role receives.
    back: Address,
    /// Into which the other role writes.
    ring: Memory,
}

/// Connects both ways and says where the other role's ring is. Both roles are connected when this
/// returns.
pub(super) fn connect(
    control: &mut Control,
    out: &mut QueuePair,
    back: &mut QueuePair,
    ring: &dyn Mr,
) -> Result<RemoteAddr> {
    control.send(&Hello {
        out: Address::of(&*out.qp),
        back: Address::of(&*back.qp),
        ring: Memory::of(ring),
    })?;
    let peer: Hello = control.recv()?;
    peer.back.connect(&mut *out.qp)?;
    peer.out.connect(&mut *back.qp)?;
    control.meet()?;
    Ok(peer.ring.remote())
}
