//! A device with memory, and what is asked of it.
use anyhow::Result;
use catchment_sim::verbs::Fabric;
use catchment_verbs::{
    Access, Context, Cq, Mr, Pd, Provider as _, Qp, QpInit, RemoteAddr, RtrAttr, RtsAttr, SendOp,
};
use std::sync::Arc;

/// The longest request, in bytes.
pub(crate) const LONGEST: usize = 1 << 20;

/// What a connection asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Write(u32),
    Read(u32),
}

impl Ask {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::Write(bytes) | Self::Read(bytes) => bytes,
        }
    }

    pub(crate) fn op(self, at: RemoteAddr) -> SendOp {
        match self {
            Self::Write(_) => SendOp::Write(at),
            Self::Read(_) => SendOp::Read(at),
        }
    }
}

/// A device with memory that others may use.
pub(crate) struct Port {
    pub(crate) context: Arc<dyn Context>,
    pub(crate) pd: Arc<dyn Pd>,
    pub(crate) mr: Arc<dyn Mr>,
    cq: Arc<dyn Cq>,
    /// The ends of the queue pairs that others have with it.
    ends: Vec<Box<dyn Qp>>,
}

impl Port {
    pub(crate) fn open(fabric: &Fabric) -> Result<Self> {
        let context = fabric.provider().open("sim0")?;
        let pd = context.alloc_pd()?;
        let mr = pd.alloc_mr(LONGEST, Access::LOCAL_WRITE | Access::REMOTE)?;
        let cq = context.create_cq(16, None)?;
        Ok(Self { context, pd, mr, cq, ends: Vec::new() })
    }

    /// Makes a queue pair that is connected with one of the target.
    pub(crate) fn connect(
        &self,
        cq: &Arc<dyn Cq>,
        places: u32,
        target: &mut Self,
    ) -> Result<Box<dyn Qp>> {
        let mut ours = self.pd.create_qp(QpInit::rc(cq, places, 0))?;
        let mut theirs = target.pd.create_qp(QpInit::rc(&target.cq, 1, 1))?;
        let ends = [ours.endpoint(), theirs.endpoint()];
        ours.connect(Access::REMOTE, RtrAttr::new(ends[1]), RtsAttr::default())?;
        theirs.connect(Access::REMOTE, RtrAttr::new(ends[0]), RtsAttr::default())?;
        target.ends.push(theirs);
        Ok(ours)
    }

    pub(crate) fn remote(&self) -> RemoteAddr {
        RemoteAddr { addr: self.mr.addr(), rkey: self.mr.rkey() }
    }
}
