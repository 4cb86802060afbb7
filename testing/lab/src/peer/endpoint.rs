//! Our queue pair on a plain UDP socket, driven by the smallest possible loop.
//!
//! Each packet costs a system call and one more copy than in a driver: this tests the protocol, not
//! speed.
use super::wire::{Received, Wire};
use anyhow::{Context as _, Result};
use catchment_roce::{Arrival, Completion, Input, OutPacket, Piece, Qp, TransmitBatch};
use catchment_sim::roce::Space;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const BATCH: usize = 64;

pub(crate) struct Endpoint<'a> {
    pub(crate) qp: Qp,
    pub(crate) space: Space,
    wire: &'a mut Wire,
    batch: TransmitBatch,
    origin: Instant,
    done: VecDeque<Completion>,
}

impl<'a> Endpoint<'a> {
    pub(crate) fn new(qp: Qp, space: Space, wire: &'a mut Wire) -> Self {
        Self {
            qp,
            space,
            wire,
            batch: TransmitBatch::new(BATCH),
            origin: Instant::now(),
            done: VecDeque::new(),
        }
    }

    pub(crate) fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// Sends pending packets, then waits for packets or timeouts, at most until `end`, and handles
    /// them.
    pub(crate) fn turn(&mut self, end: Instant) -> Result<()> {
        self.transmit()?;
        // Unacknowledged requests complete when they are sent.
        if self.take_completions() {
            return Ok(());
        }
        let timeout = self.qp.next_timeout();
        let wake = timeout.map(|at| self.origin + Duration::from_nanos(at));
        let wait = wake.map_or(end, |wake| wake.min(end));
        self.receive(wait.saturating_duration_since(Instant::now()))?;
        let now = self.now();
        if self.qp.next_timeout().is_some_and(|at| at <= now) {
            self.qp.handle(now, Input::Timeout, &mut self.space);
        }
        self.transmit()?;
        self.take_completions();
        Ok(())
    }

    fn take_completions(&mut self) -> bool {
        let before = self.done.len();
        while let Some(completion) = self.qp.poll_completion() {
            self.done.push_back(completion);
        }
        self.done.len() > before
    }

    fn receive(&mut self, wait: Duration) -> Result<()> {
        let mut next = self.wire.receive(wait)?;
        if next.is_none() {
            return Ok(());
        }
        for _ in 0..BATCH {
            let Some(packet) = next else { break };
            self.hand_over(&packet);
            next = self.wire.receive(Duration::ZERO)?;
        }
        self.qp.handle(self.now(), Input::EndOfBatch, &mut self.space);
        Ok(())
    }

    /// Drops packets for other queue pairs, which are late ones of earlier cases.
    fn hand_over(&mut self, packet: &Received) {
        if packet.headers.bth.dest_qpn == self.qp.qpn() {
            let arrival = Arrival::new(&packet.headers, &packet.payload);
            self.qp.handle(self.now(), Input::Packet(arrival), &mut self.space);
        }
    }

    fn transmit(&mut self) -> Result<()> {
        loop {
            self.batch.clear();
            let now = self.now();
            if self.qp.poll_transmit(now, &self.space, &mut self.batch) == 0 {
                return Ok(());
            }
            for packet in self.batch.packets() {
                self.wire.send_transport(&self.gather(packet)?)?;
            }
        }
    }

    /// Returns the bytes of a packet from the BTH to the pad.
    fn gather(&self, packet: &OutPacket) -> Result<Vec<u8>> {
        let mut transport = packet.header().to_vec();
        for piece in self.batch.pieces(packet) {
            let (key, addr, bytes) = match *piece {
                Piece::Local { lkey, addr, bytes } => (lkey, addr, bytes),
                Piece::Remote { rkey, va, bytes } => (rkey, va, bytes),
                Piece::Batch { start, bytes } => {
                    transport.extend(self.batch.bytes(start, bytes));
                    continue;
                }
            };
            let data = self.space.local(key, addr, usize::try_from(bytes)?);
            transport
                .extend(data.with_context(|| format!("{piece:?} is not in registered memory"))?);
        }
        transport.resize(transport.len() + packet.pad_bytes(), 0);
        Ok(transport)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
