//! Client and server of the beam-diagnostics paper: duplex channels, a service thread for every
//! client, three threads for every link, and a control path apart from the data path.
//!
//! [`Server`] takes clients and runs a [`Service`] for each; [`Link::connect`] is the client. The
//! channel below is [`catchment_channel`]; a program that wants no threads uses that.
//!
//! What the paper describes, where it is here, and what holds it:
//!
//! | id | what | here | held by |
//! |---|---|---|---|
//! | S3.1 | the client's modules: resource management, communication establishment, RDMA operations, QP management, cleanup | `channel::{resources, card, operations, qp, cleanup}` | `channel/tests/channel` |
//! | S3.2 | the server adds a thread for each client | [`Server`] | `tests/duplex` `s3_2_sixteen_clients_at_once` |
//! | S3.3 | context, PD, CQ, QP, MR, buffers with their lives | `channel::Resources`, counted by `probe::census` | `s3_3_nothing_is_left_after_many_connections` |
//! | S3.4 | keys are unique, rights are enforced | the providers | conformance `keys_are_unique`; `s3_4_a_wrong_key_or_bound_is_a_remote_access_error` |
//! | S3.5 | states of a queue pair | `channel::qp` | conformance `states`; `s3_5_a_drained_queue_pair_goes_on` |
//! | S3.6 | address, key, queue pair number and GID by socket | `channel::card`, [`Control`] | `s3_6_golden_bytes`, `s3_6_bad_data_of_a_peer_is_rejected_with_what_was_seen` |
//! | S3.7 | control path and data path apart | [`Control`] is not touched for a message; no thread of a link that polls ([`Waiting`]) makes a system call for one | `s3_7_no_thread_makes_a_system_call_for_a_message` |
//! | S3.8 | threads for send queue, receive queue, completion queue | `workers` | `s3_8_three_threads_come_and_go_with_a_link` |
//! | S3.9 | fields of a send request, the failed one is named | `verbs::{SendWr, PostError}` | conformance |
//! | S3.10 | receives are posted first; RNR otherwise | a channel posts for all that a correct peer sends | conformance |
//! | S3.11 | the completion queue is polled without blocking | `verbs::Cq::poll` | conformance |
//! | S3.12 | synchronisation by events, READs and WRITEs together | the thread of the completion queue sleeps on its channel | `s3_12_no_wake_up_is_lost` |
//! | S3.13 | duplex channel, reliable connection, RoCEv2 framing | `channel::Channel`, `provider-roce` | `s3_13_both_directions_at_once`; `roce/tests/golden.rs` |
//! | S3.14 | cleanup in the order of dependencies on every error path | `channel::cleanup` | `s3_14_a_failure_at_any_step_leaks_nothing_and_harms_nobody_else`, and here for both ends |
//! | S3.15 | TCP to compare with, the same threads and buffers | [`TcpLink`] | `s3_15_tcp_has_the_same_threads_and_buffers`; measured by E3.5 of `bench papers` |
//! | S3.16 | long-term stability | - | `s3_16_a_server_is_as_before_when_clients_came_went_and_were_killed` |
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "not published: what a name says needs no second line")]

mod error;
mod link;
mod server;
mod tcp;
mod workers;

pub use catchment_channel::establish::{Control, Listener};
pub use error::LinkError;
pub use link::{Link, LinkCounts, LinkOptions, Stopper, Waiting};
pub use server::{Server, ServerCounts, ServerOptions, Service};
pub use tcp::{TcpLink, TcpMessage, TcpShape};
