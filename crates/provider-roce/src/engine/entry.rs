//! One queue pair in the engine, and what its owner's thread shares with it.
use super::tuning;
use crate::io::{Opener, Route, Sealer};
use crate::keys::KeyTable;
use crate::memory::PdMemory;
use crate::region::MrCore;
use crate::request::{InFlightQueue, PostedRecv, PostedSend, WrongSend};
use catchment_roce as roce;
use catchment_verbs::provider::{CompletionQueue, Limits, StateCell, WorkQueueCredits};
use catchment_verbs::{Endpoint, QpState};
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// What the owner of a queue pair and the engine share.
pub(crate) struct QpShared {
    pub(crate) limits: Limits,
    state: StateCell,
    /// Requests that the engine has not taken yet.
    pub(crate) sends: ArrayQueue<PostedSend>,
    pub(crate) recvs: ArrayQueue<PostedRecv>,
    pub(crate) sq: Arc<WorkQueueCredits>,
    pub(crate) rq: Arc<WorkQueueCredits>,
}

impl QpShared {
    pub(crate) fn new(limits: Limits) -> Self {
        let posted = |limit: u32| limit.clamp(1, tuning::POSTED_MAX) as usize;
        Self {
            limits,
            state: StateCell::default(),
            sends: ArrayQueue::new(posted(limits.max_send_wr)),
            recvs: ArrayQueue::new(posted(limits.max_recv_wr)),
            sq: Arc::default(),
            rq: Arc::default(),
        }
    }

    /// Returns the state, as the engine last saw it.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.set(state);
    }
}

/// The peer of a connected queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The UDP port that all its packets come from; `None` if it did not say.
    pub(crate) source_port: Option<u16>,
    pub(crate) route: Route,
    /// What it announced.
    pub(crate) end: Endpoint,
}

/// Parameters of a new queue pair.
pub(crate) struct Parts {
    pub(crate) shared: Arc<QpShared>,
    pub(crate) config: roce::Config,
    pub(crate) pd: u64,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
}

/// See the module documentation.
pub(crate) struct QpEntry {
    pub(crate) qp: roce::Qp,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) pd: u64,
    /// None before RTR, and always on UD.
    pub(crate) peer: Option<Peer>,
    /// Of authenticated packets: what is sent, and what comes.
    pub(crate) sealer: Option<Arc<Sealer>>,
    pub(crate) opener: Option<Opener>,
    /// The Q_Key that datagrams must carry.
    pub(crate) qkey: u32,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) sends: InFlightQueue,
    pub(crate) recvs: InFlightQueue,
    /// Posted sends that the protocol must not have yet.
    pub(crate) backlog: VecDeque<PostedSend>,
    /// A send with a wrong local key: it fails when all before it are done.
    pub(crate) wrong: Option<WrongSend>,
    /// An RNIC over IPv4, to which trains of packets may go.
    pub(crate) trusts_gso: bool,
    /// SQD: requests wait.
    pub(crate) holds: bool,
    /// Why it failed, if the protocol does not know.
    pub(crate) cause: Option<&'static str>,
    /// When it is in the heap of timers, the time there.
    pub(crate) timer_ns: Option<u64>,
    /// It is in the list of those to settle.
    pub(crate) is_touched: bool,
    /// It is in the list of those that may send.
    pub(crate) is_ready: bool,
}

impl QpEntry {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            qp: roce::Qp::new(parts.config),
            shared: parts.shared,
            pd: parts.pd,
            peer: None,
            sealer: None,
            opener: None,
            qkey: 0,
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
            sends: InFlightQueue::default(),
            recvs: InFlightQueue::default(),
            backlog: VecDeque::new(),
            wrong: None,
            trusts_gso: false,
            holds: false,
            cause: None,
            timer_ns: None,
            is_touched: false,
            is_ready: false,
        }
    }

    /// Runs the protocol on an input.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        input: roce::Input<'_>,
        keys: &KeyTable,
        written: &mut Vec<Arc<MrCore>>,
    ) {
        let mut memory =
            PdMemory { keys, pd: self.pd, sends: &self.sends, recvs: &self.recvs, written };
        self.qp.handle(now_ns, input, &mut memory);
    }

    /// Returns the destination of the packets of a batch that it has just filled.
    #[inline]
    pub(crate) fn route(&self, packets: &roce::TransmitBatch) -> Option<Route> {
        match &self.peer {
            Some(peer) => Some(peer.route),
            None => self.datagram_route(packets.destination()?),
        }
    }

    /// Returns the destination of datagrams that name this address handle. They are sent, but their
    /// completions are not delivered yet.
    #[cold]
    fn datagram_route(&self, handle: u32) -> Option<Route> {
        self.sends.address_handle(handle).map(|ah| ah.vector.route)
    }

    /// Returns the number of bytes of heap that belong to this queue pair.
    pub(crate) fn heap_bytes(&self) -> usize {
        let shared = size_of::<QpShared>()
            + self.shared.sends.capacity() * (size_of::<PostedSend>() + 8)
            + self.shared.recvs.capacity() * (size_of::<PostedRecv>() + 8);
        size_of::<Self>()
            + shared
            + self.qp.heap_bytes()
            + self.sends.heap_bytes()
            + self.recvs.heap_bytes()
            + self.backlog.capacity() * size_of::<PostedSend>()
    }
}
