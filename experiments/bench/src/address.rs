//! What the two processes of a measurement tell each other to connect queue pairs.
use anyhow::{Context, Result};
use catchment_verbs::{Access, Endpoint, Mr, Qp, QpTransition, RemoteAddr, RtrAttr, RtsAttr};
use serde::{Deserialize, Serialize};

/// Where a queue pair is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Address(String);

impl Address {
    /// Of this queue pair.
    pub(crate) fn of(qp: &dyn Qp) -> Address {
        Address(qp.endpoint().to_string())
    }

    /// Connects a queue pair to the one that is here; peers may do everything through it.
    pub(crate) fn connect(&self, qp: &mut dyn Qp) -> Result<()> {
        let remote: Endpoint = self.0.parse().context("where the peer's queue pair is")?;
        let access = Access::REMOTE;
        for step in [
            QpTransition::ToInit { access },
            QpTransition::ToRtr(RtrAttr::new(remote)),
            QpTransition::ToRts(patient()),
        ] {
            qp.modify(step)?;
        }
        Ok(())
    }
}

/// Returns the patience of a queue pair on a busy machine, where the peer may not run for half a second and is
/// not dead.
pub(crate) fn patient() -> RtsAttr {
    RtsAttr {
        timeout: 4 * RtsAttr::default().timeout,
        ..RtsAttr::default()
    }
}

/// Where registered memory begins.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Memory {
    addr: u64,
    rkey: u32,
}

impl Memory {
    /// Of this region.
    pub(crate) fn of(mr: &dyn Mr) -> Memory {
        Memory {
            addr: mr.addr(),
            rkey: mr.rkey(),
        }
    }

    /// As a request names it.
    pub(crate) fn remote(self) -> RemoteAddr {
        RemoteAddr {
            addr: self.addr,
            rkey: self.rkey,
        }
    }
}
