//! One end: socket, buffers, memory, and the packets that both ends speak.
use super::{Job, REGION_BYTES};
use anyhow::{Result, bail};
use catchment_provider_roce::io::{
    Blocked, IcrcCheck, Piece, RecvRing, Route, SendBatch, SocketOptions, UdpSocket, Waiter, Wakeup,
};
use catchment_roce::Psn;
use catchment_roce::wire::{
    Aeth, Bth, Headers, MAX_HEADER_BYTES, Opcode, Packet, ROCE_PORT, Reth, Syndrome,
};
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::wait::SpinBudget;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The queue pair number of all packets: nobody checks it.
const QPN: u32 = 1;
/// Buffers of the ring: 512 KiB, which stays in the second-level cache.
const BUFFERS: usize = 8;
/// Packets of a batch: several trains.
const BATCH_PACKETS: usize = 512;
/// A silent peer has failed after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// One end of a measurement. The halves may work in two threads.
pub(super) struct End {
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
}

pub(super) struct Sending {
    socket: Arc<UdpSocket>,
    batch: SendBatch,
    waiter: Waiter,
    pub(super) region: Arc<Region>,
    route: Route,
}

pub(super) struct Receiving {
    socket: Arc<UdpSocket>,
    ring: RecvRing,
    check: IcrcCheck,
    waiter: Waiter,
    spin: SpinBudget,
    region: Arc<Region>,
}

impl End {
    /// Binds the RoCE port and fills the memory.
    pub(super) fn open(job: &Job) -> Result<Self> {
        let (own, peer) = (job.own(), job.peer());
        let options = SocketOptions::default();
        let local = SocketAddr::new(own, ROCE_PORT);
        let socket = Arc::new(UdpSocket::bind(local, &options)?);
        let region = Region::alloc(REGION_BYTES, RegionOptions::default())?;
        region.whole().fill(7)?;
        Ok(Self {
            sending: Sending {
                batch: SendBatch::new(&*socket, BATCH_PACKETS),
                waiter: Waiter::new()?,
                region: Arc::clone(&region),
                route: Route { local, remote: SocketAddr::new(peer, ROCE_PORT), traffic_class: 0 },
                socket: Arc::clone(&socket),
            },
            receiving: Receiving {
                ring: RecvRing::new(BUFFERS),
                check: IcrcCheck::new(),
                waiter: Waiter::new()?,
                spin: SpinBudget::new(job.spin),
                region,
                socket,
            },
        })
    }
}

impl Sending {
    /// Adds a WRITE of `bytes` bytes at the same offset of both memories.
    pub(super) fn push_write(&mut self, psn: Psn, offset: usize, bytes: usize) -> Result<()> {
        self.push_write_from(offset, psn, offset, bytes)
    }

    /// As [`Sending::push_write`], from another place of the own memory.
    pub(super) fn push_write_from(
        &mut self,
        from: usize,
        psn: Psn,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, QPN, psn));
        headers.reth = Some(Reth { va: offset as u64, rkey: 0, dma_bytes: bytes as u32 });
        let mut head = [0; MAX_HEADER_BYTES];
        let head_bytes = headers.encode(&mut head);
        let piece = Piece { region: &self.region, offset: from, bytes };
        Ok(self.batch.push(&self.route, &head[..head_bytes], &[piece])?)
    }

    /// Adds an acknowledgement of all up to `psn`, or the end of the measurement.
    pub(super) fn push_ack(&mut self, psn: Psn, end: bool) -> Result<()> {
        let mut headers = Headers::new(Bth::new(Opcode::RcAcknowledge, QPN, psn));
        headers.bth.solicited = end;
        headers.aeth = Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, msn: 0 });
        let mut head = [0; MAX_HEADER_BYTES];
        let head_bytes = headers.encode(&mut head);
        Ok(self.batch.push(&self.route, &head[..head_bytes], &[])?)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        loop {
            let done = self.batch.flush(&*self.socket);
            if let Some(fault) = self.batch.take_faults().into_iter().next() {
                bail!(fault);
            }
            match done.blocked {
                None => return Ok(()),
                Some(Blocked::NoBuffers) => std::thread::yield_now(),
                Some(Blocked::SocketFull) => self.wait_writable()?,
            }
        }
    }

    fn wait_writable(&self) -> Result<()> {
        let socket = self.socket.as_fd();
        match self.waiter.sleep(socket, Some(socket), PATIENCE)? {
            Wakeup::TimedOut => bail!("the socket stayed full for {PATIENCE:?}"),
            Wakeup::Ready | Wakeup::Woken => Ok(()),
        }
    }
}

impl Receiving {
    /// Waits for packets, at most `timeout`, and shows each one that is whole; false when none came.
    pub(super) fn receive(
        &mut self,
        timeout: Duration,
        mut see: impl FnMut(&Region, Packet<'_>) -> Result<()>,
    ) -> Result<bool> {
        if !self.wait(timeout)? {
            return Ok(false);
        }
        for train in self.ring.trains() {
            let mut check = self.check.train(&train);
            for bytes in train.packets() {
                see(&self.region, Packet::decode(check.check(bytes)?)?)?;
            }
        }
        Ok(true)
    }

    /// Polls for as long as that pays, then sleeps, until packets are in the ring; false when the
    /// time is over.
    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let start = Instant::now();
        let limit = self.spin.now().min(timeout);
        let mut slept = false;
        while self.ring.receive(&*self.socket)? == 0 {
            if start.elapsed() < limit {
                std::thread::yield_now();
                continue;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if self.waiter.sleep(self.socket.as_fd(), None, left)? == Wakeup::TimedOut {
                return Ok(false);
            }
            slept = true;
        }
        if slept {
            self.spin.learn(start.elapsed());
        }
        Ok(true)
    }

    /// As [`Receiving::receive`], for a peer that must answer.
    pub(super) fn demand(
        &mut self,
        see: impl FnMut(&Region, Packet<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.receive(PATIENCE, see)? {
            return Ok(());
        }
        bail!("the peer was silent for {PATIENCE:?}")
    }
}

/// Places the payload of a WRITE, the one copy at the receiver.
#[inline]
pub(super) fn place(region: &Region, packet: &Packet<'_>) -> Result<()> {
    let Some(reth) = packet.headers.reth else {
        bail!("a {:?} where a WRITE was expected", packet.headers.bth.opcode);
    };
    let offset = usize::try_from(reth.va)?;
    Ok(region.whole().write_at(offset, packet.payload)?)
}
