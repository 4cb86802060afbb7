//! Inputs of a queue pair, and the environment of its handlers.
use crate::Psn;
use crate::completion::Completion;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::wire::Headers;
use catchment_verbs_types::GRH_BYTES;
use std::collections::VecDeque;

/// A received packet that the driver has checked: checksum, peer address, queue pair number.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its headers.
    pub headers: &'a Headers,
    /// Its payload, without pad.
    pub payload: &'a [u8],
    /// The IP header says "congestion experienced".
    pub ecn_marked: bool,
    /// The first PSN of ours that the driver still holds, if the network has not taken all: the peer has
    /// not seen it, nor what follows.
    pub held_from: Option<Psn>,
    /// The 40 bytes that UD receives begin with: the IPv6 header, or 20 undefined bytes and the
    /// IPv4 header. With `None` they are left unchanged.
    pub grh: Option<&'a [u8; GRH_BYTES]>,
}

impl<'a> Arrival<'a> {
    /// Creates a packet without marks, from a connected peer.
    pub fn new(headers: &'a Headers, payload: &'a [u8]) -> Self {
        Arrival { headers, payload, ecn_marked: false, held_from: None, grh: None }
    }
}

/// What can happen to a queue pair.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A packet arrived.
    Packet(Arrival<'a>),
    /// The driver has passed all packets that it received together. Acknowledgements wait for this,
    /// so that one covers them all; it must follow the last packet soon.
    EndOfBatch,
    /// The time that [`crate::Qp::next_timeout`] returned has come.
    Timeout,
}

/// The environment of a handler.
pub(crate) struct Env<'a> {
    pub(crate) now_ns: u64,
    pub(crate) memory: &'a mut dyn Memory,
    pub(crate) completions: &'a mut VecDeque<Completion>,
    pub(crate) counters: &'a mut Counters,
}
