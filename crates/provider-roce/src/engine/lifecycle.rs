//! Queue pairs are added, change their state, and are removed: rare, and under the engine's lock.
use super::Engine;
use super::entry::{Parts, Peer, QpEntry};
use super::posting::accept;
use crate::io::{Opener, Sealer};
use catchment_roce as roce;
use catchment_verbs::{Delivery, ModifyError, QpState, RateLimit, VerbsError};
use std::sync::Arc;

impl Engine {
    /// Adds a queue pair; returns its place and its number.
    pub(crate) fn add(&mut self, parts: Parts) -> Result<(usize, u32), VerbsError> {
        self.qps.insert(|qpn| {
            QpEntry::new(Parts { config: roce::Config { qpn, ..parts.config }, ..parts })
        })
    }

    /// Removes a queue pair. Outstanding requests vanish.
    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(entry) = self.qps.remove(index) {
            self.retired += entry.qp.counters();
            entry.shared.set_state(QpState::Reset);
        }
    }

    /// To RESET: outstanding requests vanish without completions.
    pub(crate) fn reset(&mut self, index: usize) {
        let Some(entry) = self.qps.get(index) else { return };
        while entry.shared.sends.pop().is_some() {}
        while entry.shared.recvs.pop().is_some() {}
        entry.backlog.clear();
        entry.wrong = None;
        entry.holds = false;
        entry.cause = None;
        entry.peer = None;
        (entry.sealer, entry.opener) = (None, None);
        entry.qp.reset();
        entry.sends.clear();
        entry.recvs.clear();
        entry.shared.set_state(QpState::Reset);
    }

    pub(crate) fn init(&mut self, index: usize, attr: roce::InitAttr) -> Result<(), ModifyError> {
        self.change(index, QpState::Init, |entry| {
            entry.qkey = attr.qkey;
            entry.qp.init(attr)
        })
    }

    /// To RTR; with both keys if the packets are authenticated.
    pub(crate) fn connect(
        &mut self,
        index: usize,
        peer: Option<Peer>,
        keys: Option<(Sealer, Opener)>,
        attr: roce::RtrAttr,
    ) -> Result<(), ModifyError> {
        self.change(index, QpState::Rtr, |entry| {
            entry.qp.rtr(attr)?;
            entry.peer = peer;
            let (sealer, opener) = keys.unzip();
            (entry.sealer, entry.opener) = (sealer.map(Arc::new), opener);
            let checks_ids = attr.recovery == roce::Recovery::GoBackN;
            let over_v4 = peer.is_some_and(|peer| peer.address.is_ipv4());
            entry.trusts_gso = checks_ids && over_v4;
            Ok(())
        })
    }

    /// To RTS, or on from SQD and SQE.
    pub(crate) fn start(&mut self, index: usize, attr: roce::RtsAttr) -> Result<(), ModifyError> {
        self.change(index, QpState::Rts, |entry| {
            if entry.qp.state() == QpState::Rtr {
                entry.qp.rts(attr)?;
            } else if entry.qp.state() == QpState::Sqe {
                entry.qp.resume()?;
            }
            entry.holds = false;
            Ok(())
        })
    }

    /// To SQD: what was posted before is done, what comes later waits.
    pub(crate) fn hold(&mut self, index: usize) -> Result<(), ModifyError> {
        self.change(index, QpState::Sqd, |entry| {
            accept(entry);
            entry.holds = true;
            Ok(())
        })
    }

    /// Limits the rate of a queue pair; waiting packets follow the new one.
    pub(crate) fn set_rate(&mut self, index: usize, limit: Option<RateLimit>) {
        if let Some(entry) = self.qps.get(index) {
            entry.qp.set_rate(limit);
        }
        self.touch(index);
    }

    /// Returns what became of the packets of a queue pair.
    pub(crate) fn delivery(&mut self, index: usize) -> Option<Delivery> {
        self.qps.get(index).map(|entry| entry.qp.delivery())
    }

    /// To the error state.
    pub(crate) fn fail(&mut self, index: usize) {
        let _never = self.change(index, QpState::Err, |entry| {
            // What was posted before is flushed too, in its place.
            entry.holds = false;
            accept(entry);
            entry.qp.set_error();
            Ok(())
        });
    }

    /// Makes a change and publishes the state, unless the queue pair has failed meanwhile.
    fn change(
        &mut self,
        index: usize,
        to: QpState,
        change: impl FnOnce(&mut QpEntry) -> Result<(), ModifyError>,
    ) -> Result<(), ModifyError> {
        if let Some(entry) = self.qps.get(index) {
            change(entry)?;
            let failed = match entry.qp.state() {
                QpState::Err => to != QpState::Err,
                QpState::Sqe => to == QpState::Sqd,
                QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd => {
                    false
                }
            };
            if !failed {
                entry.shared.set_state(to);
            }
            accept(entry);
        }
        self.touch(index);
        Ok(())
    }
}
