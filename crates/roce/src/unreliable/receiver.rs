//! The receiving half of UC (IBTA volume 1, 9.8.2): messages that lack a packet are dropped.
use crate::Psn;
use crate::config::{InitAttr, RtrAttr};
use crate::input::{Arrival, Env};
use crate::responder::message::{Message, Write, length_fits};
use crate::responder::receives::{ReceiveError, Receives};
use crate::wire::Headers;
use catchment_verbs_types::{Success, WcOpcode, WcStatus};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UnreliableReceiver {
    mtu: usize,
    access: InitAttr,
    expected: Psn,
    message: Message,
    pub(crate) receives: Receives,
}

/// The message cannot be taken and is dropped.
struct Dropped;

impl UnreliableReceiver {
    pub(crate) fn connect(&mut self, attr: &RtrAttr, access: &InitAttr) {
        self.mtu = attr.path_mtu.bytes();
        self.access = *access;
        self.expected = attr.rq_psn;
    }

    pub(crate) fn handle(&mut self, arrival: &Arrival<'_>, env: &mut Env<'_>) {
        let headers = arrival.headers;
        let psn = headers.bth.psn;
        if psn != self.expected {
            self.give_up(env);
        }
        self.expected = psn.next();
        if headers.bth.opcode.starts_message() {
            self.give_up(env);
        } else if !self.message.admits(headers.bth.opcode) {
            // The rest of a message that was dropped already.
            return;
        }
        if self.execute(headers, arrival.payload, env).is_err() {
            env.counters.messages_dropped += 1;
            self.message = Message::None;
            self.receives.rewind();
        }
    }

    /// Drops the message in progress, which lacks a packet.
    fn give_up(&mut self, env: &mut Env<'_>) {
        if self.message != Message::None {
            env.counters.messages_dropped += 1;
            self.message = Message::None;
            self.receives.rewind();
        }
    }

    fn execute(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Result<(), Dropped> {
        let opcode = headers.bth.opcode;
        if !length_fits(opcode, payload.len(), self.mtu) {
            return Err(Dropped);
        }
        let bytes = if opcode.is_send() {
            self.send(payload, env)?
        } else {
            self.write(headers, payload, env)?
        };
        env.counters.bytes_received += payload.len() as u64;
        if !opcode.ends_message() {
            return Ok(());
        }
        self.message = Message::None;
        if opcode.is_send() || opcode.has_imm() {
            self.complete(headers, bytes, env)?;
        }
        Ok(())
    }

    fn send(&mut self, payload: &[u8], env: &mut Env<'_>) -> Result<u64, Dropped> {
        if self.receives.is_empty() {
            return Err(Dropped);
        }
        self.message = Message::Send;
        match self.receives.fill(payload, env.memory) {
            Ok(()) => Ok(self.receives.filled()),
            Err(ReceiveError::TooLong) => Err(Dropped),
            Err(ReceiveError::Memory) => {
                self.receives.fail(WcStatus::LocalProtection, env.completions);
                Err(Dropped)
            }
        }
    }

    fn write(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Result<u64, Dropped> {
        let write = Write::of(&self.message, headers, payload.len());
        let write = write.filter(|_| self.access.remote_write).ok_or(Dropped)?;
        let write = write.place(headers.bth.opcode, payload, env.memory).map_err(|_| Dropped)?;
        self.message = Message::Write(write);
        Ok(u64::from(write.total))
    }

    fn complete(
        &mut self,
        headers: &Headers,
        bytes: u64,
        env: &mut Env<'_>,
    ) -> Result<(), Dropped> {
        if self.receives.is_empty() {
            return Err(Dropped);
        }
        let opcode =
            if headers.bth.opcode.is_send() { WcOpcode::Recv } else { WcOpcode::RecvWriteImm };
        let success = Success::plain(opcode, bytes).with_imm(headers.imm);
        self.receives.complete(success, headers.bth.solicited, env.completions);
        Ok(())
    }
}
