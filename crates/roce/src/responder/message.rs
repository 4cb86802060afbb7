//! SEND and WRITE: the sequence of opcodes, and the payload.
use super::receives::ReceiveError;
use super::{INVALID, NO_ACCESS, Outcome, Responder};
use crate::input::Env;
use crate::memory::{AccessError, Memory, RemoteAccess};
use crate::wire::{Headers, NakCode, Opcode, Operation, Reth};
use catchment_verbs_types::{Success, WcOpcode, WcStatus};

/// The message in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Message {
    #[default]
    None,
    Send,
    Write(Write),
}

/// A WRITE in progress. Its fields are used one by one: a copy of it just after one of them was stored waits until
/// all stores before that are done, those of a whole packet into memory that no cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) va: u64,
    pub(crate) rkey: u32,
    pub(crate) left: u32,
    pub(crate) total: u32,
}

impl Message {
    /// Returns whether a packet may follow: it continues a message if and only if one of its kind
    /// is in progress.
    pub(crate) fn admits(&self, opcode: Opcode) -> bool {
        match self {
            Self::None => opcode.starts_message(),
            Self::Send => opcode.is_send() && !opcode.starts_message(),
            Self::Write(_) => opcode.is_write() && !opcode.starts_message(),
        }
    }
}

impl Write {
    /// Returns the WRITE of a packet: the one in progress, or the one that it begins. `None` if its
    /// length contradicts what is left.
    #[inline]
    pub(crate) fn of(message: &Message, headers: &Headers, payload: usize) -> Option<Self> {
        let write = if let Message::Write(write) = message {
            *write
        } else {
            let Reth { va, rkey, dma_bytes } = headers.reth?;
            Self { va, rkey, left: dma_bytes, total: dma_bytes }
        };
        let (bytes, left) = (payload as u32, write.left);
        let fits = if headers.bth.opcode.ends_message() { bytes == left } else { bytes <= left };
        fits.then_some(write)
    }

    /// Puts the bytes of one packet in place, and returns what is left then. The first packet checks the whole
    /// range.
    #[inline]
    pub(crate) fn place(
        self,
        opcode: Opcode,
        payload: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<Self, AccessError> {
        if opcode.is_first() {
            let total = u64::from(self.total);
            memory.check_remote(RemoteAccess::Write, self.rkey, self.va, total)?;
        }
        if !payload.is_empty() {
            memory.write_remote(self.rkey, self.va, payload)?;
        }
        let (va, left) = (self.va.wrapping_add(payload.len() as u64), self.left);
        Ok(Self { va, left: left - payload.len() as u32, ..self })
    }
}

/// Returns whether the opcode of a packet allows its length (IBTA volume 1, 9.7.4.1.6).
pub(crate) fn length_fits(opcode: Opcode, payload: usize, mtu: usize) -> bool {
    if opcode.ends_message() {
        payload <= mtu && (opcode.is_only() || payload > 0)
    } else {
        payload == mtu
    }
}

impl Responder {
    /// Executes the expected packet.
    pub(super) fn execute(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Outcome {
        let opcode = headers.bth.opcode;
        if !self.message.admits(opcode) {
            return INVALID;
        }
        match opcode.operation() {
            Operation::Send => self.execute_send(headers, payload, env),
            Operation::Write => self.execute_write(headers, payload, env),
            Operation::ReadRequest => self.execute_read(headers, env),
            Operation::CompareSwap | Operation::FetchAdd => self.execute_atomic(headers, env),
            // Not requests: never passed here.
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Cnp
            | Operation::Sack
            | Operation::Challenge
            | Operation::ChallengeAnswer => INVALID,
        }
    }

    fn execute_send(&mut self, headers: &Headers, payload: &[u8], env: &mut Env<'_>) -> Outcome {
        let opcode = headers.bth.opcode;
        if self.receives.is_empty() {
            return Outcome::NotReady;
        }
        if !length_fits(opcode, payload.len(), self.mtu) {
            return INVALID;
        }
        if let Err(error) = self.receives.fill(payload, env.memory) {
            return self.fail_receive(error, env);
        }
        env.counters.bytes_received += payload.len() as u64;
        self.message = Message::Send;
        if !opcode.ends_message() {
            return Outcome::Done(1);
        }
        if let Some(rkey) = headers.ieth
            && env.memory.invalidate(rkey).is_err()
        {
            self.receives.fail(WcStatus::LocalProtection, env.completions);
            return NO_ACCESS;
        }
        self.message = Message::None;
        let bytes = self.receives.filled();
        self.complete_receive(WcOpcode::Recv, bytes, headers, env);
        self.count_message();
        Outcome::Done(1)
    }

    /// Fails a receive that the message does not fit, at both ends.
    fn fail_receive(&mut self, error: ReceiveError, env: &mut Env<'_>) -> Outcome {
        let status = error.status();
        self.receives.fail(status, env.completions);
        let code = match error {
            ReceiveError::TooLong => NakCode::InvalidRequest,
            ReceiveError::Memory => NakCode::RemoteOperation,
        };
        Outcome::Fatal(code, status)
    }

    fn execute_write(&mut self, headers: &Headers, payload: &[u8], env: &mut Env<'_>) -> Outcome {
        let opcode = headers.bth.opcode;
        if !self.access.remote_write {
            return INVALID;
        }
        if opcode.has_imm() && self.receives.is_empty() {
            return Outcome::NotReady;
        }
        let Some(write) = Write::of(&self.message, headers, payload.len()) else {
            return INVALID;
        };
        if !length_fits(opcode, payload.len(), self.mtu) {
            return INVALID;
        }
        let Ok(write) = write.place(opcode, payload, env.memory) else { return NO_ACCESS };
        env.counters.bytes_received += payload.len() as u64;
        self.message = Message::Write(write);
        if !opcode.ends_message() {
            return Outcome::Done(1);
        }
        self.message = Message::None;
        if opcode.has_imm() {
            self.complete_receive(WcOpcode::RecvWriteImm, u64::from(write.total), headers, env);
        }
        self.count_message();
        Outcome::Done(1)
    }

    fn complete_receive(
        &mut self,
        opcode: WcOpcode,
        bytes: u64,
        headers: &Headers,
        env: &mut Env<'_>,
    ) {
        let plain = Success::plain(opcode, bytes).with_imm(headers.imm);
        let success = match headers.ieth {
            Some(rkey) => plain.invalidating(rkey),
            None => plain,
        };
        self.receives.complete(success, headers.bth.solicited, env.completions);
    }
}
