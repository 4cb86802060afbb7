//! The time that counts: begun and ended at both sides, with what each used in it.
use crate::PerfError;
use crate::control::{Control, PATIENCE};
use crate::endpoint::LocalDevice;
use crate::message::{Reply, Request};
use crate::meter::Usage;
use crate::row::Row;
use std::time::{Duration, Instant};

/// Requests of the active side that went astray, of all that it posted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strays {
    /// Completions that were not one of the next of their connection: each carries the connection's and the
    /// request's number.
    pub misrouted: u64,
    /// Requests that had no completion in the end. Who waits for one for too long fails, with
    /// [`PerfError::Silent`].
    pub lost: u64,
}

/// What one plan found.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The figures.
    pub row: Row,
    /// From the beginning of what was measured to its end.
    pub time: Duration,
    /// What the active side used in that time.
    pub active: Usage,
    /// What the passive side used in that time.
    pub passive: Usage,
    /// What went astray, where requests are numbered: in tests of bandwidth.
    pub strays: Strays,
}

impl Measured {
    fn new(mut row: Row, time: Duration, active: Usage, passive: Usage) -> Self {
        let percent = |usage: &Usage| usage.cpu_s / time.as_secs_f64() * 100.0;
        row.set_cpu(percent(&active), percent(&passive));
        Self { row, time, active, passive, strays: Strays::default() }
    }
}

/// The time that counts, at the active side.
pub(crate) struct Span {
    before: Usage,
    start: Instant,
    /// Its length and what was used in it, once it has stopped.
    spent: (Duration, Usage),
}

impl Span {
    /// Begins at both sides.
    pub(crate) fn begin(control: &mut Control, device: &LocalDevice) -> Result<Self, PerfError> {
        control.send(&Request::Begin)?;
        let reply: Reply = control.recv("begun", PATIENCE)?;
        if !matches!(reply, Reply::Begun) {
            return Err(reply.unexpected("begun"));
        }
        Ok(Self::start(device))
    }

    /// Begins at this side.
    pub(crate) fn start(device: &LocalDevice) -> Self {
        let before = Usage::now(&*device.counters);
        Self { before, start: Instant::now(), spent: (Duration::ZERO, Usage::default()) }
    }

    /// Ends at this side.
    pub(crate) fn stop(&mut self, device: &LocalDevice) {
        self.spent = (self.start.elapsed(), Usage::now(&*device.counters).since(&self.before));
    }

    /// Returns what was found in it.
    pub(crate) fn measured(self, row: Row, passive: Usage) -> Measured {
        let (time, active) = self.spent;
        Measured::new(row, time, active, passive)
    }

    /// Ends at the other side, which has taken all.
    pub(crate) fn end(
        self,
        control: &mut Control,
        requests: u64,
        row: Row,
    ) -> Result<Measured, PerfError> {
        control.send(&Request::Over { requests })?;
        Ok(self.measured(row, used(control)?))
    }
}

/// Receives what the passive side used.
pub(crate) fn used(control: &mut Control) -> Result<Usage, PerfError> {
    let reply: Reply = control.recv("used", PATIENCE)?;
    let Reply::Used { usage } = reply else { return Err(reply.unexpected("used")) };
    Ok(usage)
}

/// Receives the active side's word that all was sent, and how many requests that were.
pub(crate) fn over(control: &mut Control, within: Duration) -> Result<u64, PerfError> {
    let request = control.recv::<Request>("over", within)?;
    let Request::Over { requests } = request else { return Err(request.unexpected("over")) };
    Ok(requests)
}
