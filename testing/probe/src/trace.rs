//! What an end really posts: evidence from outside of the mechanism.
//!
//! [`Trace::of`] puts itself between a mechanism and its queue pair and counts every request by its
//! kind. What a mechanism says about itself can be compared with it.
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Endpoint, ModifyError, Payload, PostError, Qp, QpState, QpTransition, RateError, RecvWr,
    RemoteMapError, RemoteWindow, SendOp, SendWr, Watch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// WRITE.
    Write,
    /// WRITE_WITH_IMM.
    WriteImm,
    /// READ.
    Read,
    /// SEND, with an immediate or without.
    Send,
    /// Compare-and-swap or fetch-and-add.
    Atomic,
}

/// A request that was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// What it does.
    pub kind: Kind,
    /// Length of its message.
    pub bytes: u64,
    /// Its bytes were copied while posting.
    pub is_inline: bool,
    /// It makes a completion.
    pub signaled: bool,
    /// Number of the call that posted it: requests of one call are linked.
    pub call: u64,
    /// Its immediate.
    pub imm: Option<u32>,
}

/// Requests by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// WRITEs.
    pub writes: u64,
    /// WRITEs with an immediate.
    pub write_imms: u64,
    /// READs.
    pub reads: u64,
    /// SENDs.
    pub sends: u64,
    /// Atomics.
    pub atomics: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Requests that make a completion.
    pub signaled: u64,
    /// Calls that posted them.
    pub calls: u64,
    /// Receives posted.
    pub receives: u64,
    /// Calls that posted receives.
    pub receive_calls: u64,
}

impl Requests {
    /// Messages on the wire that this end starts.
    pub fn messages(&self) -> u64 {
        self.writes + self.write_imms + self.reads + self.sends + self.atomics
    }
}

/// What one queue pair posted.
#[derive(Debug)]
pub struct Trace {
    counts: [AtomicU64; 10],
    /// The first requests, so many as there is room for.
    first: Mutex<Vec<Posted>>,
    keep: usize,
}

impl Trace {
    /// Puts a trace before `qp`. Of the first `keep` requests it keeps all that it saw.
    pub fn of(qp: Box<dyn Qp>, keep: usize) -> (Box<dyn Qp>, Arc<Trace>) {
        let trace = Arc::new(Trace {
            counts: Default::default(),
            first: Mutex::new(Vec::with_capacity(keep)),
            keep,
        });
        let traced = TracedQp { qp, trace: Arc::clone(&trace) };
        (Box::new(traced), trace)
    }

    /// All requests that were posted so far.
    pub fn requests(&self) -> Requests {
        let [
            writes,
            write_imms,
            reads,
            sends,
            atomics,
            bytes,
            signaled,
            calls,
            receives,
            receive_calls,
        ] = self.counts.each_ref().map(|n| n.load(Ordering::Relaxed));
        Requests {
            writes,
            write_imms,
            reads,
            sends,
            atomics,
            bytes,
            signaled,
            calls,
            receives,
            receive_calls,
        }
    }

    /// The first requests.
    pub fn first(&self) -> Vec<Posted> {
        let first = self.first.lock();
        first.clone()
    }

    fn add(&self, count: Count, n: u64) -> u64 {
        self.counts[count as usize].fetch_add(n, Ordering::Relaxed)
    }

    fn note(&self, requests: &[SendWr<'_>]) {
        if requests.is_empty() {
            return;
        }
        let call = self.add(Count::Calls, 1);
        for wr in requests {
            let posted = seen(wr, call);
            self.add(count_of(posted.kind), 1);
            self.add(Count::Bytes, posted.bytes);
            self.add(Count::Signaled, posted.signaled.into());
            let mut first = self.first.lock();
            if first.len() < self.keep {
                first.push(posted);
            }
        }
    }
}

/// Places in [`Trace::counts`].
#[derive(Clone, Copy)]
enum Count {
    Writes,
    WriteImms,
    Reads,
    Sends,
    Atomics,
    Bytes,
    Signaled,
    Calls,
    Receives,
    ReceiveCalls,
}

fn count_of(kind: Kind) -> Count {
    match kind {
        Kind::Write => Count::Writes,
        Kind::WriteImm => Count::WriteImms,
        Kind::Read => Count::Reads,
        Kind::Send => Count::Sends,
        Kind::Atomic => Count::Atomics,
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

/// A queue pair that is looked at.
struct TracedQp {
    qp: Box<dyn Qp>,
    trace: Arc<Trace>,
}

impl Qp for TracedQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        self.qp.modify(transition)
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
        self.trace.add(Count::Receives, posted as u64);
        self.trace.add(Count::ReceiveCalls, u64::from(posted > 0));
        result
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), RateError> {
        self.qp.set_rate(rate_bps)
    }

    fn map_remote(&self, addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError> {
        self.qp.map_remote(addr, bytes, rkey)
    }

    fn watch_remote(&self, rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        self.qp.watch_remote(rkey)
    }
}
