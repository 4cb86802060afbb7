//! A queue pair of ours connected to one of the guest.
use super::endpoint::Endpoint;
use super::rig::{LIMIT, OUR_ADDR, OUR_PLACE, OUR_QPN, OUR_RKEY, connect};
use super::wire::Wire;
use crate::bytes::same_bytes;
use crate::end::client::End;
use crate::end::{Completed, Kind, Options, Place, Service, Work};
use crate::vm::guest::Guest;
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use catchment_roce::wire::PathMtu;
use catchment_roce::{
    self as roce, Config, Counters, InitAttr, Memory as _, Payload, Psn, Qp, Queue, RecvWr,
    RtrAttr, RtsAttr, SendWr, Sge, WriteLayout, ack_timeout,
};
use catchment_sim::roce::{Rights, Space};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours {
    /// What both sides agree on, and the guest's attributes.
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
    /// Everything is allowed. On a busy machine the emulated guest may stall for a second, so a request
    /// has four: eight tries of half a second.
    pub(crate) const DEFAULT: Self = Self {
        both: Options { memory_bytes: 2 << 20, timeout: 17, ..Options::DEFAULT },
        layout: WriteLayout::Train,
        rights: Rights::ALL,
        access: InitAttr { remote_write: true, remote_read: true, remote_atomic: true, qkey: 0 },
        timeout: 17,
        retry_cnt: 7,
        rnr_retry: 7,
    };

    /// As the default, with shorter timeouts, as losses are detected by them: eight tries of 67 ms.
    pub(crate) const LOSSY: Self =
        Self { both: Options { timeout: 14, ..Self::DEFAULT.both }, timeout: 14, ..Self::DEFAULT };
}

/// One of the two queue pairs of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Guest,
}

impl Side {
    pub(crate) fn peer(self) -> Self {
        match self {
            Self::Ours => Self::Guest,
            Self::Guest => Self::Ours,
        }
    }
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

    /// Returns the first PSNs: ours and the guest's.
    pub(crate) fn first_psns(&self) -> (u32, u32) {
        (self.both.psn, self.both.guest_psn)
    }

    pub(crate) fn place(&self, side: Side, offset: usize) -> Place {
        match side {
            Side::Ours => Place { addr: OUR_ADDR + offset as u64, ..OUR_PLACE },
            Side::Guest => self.guest.place(offset),
        }
    }

    /// Posts signaled requests: operation, offset in the side's memory, length.
    pub(crate) fn post(&mut self, side: Side, work: &[(Work, usize, usize)]) -> Result<()> {
        if side == Side::Guest {
            return self.guest.post(work);
        }
        for &(work, offset, bytes) in work {
            let sges = [sge(offset, bytes)?];
            self.posted += 1;
            let request = SendWr::new(self.posted, work.into(), Payload::Sges(&sges));
            self.ours.qp.post_send(&request)?;
        }
        Ok(())
    }

    pub(crate) fn receive(
        &mut self,
        side: Side,
        wr_id: u64,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        if side == Side::Guest {
            return self.guest.receive(wr_id, offset, bytes);
        }
        let sges = [sge(offset, bytes)?];
        Ok(self.ours.qp.post_recv(&RecvWr { wr_id, sges: &sges })?)
    }

    pub(crate) fn expect_sent(&mut self, side: Side, status: &str) -> Result<Completed> {
        self.wait(side, Queue::Send)?.with_status(status)
    }

    pub(crate) fn expect_received(&mut self, side: Side, status: &str) -> Result<Completed> {
        self.wait(side, Queue::Recv)?.with_status(status)
    }

    /// Returns the next completion of this queue, driving our queue pair meanwhile.
    pub(crate) fn wait(&mut self, side: Side, queue: Queue) -> Result<Completed> {
        let end = Instant::now() + LONG;
        loop {
            match side {
                Side::Ours => {
                    if let Some(done) = self.ours.completion() {
                        ensure!(done.queue == queue, "{done:?}");
                        return Ok(Completed::new(done.wr_id, done.result));
                    }
                    self.ours.turn(end)?;
                }
                Side::Guest => {
                    self.linger(POLL)?;
                    let receives = queue == Queue::Recv;
                    if let Some(done) = self.guest.wait_within(receives, 1, Duration::ZERO)?.pop() {
                        return Ok(done);
                    }
                }
            }
            ensure!(
                Instant::now() < end,
                "{side:?} completed nothing within {LONG:?}: {:?}",
                self.ours.qp.counters()
            );
        }
    }

    /// On UC, where nothing is acknowledged, waits until a message is in this side's memory.
    pub(crate) fn settle(&mut self, side: Side, data: &[u8]) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.both.service == Service::Uc && Instant::now() < end {
            let arrived = match side {
                Side::Ours => self.our_memory(0, data.len())? == data,
                Side::Guest => self.guest.holds(0, data)?,
            };
            if arrived {
                break;
            }
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
            ensure!(Instant::now() < end, "not counted within {LONG:?}: {counters:?}");
            self.linger(POLL)?;
        }
        Ok(())
    }

    pub(crate) fn fill(&mut self, side: Side, offset: usize, data: &[u8]) -> Result<()> {
        let addr = OUR_ADDR + offset as u64;
        match side {
            Side::Ours => Ok(self.ours.space.write_local(OUR_RKEY, addr, data)?),
            Side::Guest => self.guest.put(offset, data),
        }
    }

    pub(crate) fn expect_memory(&mut self, side: Side, offset: usize, data: &[u8]) -> Result<()> {
        match side {
            Side::Ours => {
                same_bytes(self.our_memory(offset, data.len())?, data).context("our memory")
            }
            Side::Guest => self.guest.expect_memory(offset, data),
        }
    }

    fn our_memory(&self, offset: usize, bytes: usize) -> Result<&[u8]> {
        let memory = self.ours.space.local(OUR_RKEY, OUR_ADDR + offset as u64, bytes);
        memory.with_context(|| format!("{bytes} bytes at {offset} are not in our memory"))
    }
}

/// Longer than a MiB takes in packets of 256 bytes with losses, on a busy machine.
pub(crate) const LONG: Duration = LIMIT.saturating_mul(8);

fn our_qp(guest_qpn: u32, ours: &Ours) -> Result<Qp> {
    let both = &ours.both;
    let service = match both.service {
        Service::Rc => roce::Service::Rc,
        Service::Uc => roce::Service::Uc,
    };
    let mut qp = Qp::new(Config {
        write_layout: ours.layout,
        // A larger window would overrun the queues of the slow emulated guest.
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
