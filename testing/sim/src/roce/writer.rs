//! A program that writes continuously, and queue pairs for it.
use super::{Program, QpTable, Rights, Space};
use crate::Random;
use catchment_roce::wire::PathMtu;
use catchment_roce::{
    Completion, Config, InitAttr, Payload, Psn, Qp, Queue, Recovery, RemoteAddr, RtrAttr, RtsAttr,
    SendOp, SendWr, Sge, WcStatus,
};
use std::ops::Range;
use std::time::Duration;

const REGION_BYTES: usize = 4 << 20;
const WRITE_BYTES: usize = 256 << 10;
/// WRITEs posted ahead: far more than a window.
const POSTED_MOST: usize = 600;

/// Posts WRITEs while there is room, from and to regions of its own.
pub(crate) struct Writer {
    source: Sge,
    target: RemoteAddr,
    during: Range<Duration>,
    /// WRITEs posted ahead.
    ahead: usize,
    posted: usize,
    pub(crate) broken: Option<WcStatus>,
    now: Duration,
}

impl Writer {
    /// Creates a writer from a new region of `near` to one of `far`, without an end.
    pub(crate) fn new(near: &mut Space, far: &mut Space, random: &mut Random) -> Self {
        let mut content = vec![0; REGION_BYTES];
        random.fill(&mut content);
        let lkey = near.register(content, Rights::LOCAL);
        let rkey = far.register(vec![0; REGION_BYTES], Rights::ALL);
        Self {
            source: Sge { addr: near.addr(lkey), bytes: REGION_BYTES as u32, lkey },
            target: RemoteAddr { addr: far.addr(rkey), rkey },
            during: Duration::ZERO..Duration::MAX,
            ..Self::idle()
        }
    }

    /// Creates a writer that never writes.
    pub(crate) fn idle() -> Self {
        Self {
            source: Sge::default(),
            target: RemoteAddr::default(),
            during: Duration::MAX..Duration::MAX,
            ahead: POSTED_MOST,
            posted: 0,
            broken: None,
            now: Duration::ZERO,
        }
    }

    /// Limits posting to this span; if it has an end, little is posted ahead.
    #[cfg(test)]
    pub(crate) fn during(self, during: Range<Duration>) -> Self {
        let ends = during.end < Duration::MAX;
        Self { ahead: if ends { 2 } else { self.ahead }, during, ..self }
    }

    /// Returns the offset of the first byte written that differs from the one sent.
    pub(crate) fn wrong_byte(&self, near: &Space, far: &Space) -> Option<usize> {
        let sent = &near.region(self.source.lkey)?.bytes;
        let written = &far.region(self.target.rkey)?.bytes;
        // Zeros are not written yet; one in 256 random bytes is also zero.
        let mut pairs = written.iter().zip(sent);
        pairs.position(|(a, b)| a != b && *a != 0)
    }

    fn post(&mut self, qp: &mut Qp) -> bool {
        let offset = (self.posted * WRITE_BYTES % REGION_BYTES) as u64;
        let sges = [Sge {
            addr: self.source.addr + offset,
            bytes: WRITE_BYTES as u32,
            lkey: self.source.lkey,
        }];
        let target = RemoteAddr { addr: self.target.addr + offset, rkey: self.target.rkey };
        let id = self.posted as u64;
        let wr = SendWr::new(id, SendOp::Write(target), Payload::Sges(&sges));
        let posted = qp.post_send(&wr).is_ok();
        self.posted += usize::from(posted);
        posted
    }
}

impl Program for Writer {
    fn completed(&mut self, _: Duration, _: usize, completion: Completion, _: &mut Space) {
        if let (Queue::Send, Err(status)) = (completion.queue, completion.result) {
            self.broken = self.broken.or(Some(status));
        }
    }

    fn act(&mut self, now: Duration, qps: &mut QpTable, _: &mut Space) {
        self.now = now;
        let idle = !self.during.contains(&now) || self.broken.is_some();
        while !idle && qps.get(0).send_queue_len() < self.ahead && self.post(qps.get_mut(0)) {}
    }

    fn wake_at(&self) -> Option<Duration> {
        let waits = self.now < self.during.start && self.during.start < Duration::MAX;
        waits.then_some(self.during.start)
    }
}

/// Returns an RC queue pair connected to the one with number `peer`, which may write. `timeout` is the
/// silence before a retransmission, while nothing was measured.
pub(crate) fn connected(
    config: Config,
    peer: u32,
    recovery: Recovery,
    path_mtu: PathMtu,
    timeout: Duration,
) -> Qp {
    let mut qp = Qp::new(config);
    let init = InitAttr { remote_write: true, ..InitAttr::default() };
    let rtr = RtrAttr { recovery, ..RtrAttr::new(peer, path_mtu, Psn::new(0)) };
    let rts = RtsAttr { timeout: Some(timeout), ..RtsAttr::new(Psn::new(0)) };
    let connected = qp.init(init).and_then(|()| qp.rtr(rtr)).and_then(|()| qp.rts(rts));
    debug_assert_eq!(connected, Ok(()));
    qp
}
