//! A queue pair of the guest, connected to a case that speaks packet by packet.

use super::wire::{Received, Wire};
use crate::agent::{
    Access, Agent, Completion, Connect, Handle, MemoryKey, Opcode as Work, QpNumber, Send, Status,
    Transport,
};
use crate::vm::network::{GUEST, HOST, IpVersion};
use anyhow::{Context as _, Result, bail, ensure};
use catchment_roce::Psn;
use catchment_roce::wire::{Aeth, Bth, Headers, NakCode, Opcode, Reth, Syndrome};
use std::net::IpAddr;
use std::time::Duration;

/// Longer than the emulated guest takes for anything on a machine at work.
pub const LIMIT: Duration = Duration::from_secs(4);

/// The number that the case's queue pair has.
pub const OUR_QPN: u32 = 0x1234;

/// The key that the case's memory has: the guest's requests name it.
pub const OUR_RKEY: u32 = 0x0077_1177;

/// Where the case's memory lies, for the guest's requests.
pub const OUR_ADDR: u64 = 0x10_0000;

/// How the guest's queue pair is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rights of the queue pair.
    pub access: &'static [Access],
    /// Rights of the memory.
    pub memory_access: &'static [Access],
    /// Transport service.
    pub transport: Transport,
    /// Path MTU in bytes.
    pub path_mtu: u32,
    /// The first PSN of the case.
    pub psn: u32,
    /// The first PSN of the guest.
    pub guest_psn: u32,
    /// The guest's timeout, coded.
    pub timeout: u8,
    /// The guest's retries.
    pub retry_cnt: u8,
    /// The guest's retries after RNR NAKs.
    pub rnr_retry: u8,
    /// The pause that the guest's RNR NAKs ask for, coded.
    pub min_rnr_timer: u8,
    /// Bytes of the guest's memory.
    pub memory_bytes: usize,
}

impl Options {
    /// Everything is allowed; timeouts are too long to matter.
    pub const DEFAULT: Self = Self {
        access: Access::ALL,
        memory_access: Access::ALL,
        transport: Transport::Rc,
        path_mtu: 1024,
        psn: 0x00a0_0000,
        guest_psn: 0x0050_0000,
        timeout: 20,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        memory_bytes: 64 << 10,
    };
}

/// A queue pair of the guest with what it needs.
#[derive(Clone, Copy, Debug)]
pub struct GuestQp {
    pd: Handle,
    /// Its completion queue.
    pub cq: Handle,
    /// Its memory.
    pub memory: MemoryKey,
    /// Its number.
    pub number: QpNumber,
}

impl GuestQp {
    /// Makes one, not yet connected.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn make(agent: &mut Agent, options: &Options) -> Result<Self> {
        let pd = agent.make_pd()?;
        let cq = agent.make_cq(1024)?;
        let memory = agent.make_mr(pd, options.memory_bytes, options.memory_access)?;
        let number = agent.make_qp(pd, cq, options.transport)?;
        Ok(Self {
            pd,
            cq,
            memory,
            number,
        })
    }

    /// Connects it to a queue pair of the host.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn connect(
        &self,
        agent: &mut Agent,
        version: IpVersion,
        qpn: u32,
        options: &Options,
    ) -> Result<()> {
        agent.connect_qp(&Connect {
            qp: self.number.qp,
            local: &gid(GUEST.of(version)),
            remote: &gid(HOST.of(version)),
            qpn,
            rq_psn: options.psn,
            sq_psn: options.guest_psn,
            path_mtu: options.path_mtu,
            access: options.access,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            min_rnr_timer: options.min_rnr_timer,
            rd_atomic: 16,
        })
    }

    /// Destroys it.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn destroy(&self, agent: &mut Agent) -> Result<()> {
        agent.destroy(&[self.number.qp, self.memory.mr, self.cq, self.pd])
    }

    /// Binds a window to the first `length` bytes of its memory, and returns its key.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn bind_window(&self, agent: &mut Agent, length: usize) -> Result<u32> {
        let objects = [self.pd, self.cq, self.number.qp, self.memory.mr];
        agent.bind_window(objects, (0, length), &[Access::RemoteWrite])
    }
}

fn gid(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_string(),
        IpAddr::V6(address) => address.to_string(),
    }
}

/// A connected queue pair of the guest; the case is its peer.
pub struct Rig<'a> {
    /// The guest's agent.
    pub agent: &'a mut Agent,
    /// Our end of the wire.
    pub wire: &'a mut Wire,
    /// The guest's queue pair.
    pub guest: GuestQp,
    /// The PSN of the next packet that the case sends.
    pub psn: Psn,
    /// The first PSN that the guest sends.
    pub guest_psn: Psn,
}

impl<'a> Rig<'a> {
    /// Makes and connects a queue pair.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn connect(
        agent: &'a mut Agent,
        wire: &'a mut Wire,
        version: IpVersion,
        options: &Options,
    ) -> Result<Self> {
        wire.discard_pending()?;
        let guest = GuestQp::make(agent, options)?;
        guest.connect(agent, version, OUR_QPN, options)?;
        Ok(Self {
            agent,
            wire,
            guest,
            psn: Psn::new(options.psn),
            guest_psn: Psn::new(options.guest_psn),
        })
    }

    /// Headers of a packet to the guest's queue pair, with the next PSN, which it does not take.
    #[must_use]
    pub fn headers(&self, opcode: Opcode) -> Headers {
        Headers::new(Bth::new(opcode, self.guest.number.qpn, self.psn))
    }

    /// Headers of a request for `bytes` at `offset` of the guest's memory, to be acknowledged.
    #[must_use]
    pub fn request(&self, opcode: Opcode, offset: u64, bytes: u32) -> Headers {
        let mut headers = self.headers(opcode);
        headers.bth.ack_req = true;
        headers.reth = Some(Reth {
            va: self.guest.memory.addr.wrapping_add(offset),
            rkey: self.guest.memory.rkey,
            dma_bytes: bytes,
        });
        headers
    }

    /// Sends a packet and takes its PSN, which comes back.
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn send(&mut self, headers: &Headers, payload: &[u8]) -> Result<Psn> {
        self.wire.send(headers, payload)?;
        let psn = headers.bth.psn;
        self.psn = psn.next();
        Ok(psn)
    }

    /// Sends a WRITE in one packet.
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<Psn> {
        let bytes = u32::try_from(data.len())?;
        self.send(&self.request(Opcode::RcWriteOnly, offset, bytes), data)
    }

    /// The next packet from the guest, which must be for our queue pair.
    ///
    /// # Errors
    /// When none comes.
    pub fn receive(&mut self) -> Result<Received> {
        let came = self.wire.receive(LIMIT)?;
        let came = came.with_context(|| format!("no packet within {} s", LIMIT.as_secs()))?;
        let qpn = came.headers.bth.dest_qpn;
        ensure!(qpn == OUR_QPN, "a packet for queue pair {qpn:#x} came");
        Ok(came)
    }

    /// The next packet, which must have this opcode and PSN.
    ///
    /// # Errors
    /// When it has not, or none comes.
    pub fn expect(&mut self, opcode: Opcode, psn: Psn) -> Result<Received> {
        let came = self.receive()?;
        let bth = came.headers.bth;
        if bth.opcode != opcode || bth.psn != psn {
            bail!(
                "expected {opcode:?} with PSN {psn}, got {:?} with PSN {} {:?}",
                bth.opcode,
                bth.psn,
                came.headers.aeth
            );
        }
        Ok(came)
    }

    /// The next packet, which must be an ACK packet with this PSN and syndrome; its MSN.
    ///
    /// # Errors
    /// When it is not, or none comes.
    pub fn expect_answer(&mut self, psn: Psn, syndrome: Syndrome) -> Result<u32> {
        let came = self.expect(Opcode::RcAcknowledge, psn)?;
        let aeth = came.headers.aeth.context("an ACK without AETH")?;
        ensure!(
            aeth.syndrome == syndrome,
            "expected {syndrome:?} for PSN {psn}, got {:?}",
            aeth.syndrome
        );
        Ok(aeth.msn)
    }

    /// The next packet, which must acknowledge up to this PSN; its MSN.
    ///
    /// # Errors
    /// When it does not, or none comes.
    pub fn expect_ack(&mut self, psn: Psn) -> Result<u32> {
        self.expect_answer(psn, Syndrome::ACK)
    }

    /// The next packet, which must be this NAK.
    ///
    /// # Errors
    /// When it is not, or none comes.
    pub fn expect_nak(&mut self, psn: Psn, code: NakCode) -> Result<u32> {
        self.expect_answer(psn, Syndrome::Nak(code))
    }

    /// Shows that the guest has sent nothing: the answer to one more WRITE comes next. Its MSN.
    ///
    /// # Errors
    /// When something else comes, or nothing.
    pub fn expect_nothing(&mut self) -> Result<u32> {
        let end = u64::try_from(Options::DEFAULT.memory_bytes)? - 8;
        let psn = self.write(end, b"anything")?;
        self.expect_ack(psn)
            .context("nothing but the ACK of the WRITE after it was to come")
    }

    /// Sends an answer to the guest's requests.
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn answer(&self, psn: Psn, syndrome: Syndrome, msn: u32) -> Result<()> {
        let bth = Bth::new(Opcode::RcAcknowledge, self.guest.number.qpn, psn);
        let mut headers = Headers::new(bth);
        headers.aeth = Some(Aeth { syndrome, msn });
        self.wire.send(&headers, &[])
    }

    /// Fills the guest's memory.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn fill(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.agent.write_memory(self.guest.memory.mr, offset, data)
    }

    /// Fails unless the guest's memory holds `data` there.
    ///
    /// # Errors
    /// When it does not; the message says where.
    pub fn expect_memory(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        let seen = self
            .agent
            .read_memory(self.guest.memory.mr, offset, data.len())?;
        same_bytes(&seen, data).context("the guest's memory")
    }

    /// Posts a receive of the guest.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn post_recv(&mut self, offset: usize, length: usize, wr_id: u64) -> Result<()> {
        let objects = [self.guest.number.qp, self.guest.memory.mr];
        self.agent.post_recv(objects, (offset, length), wr_id)
    }

    /// A request of the guest for the case's memory, to be posted.
    #[must_use]
    pub fn work(&self, opcode: Work, offset: usize, length: usize) -> Send {
        Send {
            remote_addr: OUR_ADDR,
            rkey: OUR_RKEY,
            ..Send::new(opcode, self.guest.memory.mr, offset, length)
        }
    }

    /// Posts requests of the guest.
    ///
    /// # Errors
    /// When the guest refuses.
    pub fn post(&mut self, requests: &[Send]) -> Result<()> {
        self.agent.post_send(self.guest.number.qp, requests)
    }

    /// The next completion of the guest, which must have this status.
    ///
    /// # Errors
    /// When it has another, or none comes.
    pub fn expect_completion(&mut self, status: Status) -> Result<Completion> {
        let found = self.agent.poll(self.guest.cq, 1, LIMIT)?;
        let entry = found.first().context("the guest completed nothing")?;
        ensure!(
            entry.status == status,
            "expected a completion with {status:?}, got {entry:?}"
        );
        Ok(*entry)
    }

    /// Fails unless the guest's queue pair is in this state.
    ///
    /// # Errors
    /// When it is in another.
    pub fn expect_state(&mut self, state: &str) -> Result<()> {
        let seen = self.agent.state(self.guest.number.qp)?;
        ensure!(seen == state, "expected state {state}, it is {seen}");
        Ok(())
    }
}

/// Fails unless both are the same.
///
/// # Errors
/// With the first place where they differ.
pub fn same_bytes(seen: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(
        seen.len() == expected.len(),
        "{} bytes instead of {}",
        seen.len(),
        expected.len()
    );
    if let Some(at) = (0..seen.len()).find(|at| seen[*at] != expected[*at]) {
        bail!(
            "byte {at} is {:#04x}, expected {:#04x}",
            seen[at],
            expected[at]
        );
    }
    Ok(())
}

/// Bytes that differ from place to place and from seed to seed.
#[must_use]
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    // The period is no multiple of a path MTU, so that exchanged packets show.
    let next = |at: usize| (at.wrapping_mul(7) + at / 251) as u8 ^ seed.wrapping_mul(37);
    (0..bytes).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_between_packets_and_seeds() {
        let long = pattern(1, 8192);
        assert_ne!(long[..4096], long[4096..]);
        assert_ne!(long[..256], long[256..512]);
        assert_ne!(long, pattern(2, 8192));
        assert!(same_bytes(&long, &pattern(1, 8192)).is_ok());
        let error = same_bytes(&long[..9], &pattern(2, 9)).unwrap_err();
        assert!(error.to_string().starts_with("byte 0 is"), "{error}");
    }
}
