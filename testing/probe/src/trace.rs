//! Records what an end posts: evidence from outside of the mechanism.
//!
//! [`Trace::of`] wraps the queue pair of a mechanism and counts every request by kind, to compare with
//! what the mechanism reports.
use crate::forward::forward;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Delivery, Endpoint, ModifyError, Payload, PostError, Qp, QpState, QpTransition, RateError,
    RateLimit, RecvWr, RemoteMapError, RemoteWindow, SendOp, SendWr, Watch,
};
use std::sync::Arc;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Write,
    WriteImm,
    Read,
    Send,
    /// Compare-and-swap or fetch-and-add.
    Atomic,
}

/// A posted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// What it does.
    pub kind: Kind,
    /// Length of its message.
    pub bytes: u64,
    /// Whether its bytes were copied when it was posted.
    pub is_inline: bool,
    /// Whether it generates a completion.
    pub signaled: bool,
    /// Number of the call that posted it: requests of one call are linked.
    pub call: u64,
    pub imm: Option<u32>,
}

/// Requests by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    pub writes: u64,
    pub write_imms: u64,
    pub reads: u64,
    pub sends: u64,
    pub atomics: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Requests that generate a completion.
    pub signaled: u64,
    /// Calls that posted them.
    pub calls: u64,
    pub receives: u64,
    /// Calls that posted receives.
    pub receive_calls: u64,
}

impl Requests {
    /// Returns the number of messages on the wire that this end initiates.
    pub fn messages(&self) -> u64 {
        self.writes + self.write_imms + self.reads + self.sends + self.atomics
    }
}

/// What one queue pair posted.
#[derive(Debug)]
pub struct Trace {
    seen: Mutex<(Requests, Vec<Posted>)>,
    keep: usize,
}

impl Trace {
    /// Wraps `qp` in a trace, which keeps the first `keep` requests in full.
    pub fn of(qp: Box<dyn Qp>, keep: usize) -> (Box<dyn Qp>, Arc<Self>) {
        let seen = Mutex::new((Requests::default(), Vec::with_capacity(keep)));
        let trace = Arc::new(Self { seen, keep });
        (Box::new(TracedQp { qp, trace: Arc::clone(&trace) }), trace)
    }

    /// Returns the sums over all requests posted so far.
    pub fn requests(&self) -> Requests {
        self.seen.lock().0
    }

    /// Returns the first requests.
    pub fn first(&self) -> Vec<Posted> {
        self.seen.lock().1.clone()
    }

    fn note(&self, requests: &[SendWr<'_>]) {
        let (sums, first) = &mut *self.seen.lock();
        for wr in requests {
            let posted = seen(wr, sums.calls);
            *match posted.kind {
                Kind::Write => &mut sums.writes,
                Kind::WriteImm => &mut sums.write_imms,
                Kind::Read => &mut sums.reads,
                Kind::Send => &mut sums.sends,
                Kind::Atomic => &mut sums.atomics,
            } += 1;
            sums.bytes += posted.bytes;
            sums.signaled += u64::from(posted.signaled);
            if first.len() < self.keep {
                first.push(posted);
            }
        }
        sums.calls += u64::from(!requests.is_empty());
    }
}

fn seen(wr: &SendWr<'_>, call: u64) -> Posted {
    let (kind, imm) = match wr.op {
        SendOp::Write(_) => (Kind::Write, None),
        SendOp::WriteImm(_, imm) => (Kind::WriteImm, Some(imm)),
        SendOp::Read(_) => (Kind::Read, None),
        SendOp::Send | SendOp::SendInvalidate(_) | SendOp::SendTo(_) => (Kind::Send, None),
        SendOp::SendImm(imm) | SendOp::SendImmTo(_, imm) => (Kind::Send, Some(imm)),
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => (Kind::Atomic, None),
    };
    Posted {
        kind,
        bytes: wr.payload.bytes(),
        is_inline: matches!(wr.payload, Payload::Inline(_)),
        signaled: wr.signaled,
        call,
        imm,
    }
}

/// A traced queue pair.
struct TracedQp {
    qp: Box<dyn Qp>,
    trace: Arc<Trace>,
}

impl Qp for TracedQp {
    forward! { self.qp;
        fn qpn() -> u32;
        fn state() -> QpState;
        fn endpoint() -> Endpoint;
        fn delivery() -> Option<Delivery>;
        fn map_remote(addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError>;
        fn watch_remote(rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError>;
    }

    forward! { mut self.qp;
        fn modify(transition: QpTransition) -> Result<(), ModifyError>;
        fn set_rate(limit: Option<RateLimit>) -> Result<(), RateError>;
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let result = self.qp.post_send(requests);
        let posted = result.err().map_or(requests.len(), |error| error.index);
        self.trace.note(&requests[..posted]);
        result
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let result = self.qp.post_recv(requests);
        let posted = result.err().map_or(requests.len(), |error| error.index);
        let sums = &mut self.trace.seen.lock().0;
        sums.receives += posted as u64;
        sums.receive_calls += u64::from(posted > 0);
        result
    }
}
