//! One conformance suite for every verbs provider.
//!
//! A provider's test crate names its provider once and gets one `#[test]` for each case:
//!
//! ```text
//! catchment_conformance::conformance!(catchment_conformance::Bench::new(
//!     std::sync::Arc::new(ShmProvider::new()),
//!     "shm0",
//! ));
//! ```
//! The cases know nothing of the provider: what is optional is asked of its [`Caps`], and what the
//! capabilities claim is put to the test. Where verbs leave a choice, a case accepts both.
//!
//! Cases with a second process start the test binary again with an environment variable; the test
//! `conformance_child` is where that process does its work.
//!
//! What a device does not offer is not tried, and a line on the standard error stream says so.
//!
//! A case reports by panicking. Set `CATCHMENT_CONFORMANCE_ROUNDS` to multiply the length of the
//! cases that repeat (1 by default; 0.1 for a machine that is emulated).
#![allow(clippy::unwrap_used, reason = "a panic is how a case reports")]
#![forbid(unsafe_code)]
use catchment_verbs::{
    Access, Caps, Completion, CompletionChannel, Context, Cq, Failure, Mr, Payload, Pd, Provider,
    Qp, QpInit, QpTransition, RecvWr, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Service, Sge,
    Success, WcStatus,
};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub mod caps;
pub mod datagrams;
pub mod events;
pub mod invalidation;
pub mod messages;
pub mod operations;
pub mod ordering;
pub mod processes;
pub mod protection;
pub mod queues;
pub mod rates;
pub mod resources;
pub mod states;
pub mod unreliable;

/// How long something may take that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// All rights.
pub const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

/// Expands to one test for each case. The argument makes a [`Bench`].
#[macro_export]
macro_rules! conformance {
    ($bench:expr) => {
        $crate::conformance_cases! { conformance_tests $bench; }
    };
}

/// Gives all cases to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($then:ident $($arguments:tt)*) => {
        $crate::$then! { $($arguments)*
            operations::writes_move_exactly_their_bytes,
            operations::reads_move_exactly_their_bytes,
            operations::elements_are_gathered_and_scattered_in_order,
            operations::inline_data_may_be_reused_at_once,
            operations::atomics_return_what_was_there,
            operations::misaligned_atomics_are_refused,
            operations::a_context_can_talk_to_itself,
            operations::one_collector_serves_many_sources,
            messages::messages_of_all_lengths_arrive,
            messages::immediates_arrive,
            messages::both_directions_at_once,
            messages::a_message_waits_for_its_receive,
            messages::a_sender_gives_up_without_a_receive,
            messages::a_message_that_is_too_long_fails_both_sides,
            messages::a_receive_with_a_wrong_key_fails_both_sides,
            messages::requests_behind_a_waiting_message_wait_too,
            protection::wrong_local_keys_are_refused,
            protection::wrong_remote_keys_are_refused,
            protection::rights_of_the_region_are_enforced,
            protection::rights_of_the_queue_pair_are_enforced,
            protection::a_deregistered_region_is_out_of_reach,
            protection::the_responder_of_a_forbidden_request_fails_too,
            protection::keys_are_unique,
            protection::contradictory_rights_are_refused,
            states::only_the_transitions_of_the_specification_exist,
            states::wrong_states_take_no_requests,
            states::attributes_out_of_range_are_refused,
            states::a_drained_queue_holds_later_requests,
            states::after_a_reset_everything_works_again,
            states::either_side_may_connect_first,
            states::an_unknown_peer_is_an_error_and_not_a_hang,
            queues::a_full_queue_takes_more_after_polling,
            queues::the_smallest_queues_of_the_paper_suffice,
            queues::the_failed_index_is_exact,
            queues::a_full_receive_queue_says_so,
            queues::everything_outstanding_is_flushed_once_and_in_order,
            queues::an_overrun_breaks_the_queue_pair,
            queues::unsignaled_requests_complete_silently,
            caps::limits_are_where_the_caps_say,
            caps::objects_of_other_devices_are_refused,
            caps::services_have_their_own_operations,
            caps::what_is_not_offered_is_refused,
            rates::a_limited_queue_pair_moves_every_byte_in_order,
            rates::a_limited_queue_pair_sends_messages,
            rates::a_limit_can_be_taken_away_while_requests_wait,
            rates::a_limit_outlives_a_reset,
            rates::rates_that_cannot_be_kept_are_refused,
            ordering::the_last_word_of_a_write_comes_last,
            ordering::a_later_write_is_seen_later,
            ordering::completions_come_in_the_order_of_posting,
            events::no_wake_up_is_lost_in_ping_pong,
            events::one_notification_gives_one_event,
            events::solicited_only_ignores_the_rest,
            events::a_sleeper_can_be_woken,
            events::a_sleeping_sender_wakes_when_a_receive_is_posted,
            events::a_long_message_moves_while_both_sides_sleep,
            events::a_watch_wakes_after_a_write,
            events::no_watch_is_lost_in_ping_pong,
            events::the_owner_wakes_who_watches_from_afar,
            events::a_mapped_region_is_the_peers_memory,
            events::a_mapped_region_has_the_rights_of_its_key,
            resources::nothing_is_left_of_a_thousand_connections,
            resources::objects_may_be_dropped_in_any_order,
            resources::a_request_keeps_its_memory,
            unreliable::a_connection_writes_and_sends,
            unreliable::a_message_without_a_receive_is_dropped,
            unreliable::a_write_with_a_wrong_key_is_dropped,
            unreliable::a_connection_is_drained_and_made_anew,
            datagrams::datagrams_arrive_with_their_sender,
            datagrams::a_wrong_qkey_is_dropped,
            datagrams::a_datagram_fits_one_packet,
            datagrams::a_datagram_without_a_receive_is_dropped,
            datagrams::destinations_are_checked,
            datagrams::a_datagram_outlives_its_address_handle,
            invalidation::an_invalidated_key_is_dead_for_peers,
            invalidation::a_key_without_the_right_stays,
            invalidation::a_dead_key_cannot_be_invalidated,
            processes::two_processes_do_everything,
            processes::a_killed_peer_is_noticed_every_time,
        }
    };
}

/// One test for each case.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($bench:expr; $($module:ident :: $case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                $crate::$module::$case(&$bench);
            }
        )*

        /// Where the second process of a case does its work; nothing in the first.
        #[test]
        fn conformance_child() {
            $crate::processes::child(&$bench);
        }
    };
}

/// The list of all cases.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ($($module:ident :: $case:ident),* $(,)?) => {
        &[$((stringify!($module::$case), $module::$case)),*]
    };
}

/// One case.
pub type Case = fn(&Bench);

/// All cases by name, for a test that sets something up around them.
pub const CASES: &[(&str, Case)] = conformance_cases! { conformance_list };

/// The provider under test.
pub struct Bench {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The device to open.
    pub device: String,
    /// Where the device is known not to do what the standard says.
    pub deviations: Vec<Deviation>,
}

/// What a device does otherwise than the standard says, so that no provider can mend it. A case
/// accepts it only where the bench names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// A message longer than its receive breaks the receiver's queue pair, and is answered so: IBTA
    /// 9.7.5.2.6 has a "local length error" there and "invalid request" here. Linux's rdma_rxe.
    LongMessageBreaksTheQueuePair,
    /// A wrong local key is a broken queue pair (IBTA 10.10.3 has "local protection error").
    /// Linux's rdma_rxe.
    WrongKeyBreaksTheQueuePair,
    /// A SEND that may not invalidate its key is acknowledged before the receiver breaks (IBTA
    /// 9.7.5.2.8 has "remote access error"). Linux's rdma_rxe.
    InvalidationIsAcknowledgedFirst,
}

/// What a [`Side`] is made with.
#[derive(Clone)]
pub struct Options {
    /// As in [`QpInit`].
    pub service: Service,
    /// What datagrams must carry, on UD.
    pub qkey: u32,
    /// As in [`QpInit`].
    pub max_send_wr: u32,
    /// As in [`QpInit`].
    pub max_recv_wr: u32,
    /// Entries of the completion queue of sends.
    pub send_cqe: u32,
    /// Entries of the completion queue of receives.
    pub recv_cqe: u32,
    /// Rights of the registered memory.
    pub access: Access,
    /// Rights of the peer on the queue pair.
    pub qp_access: Access,
    /// Bytes of the registered memory.
    pub bytes: usize,
    /// Attributes of RTS.
    pub rts: RtsAttr,
    /// What the peer shall wait without a receive.
    pub min_rnr_timer: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            service: Service::Rc,
            qkey: 0x1234_5678,
            max_send_wr: 64,
            max_recv_wr: 64,
            send_cqe: 256,
            recv_cqe: 256,
            access: ALL,
            qp_access: Access::REMOTE,
            bytes: 1 << 20,
            rts: RtsAttr::default(),
            min_rnr_timer: Duration::from_millis(1),
        }
    }
}

/// One side of a connection: a queue pair with all that it needs. Fields drop in the order that
/// verbs ask for.
pub struct Side {
    /// The queue pair.
    pub qp: Box<dyn Qp>,
    /// Registered memory.
    pub mr: Arc<dyn Mr>,
    /// Where sends complete.
    pub send_cq: Arc<dyn Cq>,
    /// Where receives complete.
    pub recv_cq: Arc<dyn Cq>,
    /// Both queues notify here.
    pub channel: Arc<dyn CompletionChannel>,
    /// The protection domain.
    pub pd: Arc<dyn Pd>,
    /// The device.
    pub context: Arc<dyn Context>,
}

impl Bench {
    /// A bench for this provider and device.
    pub fn new(provider: Arc<dyn Provider>, device: &str) -> Bench {
        Bench {
            provider,
            device: device.to_owned(),
            deviations: Vec::new(),
        }
    }

    /// Asserts the status that the standard has, or the one that the device is known to give in its
    /// place.
    fn assert_status(&self, seen: WcStatus, standard: WcStatus, known: Deviation) {
        let instead = if standard == WcStatus::RemoteInvalidRequest {
            WcStatus::RemoteOperation
        } else {
            WcStatus::LocalQpOperation
        };
        let accepted = seen == instead && self.deviations.contains(&known);
        assert!(
            seen == standard || accepted,
            "{seen:?} in place of {standard:?}"
        );
    }

    /// Opens the device.
    pub fn open(&self) -> Arc<dyn Context> {
        self.provider.open(&self.device).unwrap()
    }

    /// What the device claims.
    pub fn caps(&self) -> Caps {
        self.open().caps().clone()
    }

    /// A side with a device of its own, not connected.
    pub fn side(&self, options: &Options) -> Side {
        Side::new(self.open(), options)
    }

    /// Whether the device offers what a case is about; if not, a line says so. It goes past the
    /// capture of test output: nothing is left out silently.
    pub fn offers(&self, what: &str, is_offered: bool) -> bool {
        if !is_offered {
            let (name, device) = (self.provider.name(), &self.device);
            let line = format!("conformance: {name} ({device}) does not offer {what}: not tried\n");
            let written = std::io::stderr().write_all(line.as_bytes());
            written.unwrap();
        }
        is_offered
    }

    /// As [`Bench::offers`], of a service.
    pub fn offers_service(&self, service: Service) -> bool {
        let is_offered = self.caps().services.has(service);
        self.offers(&service.to_string(), is_offered)
    }

    /// Two connected sides.
    pub fn pair(&self) -> (Side, Side) {
        self.pair_with(&Options::default(), &Options::default())
    }

    /// Two connected sides that differ.
    pub fn pair_with(&self, ours: &Options, theirs: &Options) -> (Side, Side) {
        let (mut a, mut b) = (self.side(ours), self.side(theirs));
        connect((&mut a, ours), (&mut b, theirs));
        (a, b)
    }
}

/// Connects two sides.
pub fn connect((a, ours): (&mut Side, &Options), (b, theirs): (&mut Side, &Options)) {
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    a.connect(eb, ours);
    b.connect(ea, theirs);
}

impl Side {
    /// A side on this device, not connected.
    pub fn new(context: Arc<dyn Context>, options: &Options) -> Side {
        let pd = context.alloc_pd().unwrap();
        let channel = context.create_channel().unwrap();
        let cq = |entries| context.create_cq(entries, Some(channel.clone())).unwrap();
        let (send_cq, recv_cq) = (cq(options.send_cqe), cq(options.recv_cqe));
        let caps = context.caps();
        let qp = pd.create_qp(QpInit {
            service: options.service,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            max_send_wr: options.max_send_wr,
            max_recv_wr: options.max_recv_wr,
            max_sge: caps.max_sge.min(4),
            max_inline_bytes: caps.max_inline_bytes.min(256),
            strict: caps.strict_capacity,
        });
        Side {
            qp: qp.unwrap(),
            mr: pd.alloc_mr(options.bytes, options.access).unwrap(),
            send_cq,
            recv_cq,
            channel,
            pd,
            context,
        }
    }

    /// From RESET to RTS.
    pub fn connect(&mut self, peer: catchment_verbs::Endpoint, options: &Options) {
        self.init(options);
        let rtr = RtrAttr {
            min_rnr_timer: options.min_rnr_timer,
            ..RtrAttr::new(peer)
        };
        let (rtr, rts) = match options.service {
            Service::Rc => (QpTransition::ToRtr(rtr), QpTransition::ToRts(options.rts)),
            Service::Uc => (QpTransition::ToRtrUc(peer), QpTransition::ToRtsUnreliable),
            Service::Ud => (QpTransition::ToRtrUd, QpTransition::ToRtsUnreliable),
        };
        self.qp.modify(rtr).unwrap();
        self.qp.modify(rts).unwrap();
    }

    /// From RESET to INIT.
    pub fn init(&mut self, options: &Options) {
        let (access, qkey) = (options.qp_access, options.qkey);
        let init = match options.service {
            Service::Rc | Service::Uc => QpTransition::ToInit { access },
            Service::Ud => QpTransition::ToInitUd { qkey },
        };
        self.qp.modify(init).unwrap();
    }

    /// A piece of the registered memory, for a local element.
    pub fn sge(&self, offset: usize, bytes: usize) -> Sge {
        Sge {
            addr: self.mr.addr() + offset as u64,
            bytes: bytes as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// A place in the registered memory, for the peer.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.mr.addr() + offset as u64,
            rkey: self.mr.rkey(),
        }
    }

    /// Writes to the registered memory.
    pub fn put(&self, offset: usize, data: &[u8]) {
        self.mr.region().whole().write_at(offset, data).unwrap();
    }

    /// Reads the registered memory.
    pub fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.mr.region().slice(offset, bytes).unwrap().to_vec()
    }

    /// Posts one request, which must be taken.
    pub fn post(&mut self, wr: SendWr<'_>) {
        self.qp.post_send(&[wr]).unwrap();
    }

    /// Posts one receive, which must be taken.
    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&[RecvWr { wr_id, sges }]).unwrap();
    }

    /// Posts a request and waits for its completion, which must be the next.
    pub fn run(&mut self, wr: SendWr<'_>) -> Result<Success, Failure> {
        self.post(wr);
        let done = wait_one(&*self.send_cq);
        assert_eq!((done.wr_id, done.qpn), (wr.wr_id, self.qp.qpn()));
        done.result
    }

    /// As [`Side::run`] with registered memory, for an expected success.
    pub fn run_ok(&mut self, op: SendOp, sges: &[Sge]) -> Success {
        self.run(SendWr::new(77, op, Payload::Sges(sges))).unwrap()
    }

    /// As [`Side::run`] with registered memory, for an expected failure.
    pub fn run_failing(&mut self, op: SendOp, sges: &[Sge]) -> WcStatus {
        let result = self.run(SendWr::new(78, op, Payload::Sges(sges)));
        result.expect_err("the request must fail").status
    }
}

/// Whether [`Qp::watch_remote`] works.
pub fn watches_afar(caps: &Caps) -> bool {
    caps.doorbell && caps.direct
}

/// Waits for one completion.
pub fn wait_one(cq: &dyn Cq) -> Completion {
    wait_some(cq, 1)[0]
}

/// Waits for `n` completions and takes no more.
pub fn wait_some(cq: &dyn Cq, n: usize) -> Vec<Completion> {
    let mut out = vec![Completion::EMPTY; n];
    let mut seen = 0;
    eventually(&format!("{n} completions"), || {
        seen += cq.poll(&mut out[seen..]).unwrap();
        seen == n
    });
    out
}

/// Repeats until it is true.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut rounds = 0u32;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        rounds += 1;
        if rounds < 100 {
            std::thread::yield_now();
        } else {
            // What is waited for differs; not every provider has an event for it.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// No completion is there now.
pub fn assert_empty(cq: &dyn Cq) {
    let mut out = [Completion::EMPTY];
    assert_eq!(cq.poll(&mut out).unwrap(), 0, "unexpected: {:?}", out[0]);
}

/// `bytes` bytes that depend on `seed`.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// A small generator of reproducible numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(
        clippy::should_implement_trait,
        reason = "an endless generator is no iterator"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// How often a repeating case repeats.
pub fn rounds(short: u64) -> u64 {
    ((short as f64 * factor()) as u64).max(1)
}

/// Numbers of rounds from 1 to `rounds(short)`. A machine that has much else to do does fewer after
/// a few seconds, but a twentieth at least, unless the environment asks for long cases.
pub fn rounds_while_quick(short: u64) -> impl Iterator<Item = u64> {
    let start = Instant::now();
    let least = if factor() > 1.0 {
        rounds(short)
    } else {
        short / 20
    };
    (1..=rounds(short)).take_while(move |&n| n <= least || start.elapsed() < LONG_CASE)
}

/// After this time a case that repeats has repeated enough.
const LONG_CASE: Duration = Duration::from_secs(4);

fn factor() -> f64 {
    let factor = std::env::var("CATCHMENT_CONFORMANCE_ROUNDS").ok();
    factor.and_then(|text| text.parse().ok()).unwrap_or(1.0)
}
