//! Receiving: records of our ring into posted receives.
use crate::inbox::{Kind, MAX_FRAGMENT_BYTES, RECORD_HEADER_BYTES, Record};
use crate::inner::{Inner, PostedRecv};
use crate::payload::scatter;
use crate::qp_core::{LOST, QpCore};
use crate::ring::{self, Count};
use catchment_verbs::{QpState, Success, WcOpcode, WcStatus};

/// Records taken at a time, so that one busy peer cannot hold a polling thread forever.
const BATCH: usize = 256;

/// What to do after a record.
enum Taken {
    /// Continue.
    More,
    /// Nothing is there, or no receive is posted for it.
    Nothing,
    /// The peer violates the protocol.
    Broken(String),
}

impl QpCore {
    /// Takes the records that the peer has put.
    pub(crate) fn receive(&self, inner: &mut Inner) {
        if inner.inbox.ring_bytes == 0 {
            return;
        }
        for _ in 0..BATCH {
            match self.state() {
                QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
                QpState::Reset | QpState::Init | QpState::Err => return,
            }
            match self.take_record(inner) {
                Taken::More => {}
                Taken::Nothing => return,
                Taken::Broken(reason) => return self.fail_locked(inner, Some(&reason)),
            }
        }
    }

    /// Takes all records for which there is a receive: before the queue pair fails for a reason
    /// later than these messages.
    pub(crate) fn receive_all(&self, inner: &mut Inner) {
        loop {
            let before = inner.head;
            self.receive(inner);
            if inner.head == before {
                return;
            }
        }
    }

    fn take_record(&self, inner: &mut Inner) -> Taken {
        let ring_bytes = inner.inbox.ring_bytes.into();
        let ready = match ring::ready_bytes(inner.inbox.tail(), inner.head, ring_bytes) {
            Ok(0) => return Taken::Nothing,
            Ok(ready) => ready,
            Err(error) => return Taken::Broken(error.to_string()),
        };
        let mut header = [0; RECORD_HEADER_BYTES];
        inner.inbox.get(inner.head, &mut header);
        if inner.inbox.is_broken() {
            return Taken::Broken(LOST.into());
        }
        let record = Record::decode(&header).filter(|record| record.ring_bytes() <= ready);
        let Some(record) = record else {
            return Taken::Broken("the peer put an invalid record".into());
        };
        if inner.recvs.is_empty() {
            return Taken::Nothing;
        }
        self.deliver(inner, &record)
    }

    /// Passes a record to the oldest receive.
    fn deliver(&self, inner: &mut Inner, record: &Record) -> Taken {
        let Some(mut recv) = inner.recvs.pop_front() else { return Taken::Nothing };
        let result = match record.kind {
            Kind::Send => fill(inner, &mut recv, record),
            Kind::WriteImm => Ok(()),
            Kind::TooLong => Err(WcStatus::LocalLength),
            Kind::Unusable => Err(WcStatus::LocalProtection),
        };
        inner.head = inner.head.wrapping_add(record.ring_bytes());
        inner.inbox.head().publish(inner.head);
        inner.taken = true;
        match result {
            Ok(()) if !record.last => inner.recvs.push_front(recv),
            Ok(()) => {
                self.complete_recv(&recv, Ok(success(&recv, record)));
                inner.pushed_recv = Some(inner.pushed_recv.unwrap_or(false) || record.solicited);
            }
            Err(status) => {
                self.complete_recv(&recv, Err(status));
                inner.pushed_recv = Some(true);
                self.fail_locked(inner, Some(&status.to_string()));
            }
        }
        self.note_receives(inner);
        Taken::More
    }
}

/// Appends the payload of a record to what the receive already has.
fn fill(inner: &Inner, recv: &mut PostedRecv, record: &Record) -> Result<(), WcStatus> {
    let room = recv.room.ok_or(WcStatus::LocalProtection)?;
    let bytes = u64::from(record.bytes);
    if room - recv.filled < bytes {
        return Err(WcStatus::LocalLength);
    }
    debug_assert!(record.bytes as usize <= MAX_FRAGMENT_BYTES);
    let at = inner.head.wrapping_add(RECORD_HEADER_BYTES as u64);
    for piece in inner.inbox.pieces(at, record.bytes as usize).into_iter().flatten() {
        scatter(&recv.pieces, recv.filled as usize, piece);
        recv.filled += piece.bytes() as u64;
    }
    if inner.inbox.is_broken() { Err(WcStatus::General) } else { Ok(()) }
}

fn success(recv: &PostedRecv, record: &Record) -> Success {
    let (opcode, bytes) = match record.kind {
        Kind::WriteImm => (WcOpcode::RecvWriteImm, record.message_bytes),
        Kind::Send | Kind::TooLong | Kind::Unusable => (WcOpcode::Recv, recv.filled),
    };
    Success::plain(opcode, bytes).with_imm(record.imm)
}
