//! Tuning of the engine, with the gain of each value.
//!
//! Nothing here is needed for correctness: it changes when packets leave and which thread sends
//! them, not what is sent. Any of it may be dropped for a simpler engine. Measure a change with
//! `cargo xtask bench roce`; `docs/concept/roce-engine.md` has the figures.
use super::Turn;
use catchment_roce::OutPacket;
use catchment_roce::wire::Opcode;
use std::time::Duration;

/// Packets that one queue pair may send before the next one may: the trains come out nearly full,
/// 15 packets of 4 KiB each, or 61 and fewer of 1 KiB.
pub(crate) const PACKETS_PER_QP: usize = 60;
/// Packets of a turn, so that acknowledgements are received again soon: four queue pairs' share.
pub(crate) const PACKETS_PER_TURN: usize = 240;
/// Packets that the send batch holds: two turns, so that one which is left over does not block the
/// next one. Not measured on its own.
pub(crate) const BATCH_PACKETS: usize = 512;
/// Requests of a queue pair that the lock-free ring to the engine holds, for sends and receives
/// each; more take the engine's lock. Each place costs 100 to 200 bytes of every queue pair (8.7
/// KiB in all, `tests/many.rs`).
pub(crate) const POSTED_MAX: u32 = 32;

/// A single request of at most this many bytes is sent by its poster, if the engine is free: to
/// wake the engine's thread, or to switch to it, takes longer than to send (several microseconds).
pub(crate) const SHORT_BYTES: u64 = 4096;
/// A short request counts as single when none was posted in this time before it: about as long as
/// sending one takes. Many are better sent together, by the engine's thread.
pub(crate) const SINGLE_AFTER_NS: u64 = 5_000;

/// Packets that arrive alone: with more, the peer is in the middle of something.
pub(crate) const FEW_PACKETS: usize = 2;

/// Polls for packets between two yields of the engine's thread. A program that waits on the same
/// core yields too, and finds nothing until the engine has; switching to it and back takes as long
/// as some polls. Eight instead of one: 4.3 us instead of 4.9 us one way for 64 bytes.
pub(crate) const POLLS_PER_YIELD: u32 = 8;
/// A full queue of the network device does not report when it has room again: it is tried after
/// this. Not measured on its own.
pub(crate) const RETRY_BLOCKED: Duration = Duration::from_micros(500);
/// From a sleep of this length the thread returns by itself soon enough: no one wakes it.
pub(crate) const NAP: Duration = crate::sleep::NAP;

/// Returns whether the acknowledgements of a turn wait for the next one, which is due at once: when
/// few packets arrived and nothing else happened. A program that answers has its answer leave in
/// the same system call, and before them.
#[inline]
pub(crate) fn holds_answers_back(received: usize, otherwise_idle: bool) -> bool {
    otherwise_idle && (1..=FEW_PACKETS).contains(&received)
}

/// Returns whether the engine's thread yields after a turn: a program on the same core sees what
/// arrived now, and may answer before its acknowledgement leaves.
pub(crate) fn yields_after(turn: &Turn) -> bool {
    turn.held_back
}

/// Returns the packets of a queue pair in the order in which they are sent. Of few packets,
/// requests go before responses: an application is waiting for them. In trains the order stays,
/// because sorting would break them.
#[inline]
pub(crate) fn send_order(packets: &[OutPacket]) -> impl Iterator<Item = &OutPacket> {
    let sorts = packets.len() <= FEW_PACKETS;
    let first = packets.iter().filter(move |p| !sorts || !is_response(p));
    first.chain(packets.iter().filter(move |p| sorts && is_response(p)))
}

/// Returns whether a packet answers a request of the peer, by its opcode: the first byte.
fn is_response(packet: &OutPacket) -> bool {
    packet.header().first().copied().and_then(Opcode::from_u8).is_some_and(Opcode::is_response)
}
