//! One side of a connection, with all that it needs, and the requests that cases make of it.
use crate::{ALL, wait_one};
use catchment_verbs::{
    Access, Caps, CompletionChannel, Context, Cq, Endpoint, Failure, Mr, Payload, Pd, Qp, QpInit,
    QpTransition, RecvWr, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Service, Sge, Success,
    WcStatus,
};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub struct Options {
    pub service: Service,
    /// What datagrams must carry, on UD.
    pub qkey: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub send_cqe: u32,
    pub recv_cqe: u32,
    pub access: Access,
    pub qp_access: Access,
    pub bytes: usize,
    pub rts: RtsAttr,
    pub min_rnr_timer: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            service: Service::Rc,
            qkey: 0x1234_5678,
            max_send_wr: 64,
            max_recv_wr: 64,
            send_cqe: 256,
            recv_cqe: 256,
            access: ALL,
            qp_access: Access::REMOTE,
            bytes: 1 << 20,
            rts: RtsAttr::default(),
            min_rnr_timer: Duration::from_millis(1),
        }
    }
}

/// One side of a connection: a queue pair with all that it needs. Fields drop in the order that
/// verbs ask for.
pub struct Side {
    pub qp: Box<dyn Qp>,
    pub mr: Arc<dyn Mr>,
    pub send_cq: Arc<dyn Cq>,
    pub recv_cq: Arc<dyn Cq>,
    pub channel: Arc<dyn CompletionChannel>,
    pub pd: Arc<dyn Pd>,
    pub context: Arc<dyn Context>,
}

/// Connects two sides.
pub fn connect((a, ours): (&mut Side, &Options), (b, theirs): (&mut Side, &Options)) {
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    a.connect(eb, ours);
    b.connect(ea, theirs);
}

/// Two connected sides, on these devices.
pub fn connected(
    (left, ours): (Arc<dyn Context>, &Options),
    (right, theirs): (Arc<dyn Context>, &Options),
) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(left, ours), Side::new(right, theirs));
    connect((&mut a, ours), (&mut b, theirs));
    (a, b)
}

impl Side {
    pub fn new(context: Arc<dyn Context>, options: &Options) -> Self {
        let pd = context.alloc_pd().unwrap();
        let channel = context.create_channel().unwrap();
        let cq = |entries| context.create_cq(entries, Some(channel.clone())).unwrap();
        let (send_cq, recv_cq) = (cq(options.send_cqe), cq(options.recv_cqe));
        let caps = context.caps();
        let qp = pd.create_qp(QpInit {
            service: options.service,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            max_send_wr: options.max_send_wr,
            max_recv_wr: options.max_recv_wr,
            max_sge: caps.max_sge.min(4),
            max_inline_bytes: caps.max_inline_bytes.min(256),
            strict: caps.strict_capacity,
        });
        Self {
            qp: qp.unwrap(),
            mr: pd.alloc_mr(options.bytes, options.access).unwrap(),
            send_cq,
            recv_cq,
            channel,
            pd,
            context,
        }
    }

    /// From RESET to RTS.
    pub fn connect(&mut self, peer: Endpoint, options: &Options) {
        self.init(options);
        let rtr = RtrAttr { min_rnr_timer: options.min_rnr_timer, ..RtrAttr::new(peer) };
        let (rtr, rts) = match options.service {
            Service::Rc => (QpTransition::ToRtr(rtr), QpTransition::ToRts(options.rts)),
            Service::Uc => (QpTransition::ToRtrUc(peer), QpTransition::ToRtsUnreliable),
            Service::Ud => (QpTransition::ToRtrUd, QpTransition::ToRtsUnreliable),
        };
        self.qp.modify(rtr).unwrap();
        self.qp.modify(rts).unwrap();
    }

    pub fn init(&mut self, options: &Options) {
        let (access, qkey) = (options.qp_access, options.qkey);
        let init = match options.service {
            Service::Rc | Service::Uc => QpTransition::ToInit { access },
            Service::Ud => QpTransition::ToInitUd { qkey },
        };
        self.qp.modify(init).unwrap();
    }

    /// A piece of the registered memory, for a local element.
    pub fn sge(&self, offset: usize, bytes: usize) -> Sge {
        Sge { addr: self.mr.addr() + offset as u64, bytes: bytes as u32, lkey: self.mr.lkey() }
    }

    /// A place in the registered memory, for the peer.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.mr.addr() + offset as u64, rkey: self.mr.rkey() }
    }

    pub fn put(&self, offset: usize, data: &[u8]) {
        self.mr.region().whole().write_at(offset, data).unwrap();
    }

    pub fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.mr.region().slice(offset, bytes).unwrap().to_vec()
    }

    /// Posts one request, which must be taken.
    pub fn post(&mut self, wr: SendWr<'_>) {
        self.qp.post_send(&[wr]).unwrap();
    }

    /// Posts one receive, which must be taken.
    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&[RecvWr { wr_id, sges }]).unwrap();
    }

    /// Posts a request and waits for its completion, which must be the next.
    pub fn run(&mut self, wr: SendWr<'_>) -> Result<Success, Failure> {
        self.post(wr);
        let done = wait_one(&*self.send_cq);
        assert_eq!((done.wr_id, done.qpn), (wr.wr_id, self.qp.qpn()));
        done.result
    }

    /// Like [`Side::run`] with registered memory, for an expected success.
    pub fn run_ok(&mut self, op: SendOp, sges: &[Sge]) -> Success {
        self.run(SendWr::new(77, op, Payload::Sges(sges))).unwrap()
    }

    /// Like [`Side::run`] with registered memory, for an expected failure.
    pub fn run_failing(&mut self, op: SendOp, sges: &[Sge]) -> WcStatus {
        let result = self.run(SendWr::new(78, op, Payload::Sges(sges)));
        result.expect_err("the request must fail").status
    }
}

/// Returns whether [`Qp::watch_remote`] works.
pub fn watches_afar(caps: &Caps) -> bool {
    caps.doorbell && caps.direct
}
