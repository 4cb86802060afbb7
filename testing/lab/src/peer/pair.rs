//! Our queue pair, and one of the guest, connected to each other.

use super::endpoint::Endpoint;
use super::memory::Region;
use super::rig::{GuestQp, LIMIT, OUR_ADDR, OUR_QPN, OUR_RKEY, Options, same_bytes};
use super::wire::Wire;
use crate::agent::{self, Agent, Send, Transport};
use crate::vm::network::IpVersion;
use anyhow::{Context as _, Result, ensure};
use catchment_roce::wire::PathMtu;
use catchment_roce::{
    Completion, Config, InitAttr, Payload, Psn, Qp, Queue, RecvWr, RemoteAccess, RemoteAddr,
    RtrAttr, RtsAttr, SendOp, SendWr, Service, Sge, Success, WcStatus, WriteLayout, ack_timeout,
};
use std::time::{Duration, Instant};

/// How often the guest is asked for completions while both sides work.
const POLL: Duration = Duration::from_millis(10);

/// How our side is made, beside what both sides agree on.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// What both sides agree on, and the guest's side.
    pub both: Options,
    /// How long WRITEs are cut.
    pub layout: WriteLayout,
    /// What the guest may do with our memory.
    pub rights: &'static [RemoteAccess],
    /// What the guest may do through our queue pair.
    pub access: InitAttr,
    /// Our timeout, coded.
    pub timeout: u8,
    /// Our retries.
    pub retry_cnt: u8,
    /// Our retries after RNR NAKs.
    pub rnr_retry: u8,
}

impl Ours {
    /// Everything is allowed. The emulated guest needs patience: on a busy machine it may stand
    /// still for a second, so a request has four (half a second, eight times).
    pub const DEFAULT: Self = Self {
        both: Options {
            memory_bytes: 2 << 20,
            timeout: 17,
            ..Options::DEFAULT
        },
        layout: WriteLayout::Train,
        rights: Region::ALL,
        access: InitAttr {
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            qkey: 0,
        },
        timeout: 17,
        retry_cnt: 7,
        rnr_retry: 7,
    };

    /// As the default, where a loss is found by a timeout only: 67 ms, eight times.
    pub const LOSSY: Self = Self {
        both: Options {
            timeout: 14,
            ..Self::DEFAULT.both
        },
        timeout: 14,
        ..Self::DEFAULT
    };
}

/// Both ends of a connection.
pub struct Pair<'a> {
    /// The guest's agent.
    pub agent: &'a mut Agent,
    /// The guest's queue pair.
    pub guest: GuestQp,
    /// Our queue pair.
    pub ours: Endpoint<'a>,
    posted: u64,
    both: Options,
}

impl<'a> Pair<'a> {
    /// Makes both and connects them.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn connect(
        agent: &'a mut Agent,
        wire: &'a mut Wire,
        version: IpVersion,
        ours: &Ours,
    ) -> Result<Self> {
        wire.discard_pending()?;
        let guest = GuestQp::make(agent, &ours.both)?;
        let qp = our_qp(&guest, ours)?;
        guest.connect(agent, version, OUR_QPN, &ours.both)?;
        let region = Region {
            addr: OUR_ADDR,
            key: OUR_RKEY,
            bytes: vec![0; ours.both.memory_bytes],
            rights: ours.rights,
        };
        Ok(Self {
            agent,
            guest,
            ours: Endpoint::new(qp, region, wire),
            posted: 0,
            both: ours.both,
        })
    }

    /// The path MTU, in bytes.
    #[must_use]
    pub fn path_mtu(&self) -> usize {
        self.both.path_mtu as usize
    }

    /// The first PSNs: ours, and the guest's.
    #[must_use]
    pub fn first_psns(&self) -> (u32, u32) {
        (self.both.psn, self.both.guest_psn)
    }

    /// A place in the guest's memory.
    #[must_use]
    pub fn guest_place(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.guest.memory.addr + offset as u64,
            rkey: self.guest.memory.rkey,
        }
    }

    /// Posts a request of ours, with this part of our memory.
    ///
    /// # Errors
    /// When the queue pair refuses.
    pub fn post_ours(&mut self, op: SendOp, offset: usize, bytes: usize) -> Result<u64> {
        let sges = [sge(offset, bytes)?];
        self.posted += 1;
        let request = SendWr::new(self.posted, op, Payload::Sges(&sges));
        self.ours.qp.post_send(&request)?;
        Ok(self.posted)
    }

    /// Posts a receive of ours.
    ///
    /// # Errors
    /// When the queue pair refuses.
    pub fn recv_ours(&mut self, offset: usize, bytes: usize, wr_id: u64) -> Result<()> {
        let sges = [sge(offset, bytes)?];
        let request = RecvWr { wr_id, sges: &sges };
        Ok(self.ours.qp.post_recv(&request)?)
    }

    /// Posts a receive of the guest.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn recv_guest(&mut self, offset: usize, bytes: usize, wr_id: u64) -> Result<()> {
        let objects = [self.guest.number.qp, self.guest.memory.mr];
        self.agent.post_recv(objects, (offset, bytes), wr_id)
    }

    /// A request of the guest for our memory, from its start on.
    #[must_use]
    pub fn guest_work(&self, opcode: agent::Opcode, bytes: usize) -> Send {
        Send {
            remote_addr: OUR_ADDR,
            rkey: OUR_RKEY,
            ..Send::new(opcode, self.guest.memory.mr, 0, bytes)
        }
    }

    /// Posts requests of the guest.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn post_guest(&mut self, requests: &[Send]) -> Result<()> {
        self.agent.post_send(self.guest.number.qp, requests)
    }

    /// The next completion of ours, within `limit`.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait_ours(&mut self, limit: Duration) -> Result<Completion> {
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

    /// The next completion of ours, which must be a success of this queue.
    ///
    /// # Errors
    /// When it is not, or none comes.
    pub fn expect_ours(&mut self, queue: Queue) -> Result<Success> {
        let completion = self.wait_ours(LONG)?;
        ensure!(completion.queue == queue, "{completion:?}");
        completion.result.context("our request failed")
    }

    /// The next completion of ours, which must be a failure with this status.
    ///
    /// # Errors
    /// When it is not, or none comes.
    pub fn expect_failure(&mut self, status: WcStatus) -> Result<()> {
        let completion = self.wait_ours(LONG)?;
        ensure!(
            completion.result == Err(status),
            "expected {status:?}, got {completion:?}"
        );
        Ok(())
    }

    /// The next completion of the guest, within `limit`. Our side works meanwhile.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait_guest(&mut self, limit: Duration) -> Result<agent::Completion> {
        let end = Instant::now() + limit;
        loop {
            let pause = Instant::now() + POLL;
            while Instant::now() < pause {
                self.ours.turn(pause)?;
            }
            let found = self.agent.poll(self.guest.cq, 1, Duration::ZERO)?;
            if let Some(completion) = found.first() {
                return Ok(*completion);
            }
            ensure!(
                Instant::now() < end,
                "the guest completed nothing within {limit:?}; ours: {:?}",
                self.ours.qp.counters()
            );
        }
    }

    /// The next completion of the guest, which must have this status.
    ///
    /// # Errors
    /// When it has another, or none comes.
    pub fn expect_guest(&mut self, status: agent::Status) -> Result<agent::Completion> {
        let completion = self.wait_guest(LONG)?;
        ensure!(
            completion.status == status,
            "expected {status:?}, got {completion:?}"
        );
        Ok(completion)
    }

    /// Waits until a message that nobody acknowledges is in the guest's memory, on UC.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn settle_guest(&mut self, data: &[u8]) -> Result<()> {
        let mr = self.guest.memory.mr;
        let end = Instant::now() + LIMIT;
        let crc = crc32fast::hash(data);
        while self.both.transport == Transport::Uc
            && self.agent.crc_memory(mr, 0, data.len())? != crc
            && Instant::now() < end
        {
            self.linger(POLL)?;
        }
        Ok(())
    }

    /// Waits until a message that nobody acknowledges is in our memory, on UC.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn settle_ours(&mut self, data: &[u8]) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.both.transport == Transport::Uc
            && self.ours.region.bytes[..data.len()] != *data
            && Instant::now() < end
        {
            self.linger(POLL)?;
        }
        Ok(())
    }

    /// Our side works for a while, whatever comes.
    ///
    /// # Errors
    /// When the socket fails, or a packet of the guest is malformed.
    pub fn linger(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.ours.turn(end)?;
        }
        Ok(())
    }

    /// Puts data into our memory.
    pub fn fill_ours(&mut self, offset: usize, data: &[u8]) {
        self.ours.region.bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Puts data into the guest's memory.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn fill_guest(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.agent.write_memory(self.guest.memory.mr, offset, data)
    }

    /// Fails unless our memory holds `data` there.
    ///
    /// # Errors
    /// With the first place where it differs.
    pub fn expect_our_memory(&self, offset: usize, data: &[u8]) -> Result<()> {
        same_bytes(&self.ours.region.bytes[offset..offset + data.len()], data).context("our memory")
    }

    /// Fails unless the guest's memory holds `data` there.
    ///
    /// # Errors
    /// With the first place where it differs.
    pub fn expect_guest_memory(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        let mr = self.guest.memory.mr;
        if self.agent.crc_memory(mr, offset, data.len())? == crc32fast::hash(data) {
            return Ok(());
        }
        let seen = self.agent.read_memory(mr, offset, data.len())?;
        same_bytes(&seen, data).context("the guest's memory")
    }
}

/// Longer than a MiB takes in packets of 256 bytes with losses, on a machine at work.
pub const LONG: Duration = LIMIT.saturating_mul(8);

fn our_qp(guest: &GuestQp, ours: &Ours) -> Result<Qp> {
    let both = &ours.both;
    let service = match both.transport {
        Transport::Rc => Service::Rc,
        Transport::Uc => Service::Uc,
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
        ..RtrAttr::new(guest.number.qpn, path_mtu, Psn::new(both.guest_psn))
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
    Ok(Sge {
        addr: OUR_ADDR + offset as u64,
        bytes: u32::try_from(bytes)?,
        lkey: OUR_RKEY,
    })
}
