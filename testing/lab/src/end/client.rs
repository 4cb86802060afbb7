//! An end as a case uses it.
use super::{Answer, Card, Completed, Datagram, Kind, Order, Place, Request, Work};
use crate::bytes::same_bytes;
use crate::remote::process::Process;
use anyhow::{Context as _, Error, Result, ensure};
use catchment_conformance::pattern;
use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longer than an end itself waits for anything.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// Longer than a device retries to reach a peer that is gone.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct End {
    process: Process,
    pub(crate) card: Card,
}

impl End {
    pub(crate) fn new(process: Process) -> Self {
        let card = Card::default();
        Self { process, card }
    }

    /// Creates a queue pair of this kind, and memory; destroys those created before.
    pub(crate) fn make(&mut self, kind: Kind) -> Result<()> {
        self.card = self.ask(&Order::Make(kind))?;
        Ok(())
    }

    pub(crate) fn place(&self, offset: usize) -> Place {
        Place { addr: self.card.addr + offset as u64, rkey: self.card.rkey }
    }

    pub(crate) fn connect(&mut self, peer: &Card) -> Result<()> {
        self.connect_with(peer, 7, 7)
    }

    pub(crate) fn connect_with(&mut self, peer: &Card, retry_cnt: u8, rnr_retry: u8) -> Result<()> {
        self.ask(&Order::Connect { endpoint: peer.endpoint.clone(), retry_cnt, rnr_retry })
    }

    pub(crate) fn ready_to_send(&mut self, local: String, remote: String, qpn: u32) -> Result<()> {
        self.ask(&Order::ToRts { local, remote, qpn })
    }

    /// Binds a memory window to the first bytes, and returns its key.
    pub(crate) fn bind_window(&mut self, bytes: usize) -> Result<u32> {
        self.ask(&Order::BindWindow { bytes })
    }

    pub(crate) fn fill(&mut self, offset: usize, bytes: usize, seed: u64) -> Result<()> {
        self.ask(&Order::Fill { offset, bytes, seed })
    }

    pub(crate) fn see(&mut self, offset: usize, bytes: usize, seed: u64) -> Result<()> {
        self.expect_memory(offset, &pattern(seed, bytes))
    }

    pub(crate) fn put(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.ask(&Order::Put { offset, hex: HEXLOWER.encode(data) })
    }

    pub(crate) fn expect_memory(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        if self.holds(offset, data)? {
            return Ok(());
        }
        let bytes = data.len();
        let seen = self.take(offset, bytes)?;
        same_bytes(&seen, data).with_context(|| format!("{bytes} bytes at {offset}"))
    }

    pub(crate) fn holds(&mut self, offset: usize, data: &[u8]) -> Result<bool> {
        let bytes = data.len();
        let crc: u32 = self.ask(&Order::Crc { offset, bytes })?;
        Ok(crc == crc32fast::hash(data))
    }

    pub(crate) fn number(&mut self, offset: usize) -> Result<u64> {
        let bytes = self.take(offset, 8)?;
        let bytes = bytes.try_into().ok().context("eight bytes")?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn take(&mut self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        let hex: String = self.ask(&Order::Take { offset, bytes })?;
        Ok(HEXLOWER.decode(hex.as_bytes())?)
    }

    /// Posts signaled requests: operation, offset in our memory, length.
    pub(crate) fn post(&mut self, work: &[(Work, usize, usize)]) -> Result<()> {
        let request = |(at, &(work, offset, bytes)): (usize, &(Work, usize, usize))| Request {
            wr_id: at as u64,
            work,
            offset,
            bytes,
            signaled: true,
        };
        self.send(work.iter().enumerate().map(request).collect())
    }

    pub(crate) fn send(&mut self, requests: Vec<Request>) -> Result<()> {
        self.ask(&Order::Send(requests))
    }

    pub(crate) fn run(&mut self, work: Work, offset: usize, bytes: usize) -> Result<()> {
        self.post(&[(work, offset, bytes)])?;
        self.expect(false, "Success").map(drop)
    }

    pub(crate) fn send_to(&mut self, datagram: Datagram) -> Result<()> {
        let done: Vec<Completed> = self.ask(&Order::SendTo(datagram))?;
        let statuses = done.iter().map(|done| done.status.as_str());
        ensure!(statuses.eq(["Success"]), "the datagram ended with {done:?}");
        Ok(())
    }

    /// Returns the sender of the datagram whose network header is at this offset.
    pub(crate) fn source(&mut self, offset: usize) -> Result<String> {
        self.ask(&Order::Source { offset })
    }

    pub(crate) fn receive(&mut self, wr_id: u64, offset: usize, bytes: usize) -> Result<()> {
        self.ask(&Order::Receive { wr_id, offset, bytes })
    }

    pub(crate) fn wait(&mut self, receives: bool, count: usize) -> Result<Vec<Completed>> {
        let done = self.wait_within(receives, count, WAIT_LIMIT)?;
        let came = done.len();
        ensure!(came == count, "{came} of {count} completions arrived: {done:?}");
        Ok(done)
    }

    /// Returns the next completions, as many as arrive within the limit.
    pub(crate) fn wait_within(
        &mut self,
        receives: bool,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Completed>> {
        let limit_ms = u64::try_from(limit.as_millis())?;
        self.ask(&Order::Wait { receives, count, limit_ms })
    }

    pub(crate) fn expect(&mut self, receives: bool, status: &str) -> Result<Completed> {
        let done = self.wait(receives, 1)?.pop().context("no completion")?;
        done.with_status(status)
    }

    pub(crate) fn state(&mut self) -> Result<String> {
        self.ask(&Order::State)
    }

    pub(crate) fn event(&mut self) -> Result<String> {
        self.ask(&Order::Event)
    }

    pub(crate) fn revoke(&mut self) -> Result<()> {
        self.ask(&Order::Revoke)
    }

    pub(crate) fn leave(&mut self) -> Result<()> {
        self.ask(&Order::Leave)
    }

    fn ask<T: DeserializeOwned>(&mut self, order: &Order) -> Result<T> {
        self.process.send_line(&serde_json::to_string(order)?)?;
        let line = self.process.line("an answer", ANSWER_LIMIT)?;
        let answer: Answer<T> = serde_json::from_str(&line)
            .with_context(|| format!("an end answered {line:?} to {order:?}"))?;
        answer.map_err(Error::msg)
    }
}
