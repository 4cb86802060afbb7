//! Our queue pair, and one of the guest, connected to each other.
use super::endpoint::Endpoint;
use super::rig::{LIMIT, OUR_ADDR, OUR_QPN, OUR_RKEY, connect};
use super::wire::Wire;
use crate::bytes::same_bytes;
use crate::end::client::End;
use crate::end::{Completed, Kind, Options, Service};
use crate::vm::guest::Guest;
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use catchment_roce::wire::PathMtu;
use catchment_roce::{
    self as roce, Completion, Config, Counters, InitAttr, Memory as _, Payload, Psn, Qp, Queue,
    RecvWr, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Sge, Success, WcStatus, WriteLayout,
    ack_timeout,
};
use catchment_sim::roce::{Rights, Space};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours {
    /// What both sides agree on, and the guest's side.
    pub(crate) both: Options,
    pub(crate) layout: WriteLayout,
    /// What the guest may do with our memory.
    pub(crate) rights: Rights,
    /// What the guest may do through our queue pair.
    pub(crate) access: InitAttr,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
}

impl Ours {
    /// Everything is allowed. The emulated guest needs patience: on a busy machine it may stand
    /// still for a second, so a request has four (half a second, eight times).
    pub(crate) const DEFAULT: Self = Self {
        both: Options { memory_bytes: 2 << 20, timeout: 17, ..Options::DEFAULT },
        layout: WriteLayout::Train,
        rights: Rights::ALL,
        access: InitAttr { remote_write: true, remote_read: true, remote_atomic: true, qkey: 0 },
        timeout: 17,
        retry_cnt: 7,
        rnr_retry: 7,
    };

    /// As the default, where a loss is found by a timeout only: 67 ms, eight times.
    pub(crate) const LOSSY: Self =
        Self { both: Options { timeout: 14, ..Self::DEFAULT.both }, timeout: 14, ..Self::DEFAULT };
}

pub(crate) struct Pair<'a> {
    pub(crate) machine: &'a Guest,
    pub(crate) guest: &'a mut End,
    pub(crate) ours: Endpoint<'a>,
    posted: u64,
    both: Options,
}

impl<'a> Pair<'a> {
    pub(crate) fn connect(
        machine: &'a Guest,
        guest: &'a mut End,
        wire: &'a mut Wire,
        version: IpVersion,
        ours: &Ours,
    ) -> Result<Self> {
        wire.discard_pending()?;
        guest.make(Kind::Kernel(ours.both))?;
        let qp = our_qp(guest.card.qpn, ours)?;
        connect(guest, version)?;
        let mut space = Space::default();
        let key = space.register(vec![0; ours.both.memory_bytes], ours.rights);
        ensure!(key == OUR_RKEY, "our memory has the key {key:#x}");
        Ok(Self {
            machine,
            guest,
            ours: Endpoint::new(qp, space, wire),
            posted: 0,
            both: ours.both,
        })
    }

    pub(crate) fn path_mtu(&self) -> usize {
        self.both.path_mtu as usize
    }

    /// The first PSNs: ours, and the guest's.
    pub(crate) fn first_psns(&self) -> (u32, u32) {
        (self.both.psn, self.both.guest_psn)
    }

    pub(crate) fn guest_place(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.guest.card.addr + offset as u64, rkey: self.guest.card.rkey }
    }

    pub(crate) fn post_ours(&mut self, op: SendOp, offset: usize, bytes: usize) -> Result<u64> {
        let sges = [sge(offset, bytes)?];
        self.posted += 1;
        let request = SendWr::new(self.posted, op, Payload::Sges(&sges));
        self.ours.qp.post_send(&request)?;
        Ok(self.posted)
    }

    pub(crate) fn recv_ours(&mut self, offset: usize, bytes: usize, wr_id: u64) -> Result<()> {
        let sges = [sge(offset, bytes)?];
        let request = RecvWr { wr_id, sges: &sges };
        Ok(self.ours.qp.post_recv(&request)?)
    }

    pub(crate) fn wait_ours(&mut self, limit: Duration) -> Result<Completion> {
        let end = Instant::now() + limit;
        loop {
            if let Some(completion) = self.ours.completion() {
                return Ok(completion);
            }
            let left = end.saturating_duration_since(Instant::now());
            ensure!(
                !left.is_zero(),
                "our queue pair completed nothing within {limit:?}: {:?}",
                self.ours.qp.counters()
            );
            self.ours.turn(end)?;
        }
    }

    pub(crate) fn expect_ours(&mut self, queue: Queue) -> Result<Success> {
        let completion = self.wait_ours(LONG)?;
        ensure!(completion.queue == queue, "{completion:?}");
        completion.result.context("our request failed")
    }

    pub(crate) fn expect_failure(&mut self, status: WcStatus) -> Result<()> {
        let completion = self.wait_ours(LONG)?;
        ensure!(completion.result == Err(status), "expected {status:?}, got {completion:?}");
        Ok(())
    }

    /// The next completion of the guest, which must have this status. Our side works meanwhile.
    fn expect_guest(&mut self, receives: bool, status: &str) -> Result<Completed> {
        let end = Instant::now() + LONG;
        loop {
            self.linger(POLL)?;
            let found = self.guest.wait_within(receives, 1, Duration::ZERO)?.pop();
            if let Some(completion) = found {
                return completion.with_status(status);
            }
            ensure!(
                Instant::now() < end,
                "the guest completed nothing within {LONG:?}; ours: {:?}",
                self.ours.qp.counters()
            );
        }
    }

    pub(crate) fn expect_guest_sent(&mut self, status: &str) -> Result<Completed> {
        self.expect_guest(false, status)
    }

    pub(crate) fn expect_guest_received(&mut self) -> Result<Completed> {
        self.expect_guest(true, "Success")
    }

    /// Waits until a message that nobody acknowledges is in the guest's memory, on UC.
    pub(crate) fn settle_guest(&mut self, data: &[u8]) -> Result<()> {
        self.settle(|pair| pair.guest.holds(0, data))
    }

    pub(crate) fn settle_ours(&mut self, data: &[u8]) -> Result<()> {
        self.settle(|pair| Ok(pair.our_memory(0, data.len())? == data))
    }

    fn settle(&mut self, arrived: impl Fn(&mut Self) -> Result<bool>) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.both.service == Service::Uc && Instant::now() < end && !arrived(self)? {
            self.linger(POLL)?;
        }
        Ok(())
    }

    pub(crate) fn linger(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.ours.turn(end)?;
        }
        Ok(())
    }

    pub(crate) fn linger_until(&mut self, wanted: fn(&Counters) -> bool) -> Result<()> {
        let end = Instant::now() + LONG;
        while !wanted(self.ours.qp.counters()) {
            let counters = *self.ours.qp.counters();
            ensure!(Instant::now() < end, "waited {LONG:?} in vain: {counters:?}");
            self.linger(POLL)?;
        }
        Ok(())
    }

    pub(crate) fn fill_ours(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        let addr = OUR_ADDR + offset as u64;
        Ok(self.ours.space.write_local(OUR_RKEY, addr, data)?)
    }

    pub(crate) fn expect_our_memory(&self, offset: usize, data: &[u8]) -> Result<()> {
        same_bytes(self.our_memory(offset, data.len())?, data).context("our memory")
    }

    fn our_memory(&self, offset: usize, bytes: usize) -> Result<&[u8]> {
        let memory = self.ours.space.local(OUR_RKEY, OUR_ADDR + offset as u64, bytes);
        memory.with_context(|| format!("{bytes} bytes at {offset} are not in our memory"))
    }
}

/// Longer than a MiB takes in packets of 256 bytes with losses, on a machine at work.
pub(crate) const LONG: Duration = LIMIT.saturating_mul(8);

fn our_qp(guest_qpn: u32, ours: &Ours) -> Result<Qp> {
    let both = &ours.both;
    let service = match both.service {
        Service::Rc => roce::Service::Rc,
        Service::Uc => roce::Service::Uc,
    };
    let mut qp = Qp::new(Config {
        write_layout: ours.layout,
        // The emulated guest is slow; a larger window would overrun its queues.
        window_packets: 128,
        ..Config::new(OUR_QPN, service)
    });
    let path_mtu = PathMtu::from_bytes(both.path_mtu as usize).context("no path MTU")?;
    qp.init(ours.access)?;
    qp.rtr(RtrAttr {
        min_rnr_timer: both.min_rnr_timer,
        ..RtrAttr::new(guest_qpn, path_mtu, Psn::new(both.guest_psn))
    })?;
    qp.rts(RtsAttr {
        timeout: ack_timeout(ours.timeout),
        retry_cnt: ours.retry_cnt,
        rnr_retry: ours.rnr_retry,
        ..RtsAttr::new(Psn::new(both.psn))
    })?;
    Ok(qp)
}

fn sge(offset: usize, bytes: usize) -> Result<Sge> {
    Ok(Sge { addr: OUR_ADDR + offset as u64, bytes: u32::try_from(bytes)?, lkey: OUR_RKEY })
}
