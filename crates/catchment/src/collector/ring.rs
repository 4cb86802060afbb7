//! A session's memory and queue pair at the collector.
use super::CollectorError;
use catchment_transfer::RingLayout;
use catchment_verbs::{
    Access, Context, Endpoint, ModifyError, Mr, Qp, QpInit, QpState, QpTransition, RtrAttr, RtsAttr,
};
use std::sync::Arc;

/// The registered ring and the queue pair through which one source reaches it.
///
/// The collector posts nothing on the queue pair: its queues have the smallest capacity there is.
pub(super) struct Ring {
    pub(super) mr: Arc<dyn Mr>,
    pub(super) layout: RingLayout,
    qp: Box<dyn Qp>,
}

impl Ring {
    /// Allocates and registers the memory. Touches all of it: takes a while for a large ring.
    pub(super) fn allocate(
        context: &Arc<dyn Context>,
        layout: RingLayout,
    ) -> Result<Ring, CollectorError> {
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.alloc_mr(layout.total_bytes(), access)?;
        let cq = context.create_cq(1, None)?;
        let mut qp = pd.create_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq,
            max_send_wr: 1,
            max_recv_wr: 0,
            max_sge: 1,
            max_inline_bytes: 0,
            strict: false,
        })?;
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        qp.modify(QpTransition::ToInit { access })?;
        Ok(Ring { mr, layout, qp })
    }

    /// What the source needs to write into the memory.
    pub(super) fn describe(&self) -> crate::session::message::Ring {
        crate::session::message::Ring {
            addr: self.mr.addr(),
            rkey: self.mr.rkey(),
            blocks: self.layout.blocks(),
            block_bytes: self.layout.block_bytes(),
            layout_hash: self.layout.hash(),
        }
    }

    /// What the source needs to reach the queue pair.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Makes the queue pair ready for the source's.
    pub(super) fn connect(&mut self, source: Endpoint) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(source)))?;
        self.qp.modify(QpTransition::ToRts(RtsAttr::default()))
    }

    /// Whether the provider has lost the source.
    pub(super) fn is_broken(&self) -> bool {
        self.qp.state() == QpState::Err
    }
}
