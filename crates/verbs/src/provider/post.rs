//! Checks of requests, and which slots of a work queue are free.
use crate::{
    Access, Caps, Completion, Payload, PostFailure, QpInit, QpState, RecvWr, SendOp, SendWr,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What the requests of one queue pair may be. Never changes in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Send requests outstanding at once.
    pub max_send_wr: u32,
    /// Receive requests outstanding at once.
    pub max_recv_wr: u32,
    /// Scatter-gather elements of a request.
    pub max_sge: u32,
    /// Bytes of inline data of a request.
    pub max_inline_bytes: u32,
    /// Bytes of a message.
    pub max_message_bytes: u64,
}

impl Limits {
    /// Of a queue pair with exactly the capacities that were asked for.
    pub fn new(init: &QpInit, caps: &Caps) -> Limits {
        Limits {
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_sge: init.max_sge,
            max_inline_bytes: init.max_inline_bytes,
            max_message_bytes: caps.max_message_bytes,
        }
    }

    /// Whether a queue pair in this state with `outstanding` sends ([`Account::outstanding`]) takes
    /// a send. The regions that it names are for the provider to look up.
    ///
    /// # Errors
    /// The first rule that it breaks.
    #[inline]
    pub fn check_send(
        &self,
        state: QpState,
        outstanding: u64,
        wr: &SendWr<'_>,
    ) -> Result<(), PostFailure> {
        if !state.takes_send() {
            return Err(PostFailure::State(state));
        }
        check_room(outstanding, self.max_send_wr)?;
        check_payload(wr)?;
        match wr.payload {
            Payload::Inline(data) => self.check_inline(data.len()),
            Payload::Sges(sges) => {
                self.check_sges(sges.len())?;
                self.check_message(wr.payload.bytes())
            }
        }
    }

    /// As [`Limits::check_send`], for a receive.
    ///
    /// # Errors
    /// The first rule that it breaks.
    #[inline]
    pub fn check_recv(
        &self,
        state: QpState,
        outstanding: u64,
        wr: &RecvWr<'_>,
    ) -> Result<(), PostFailure> {
        if !state.takes_recv() {
            return Err(PostFailure::State(state));
        }
        check_room(outstanding, self.max_recv_wr)?;
        self.check_sges(wr.sges.len())
    }

    #[inline]
    fn check_sges(&self, asked: usize) -> Result<(), PostFailure> {
        if asked <= self.max_sge as usize {
            return Ok(());
        }
        Err(PostFailure::TooManySges {
            asked,
            limit: self.max_sge,
        })
    }

    #[inline]
    fn check_inline(&self, asked: usize) -> Result<(), PostFailure> {
        if asked <= self.max_inline_bytes as usize {
            return Ok(());
        }
        Err(PostFailure::InlineTooLong {
            asked,
            limit: self.max_inline_bytes,
        })
    }

    #[inline]
    fn check_message(&self, asked: u64) -> Result<(), PostFailure> {
        if asked <= self.max_message_bytes {
            return Ok(());
        }
        Err(PostFailure::MessageTooLong {
            asked,
            limit: self.max_message_bytes,
        })
    }
}

#[inline]
fn check_room(outstanding: u64, capacity: u32) -> Result<(), PostFailure> {
    if outstanding < u64::from(capacity) {
        return Ok(());
    }
    Err(PostFailure::QueueFull { capacity })
}

/// Whether the operation can have this payload.
#[inline]
fn check_payload(wr: &SendWr<'_>) -> Result<(), PostFailure> {
    let inline = matches!(wr.payload, Payload::Inline(_));
    let atomic = matches!(wr.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    let why = if inline && matches!(wr.op, SendOp::Read(_)) {
        "a READ cannot be inline"
    } else if inline && atomic {
        "an atomic cannot be inline"
    } else if atomic && wr.payload.bytes() != 8 {
        "an atomic needs exactly eight local bytes"
    } else {
        return Ok(());
    };
    Err(PostFailure::Payload(why))
}

/// The rights that the local regions of an operation need.
#[inline]
pub fn local_rights(op: &SendOp) -> Access {
    match op {
        SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
            Access::LOCAL_WRITE
        }
        SendOp::Write(_) | SendOp::WriteImm(..) | SendOp::Send | SendOp::SendImm(_) => {
            Access::empty()
        }
    }
}

/// How many requests of one work queue have left it. They are numbered from 0 in the order of
/// posting, and complete in that order.
#[derive(Debug, Default)]
pub struct Account {
    freed: AtomicU64,
}

impl Account {
    /// Requests that still occupy the queue, of `posted` ever posted.
    #[inline]
    pub fn outstanding(&self, posted: u64) -> u64 {
        posted - self.freed.load(Ordering::Acquire)
    }

    /// Requests that have left the queue.
    #[inline]
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// All requests before number `end` are free. Numbers may come in any order.
    #[inline]
    pub fn free_before(&self, end: u64) {
        self.freed.fetch_max(end, Ordering::AcqRel);
    }
}

/// A completion in its queue, with the request that polling it frees.
#[derive(Debug)]
pub struct Entry {
    /// What the application will see.
    pub completion: Completion,
    /// The work queue of the request.
    pub account: Arc<Account>,
    /// The number of the request there.
    pub seq: u64,
}

impl Entry {
    /// Hands out the completion: its request, and all before it, leave the work queue.
    #[inline]
    pub fn polled(self) -> Completion {
        self.account.free_before(self.seq + 1);
        self.completion
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Cq, CqError, RemoteAddr, Sge};
    use std::any::Any;

    /// A queue that stays empty; no check looks into it.
    struct Empty;

    impl Cq for Empty {
        fn poll(&self, _: &mut [Completion]) -> Result<usize, CqError> {
            Ok(0)
        }

        fn req_notify(&self, _: bool) {}

        fn capacity(&self) -> u32 {
            1
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    pub(crate) fn caps() -> Caps {
        Caps {
            max_send_wr: 4,
            max_recv_wr: 2,
            max_sge: 3,
            max_inline_bytes: 16,
            max_cqe: 100,
            max_message_bytes: 1000,
            max_rd_atomic: 16,
            path_mtu: None,
            atomics: true,
            data_in_order: true,
            writes_in_order: true,
            direct: false,
            doorbell: false,
            strict_capacity: true,
        }
    }

    /// As large as [`caps`] allows.
    pub(crate) fn init() -> QpInit {
        let caps = caps();
        QpInit {
            send_cq: Arc::new(Empty),
            recv_cq: Arc::new(Empty),
            max_send_wr: caps.max_send_wr,
            max_recv_wr: caps.max_recv_wr,
            max_sge: caps.max_sge,
            max_inline_bytes: caps.max_inline_bytes,
            strict: true,
        }
    }

    const REMOTE: RemoteAddr = RemoteAddr { addr: 0, rkey: 1 };
    const ATOMICS: [SendOp; 2] = [
        SendOp::FetchAdd {
            remote: REMOTE,
            add: 1,
        },
        SendOp::CompareSwap {
            remote: REMOTE,
            compare: 0,
            swap: 1,
        },
    ];

    fn sge(bytes: u32) -> Sge {
        Sge {
            addr: 0,
            bytes,
            lkey: 1,
        }
    }

    fn check(op: SendOp, payload: Payload<'_>) -> Result<(), PostFailure> {
        let limits = Limits::new(&init(), &caps());
        limits.check_send(QpState::Rts, 0, &SendWr::new(0, op, payload))
    }

    #[test]
    fn requests_need_a_state_that_takes_them() {
        let limits = Limits::new(&init(), &caps());
        let send = SendWr::new(0, SendOp::Send, Payload::Sges(&[]));
        let recv = RecvWr {
            wr_id: 0,
            sges: &[],
        };
        for state in QpState::ALL {
            let (sends, receives) = (state.takes_send(), state.takes_recv());
            let refused = Err(PostFailure::State(state));
            let expected = |takes: bool| if takes { Ok(()) } else { refused };
            assert_eq!(limits.check_send(state, 0, &send), expected(sends));
            assert_eq!(limits.check_recv(state, 0, &recv), expected(receives));
        }
    }

    #[test]
    fn a_full_queue_takes_nothing() {
        let limits = Limits::new(&init(), &caps());
        let send = SendWr::new(0, SendOp::Send, Payload::Sges(&[]));
        let recv = RecvWr {
            wr_id: 0,
            sges: &[],
        };
        assert_eq!(limits.check_send(QpState::Rts, 3, &send), Ok(()));
        let full = limits.check_send(QpState::Rts, 4, &send);
        assert_eq!(full, Err(PostFailure::QueueFull { capacity: 4 }));
        assert_eq!(limits.check_recv(QpState::Rts, 1, &recv), Ok(()));
        let full = limits.check_recv(QpState::Rts, 2, &recv);
        assert_eq!(full, Err(PostFailure::QueueFull { capacity: 2 }));
    }

    #[test]
    fn sizes_go_to_their_limit_and_not_beyond() {
        let write = SendOp::Write(REMOTE);
        assert_eq!(check(write, Payload::Inline(&[0; 16])), Ok(()));
        let long = PostFailure::InlineTooLong {
            asked: 17,
            limit: 16,
        };
        assert_eq!(check(write, Payload::Inline(&[0; 17])), Err(long));
        let three = [sge(300), sge(300), sge(400)];
        assert_eq!(check(write, Payload::Sges(&three)), Ok(()));
        let long = PostFailure::MessageTooLong {
            asked: 1001,
            limit: 1000,
        };
        assert_eq!(check(write, Payload::Sges(&[sge(1), sge(1000)])), Err(long));
        let many = PostFailure::TooManySges { asked: 4, limit: 3 };
        assert_eq!(check(write, Payload::Sges(&[sge(1); 4])), Err(many));
        let limits = Limits::new(&init(), &caps());
        let recv = RecvWr {
            wr_id: 0,
            sges: &[sge(1); 4],
        };
        assert_eq!(limits.check_recv(QpState::Init, 0, &recv), Err(many));
    }

    #[test]
    fn what_brings_bytes_back_cannot_be_inline() {
        let wrong = |result| matches!(result, Err(PostFailure::Payload(_)));
        assert!(wrong(check(SendOp::Read(REMOTE), Payload::Inline(&[0; 8]))));
        assert_eq!(
            check(SendOp::Read(REMOTE), Payload::Sges(&[sge(8)])),
            Ok(())
        );
        for op in ATOMICS {
            assert!(wrong(check(op, Payload::Inline(&[0; 8]))));
            assert!(wrong(check(op, Payload::Sges(&[sge(7)]))));
            assert!(wrong(check(op, Payload::Sges(&[]))));
            assert_eq!(check(op, Payload::Sges(&[sge(4), sge(4)])), Ok(()));
        }
    }

    #[test]
    fn what_brings_bytes_back_writes_locally() {
        for op in ATOMICS.into_iter().chain([SendOp::Read(REMOTE)]) {
            assert_eq!(local_rights(&op), Access::LOCAL_WRITE);
        }
        for op in [
            SendOp::Write(REMOTE),
            SendOp::WriteImm(REMOTE, 1),
            SendOp::Send,
            SendOp::SendImm(1),
        ] {
            assert_eq!(local_rights(&op), Access::empty());
        }
    }

    #[test]
    fn polling_one_completion_frees_all_requests_before_it() {
        let account = Arc::new(Account::default());
        let entry = |seq| Entry {
            completion: Completion {
                wr_id: seq + 100,
                ..Completion::EMPTY
            },
            account: Arc::clone(&account),
            seq,
        };
        assert_eq!(account.outstanding(5), 5);
        assert_eq!(entry(2).polled().wr_id, 102);
        assert_eq!(account.outstanding(5), 2);
        // One of before a reset, polled late: it frees nothing twice.
        entry(0).polled();
        assert_eq!(account.outstanding(5), 2);
        account.free_before(5);
        assert_eq!(account.outstanding(5), 0);
    }
}
