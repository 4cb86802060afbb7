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
//! capabilities claim is tested. Where verbs leave a choice, a case accepts both.
//!
//! Cases with a second process start the test binary again with an environment variable; the test
//! `conformance_child` does the work of that process.
//!
//! What a device does not offer is not tried, and a line on standard error reports it.
//!
//! A case reports by panicking. Set `CATCHMENT_CONFORMANCE_ROUNDS` to multiply the length of the
//! cases that repeat (0.1 for a machine that is emulated); left out, it is `CATCHMENT_TEST_SCALE`.
#![allow(clippy::unwrap_used, reason = "a panic is how a case reports")]
#![allow(missing_docs, reason = "only our own tests use it")]
#![forbid(unsafe_code)]
mod exchange;
mod side;
mod tools;

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

pub use catchment_probe::random::Random;
pub use exchange::{Strays, exchange, exchange_options};
pub use side::{Options, Side, connect, connected, watches_afar};
pub use tools::{
    ALL, PATIENCE, assert_empty, eventually, pattern, rounds, rounds_while_quick, sleep_for, start,
    wait_one, wait_some,
};

use catchment_verbs::{Caps, Context, Provider, Service, WcStatus};
use std::io::Write as _;
use std::sync::Arc;

/// Expands to one test for each case. The argument makes a [`Bench`].
#[macro_export]
macro_rules! conformance {
    ($bench:expr) => {
        $crate::conformance_cases! { conformance_tests $bench; }
    };
}

/// Passes all cases to another macro of this crate.
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
            messages::what_has_arrived_outlives_a_failed_request,
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
            queues::an_empty_queue_is_polled_without_waiting,
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
            events::a_watch_of_ends_wakes_after_a_write_to_one,
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

        /// The second process of a case does its work here; nothing in the first.
        #[test]
        fn conformance_child() {
            $crate::processes::child(&$bench);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ($($module:ident :: $case:ident),* $(,)?) => {
        &[$((stringify!($module::$case), $module::$case)),*]
    };
}

pub type Case = fn(&Bench);

/// All cases by name, for a test that sets something up around them.
pub const CASES: &[(&str, Case)] = conformance_cases! { conformance_list };

pub struct Bench {
    pub provider: Arc<dyn Provider>,
    pub device: String,
    /// Where the device is known to deviate from the standard.
    pub deviations: Vec<Deviation>,
}

/// Where a device deviates from the standard beyond what a provider can repair. A case
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
    /// Every message wakes a receiver that waits for solicited ones only: verbs tell a program that
    /// relays completions, such as an agent, nothing of the solicited bit.
    EveryMessageIsSolicited,
}

impl Bench {
    pub fn new(provider: Arc<dyn Provider>, device: &str) -> Self {
        Self { provider, device: device.to_owned(), deviations: Vec::new() }
    }

    /// Asserts the status that the standard has, or the one that the device is known to report in
    /// its place.
    fn assert_status(&self, seen: WcStatus, standard: WcStatus, known: Deviation) {
        let instead = if standard == WcStatus::RemoteInvalidRequest {
            WcStatus::RemoteOperation
        } else {
            WcStatus::LocalQpOperation
        };
        let accepted = seen == instead && self.deviations.contains(&known);
        assert!(seen == standard || accepted, "{seen:?} in place of {standard:?}");
    }

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

    /// Returns whether the device offers what a case needs; if not, prints a line. It bypasses the
    /// capture of test output: nothing is left out silently.
    pub fn offers(&self, what: &str, is_offered: bool) -> bool {
        if !is_offered {
            let (name, device) = (self.provider.name(), &self.device);
            let line = format!("conformance: {name} ({device}) does not offer {what}: not tried\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
        }
        is_offered
    }

    /// Like [`Bench::offers`], for a service.
    pub fn offers_service(&self, service: Service) -> bool {
        self.offers(&service.to_string(), self.caps().services.has(service))
    }

    pub fn pair(&self) -> (Side, Side) {
        self.pair_with(&Options::default(), &Options::default())
    }

    /// Two connected sides that differ.
    pub fn pair_with(&self, ours: &Options, theirs: &Options) -> (Side, Side) {
        connected((self.open(), ours), (self.open(), theirs))
    }
}
