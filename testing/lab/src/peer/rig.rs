//! A queue pair of the guest, connected to a case that sends packet by packet.
use super::wire::{Received, Wire};
use crate::end::client::End;
use crate::end::{Completed, Kind, Options, Place};
use crate::vm::network::{GUEST, HOST, IpVersion};
use anyhow::{Context as _, Result, ensure};
use catchment_roce::Psn;
use catchment_roce::wire::{Aeth, Bth, Headers, NakCode, Opcode, Reth, Syndrome};
use catchment_sim::roce::Space;
use std::net::IpAddr;
use std::time::Duration;

/// Longer than the emulated guest takes for anything on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(4);

pub(crate) const OUR_QPN: u32 = 0x1234;

/// The rkey of the case's memory, which the guest's requests name.
pub(crate) const OUR_RKEY: u32 = Space::FIRST_KEY;

pub(crate) const OUR_ADDR: u64 = Space::FIRST_ADDR;

pub(crate) const OUR_PLACE: Place = Place { addr: OUR_ADDR, rkey: OUR_RKEY };

fn gid(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_string(),
        IpAddr::V6(address) => address.to_string(),
    }
}

/// Connects the guest's queue pair to ours.
pub(crate) fn connect(guest: &mut End, version: IpVersion) -> Result<()> {
    guest.ready_to_send(gid(GUEST.of(version)), gid(HOST.of(version)), OUR_QPN)
}

pub(crate) struct Rig<'a> {
    pub(crate) guest: &'a mut End,
    pub(crate) wire: &'a mut Wire,
    /// The PSN of the next packet that the case sends.
    pub(crate) psn: Psn,
    /// The first PSN that the guest sends.
    pub(crate) guest_psn: Psn,
}

impl<'a> Rig<'a> {
    pub(crate) fn connect(
        guest: &'a mut End,
        wire: &'a mut Wire,
        version: IpVersion,
        options: &Options,
    ) -> Result<Self> {
        wire.discard_pending()?;
        guest.make(Kind::Kernel(*options))?;
        connect(guest, version)?;
        Ok(Self { guest, wire, psn: Psn::new(options.psn), guest_psn: Psn::new(options.guest_psn) })
    }

    /// Returns headers of a packet to the guest's queue pair with the next PSN, without consuming it.
    pub(crate) fn headers(&self, opcode: Opcode) -> Headers {
        Headers::new(Bth::new(opcode, self.guest.card.qpn, self.psn))
    }

    /// Returns headers of a request for `bytes` at `offset` of the guest's memory that requests an ACK.
    pub(crate) fn request(&self, opcode: Opcode, offset: u64, bytes: u32) -> Headers {
        let mut headers = self.headers(opcode);
        headers.bth.ack_req = true;
        headers.reth = Some(Reth {
            va: self.guest.card.addr.wrapping_add(offset),
            rkey: self.guest.card.rkey,
            dma_bytes: bytes,
        });
        headers
    }

    /// Sends a packet and consumes its PSN, which is returned.
    pub(crate) fn send(&mut self, headers: &Headers, payload: &[u8]) -> Result<Psn> {
        self.wire.send(headers, payload)?;
        let psn = headers.bth.psn;
        self.psn = psn.next();
        Ok(psn)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<Psn> {
        let bytes = u32::try_from(data.len())?;
        self.send(&self.request(Opcode::RcWriteOnly, offset, bytes), data)
    }

    pub(crate) fn receive(&mut self) -> Result<Received> {
        let came = self.wire.receive(LIMIT)?;
        let came = came.with_context(|| format!("no packet within {} s", LIMIT.as_secs()))?;
        let qpn = came.headers.bth.dest_qpn;
        ensure!(qpn == OUR_QPN, "received a packet for queue pair {qpn:#x}");
        Ok(came)
    }

    pub(crate) fn expect(&mut self, opcode: Opcode, psn: Psn) -> Result<Received> {
        let came = self.receive()?;
        let bth = came.headers.bth;
        ensure!(
            (bth.opcode, bth.psn) == (opcode, psn),
            "expected {opcode:?} with PSN {psn}, got {:?} with PSN {} {:?}",
            bth.opcode,
            bth.psn,
            came.headers.aeth
        );
        Ok(came)
    }

    /// Receives a packet, which must be an ACK with this PSN and syndrome, and returns its MSN.
    pub(crate) fn expect_answer(&mut self, psn: Psn, syndrome: Syndrome) -> Result<u32> {
        let came = self.expect(Opcode::RcAcknowledge, psn)?;
        let aeth = came.headers.aeth.context("an ACK without AETH")?;
        ensure!(
            aeth.syndrome == syndrome,
            "expected {syndrome:?} for PSN {psn}, got {:?}",
            aeth.syndrome
        );
        Ok(aeth.msn)
    }

    pub(crate) fn expect_ack(&mut self, psn: Psn) -> Result<u32> {
        self.expect_answer(psn, Syndrome::ACK)
    }

    pub(crate) fn expect_nak(&mut self, psn: Psn, code: NakCode) -> Result<u32> {
        self.expect_answer(psn, Syndrome::Nak(code))
    }

    /// Shows that the guest has sent nothing: the next packet is the ACK of one more WRITE. Returns its
    /// MSN.
    pub(crate) fn expect_nothing(&mut self) -> Result<u32> {
        let end = u64::try_from(Options::DEFAULT.memory_bytes)? - 8;
        let psn = self.write(end, b"anything")?;
        self.expect_ack(psn).context("expected no packet before the ACK of the next WRITE")
    }

    pub(crate) fn answer(&self, psn: Psn, syndrome: Syndrome, msn: u32) -> Result<()> {
        self.wire.send(&self.response(Opcode::RcAcknowledge, psn, syndrome, msn), &[])
    }

    pub(crate) fn response(
        &self,
        opcode: Opcode,
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    ) -> Headers {
        let mut headers = Headers::new(Bth::new(opcode, self.guest.card.qpn, psn));
        headers.aeth = Some(Aeth { syndrome, msn });
        headers
    }

    pub(crate) fn expect_completion(&mut self, receives: bool, status: &str) -> Result<Completed> {
        let found = self.guest.wait_within(receives, 1, LIMIT)?.pop();
        found.context("the guest completed nothing")?.with_status(status)
    }

    pub(crate) fn expect_received(&mut self) -> Result<Completed> {
        self.expect_completion(true, "Success")
    }

    pub(crate) fn expect_sent(&mut self, status: &str) -> Result<Completed> {
        self.expect_completion(false, status)
    }

    pub(crate) fn expect_state(&mut self, state: &str) -> Result<()> {
        let seen = self.guest.state()?;
        ensure!(seen == state, "expected state {state}, it is {seen}");
        Ok(())
    }
}
