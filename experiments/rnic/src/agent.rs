//! DRUM: what the agent's engine does with the scheduler and the shared queue pairs, in virtual time.
//!
//! The engine itself needs rings in memory that processes share, and reads the clock of the machine. In its place
//! stands a loop with the same steps: take what is in the rings, take completions, give chunks of one connection in a row
//! with one doorbell. Shares are those of the policy for equal weights; no rate in time binds anybody.
use crate::costs::Costs;
use crate::port::{Ask, Port};
use anyhow::{Context as _, Result, ensure};
use catchment_agent::entry::Data;
use catchment_agent::policy::{Policy, optimum};
use catchment_agent::scheduler::{ApplicationId, Chunk, ConnectionId, Scheduler};
use catchment_agent::{Posted, SharedQps};
use catchment_verbs::{Cq, Qp, RemoteAddr, Sge};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The only other host.
const HOST: u32 = 0;
/// Chunks of a connection in the device's hands, as the agent's monitor allows them.
const CHUNKS: u32 = 64;
/// Chunks, and about so many bytes, that are given to the device in one go, as the engine gives them.
const BATCH: usize = 16;
const BATCH_BYTES: u64 = 64 << 10;

#[derive(Default)]
struct Connection {
    /// Not served completely, the first one perhaps in part.
    asks: VecDeque<Ask>,
    flying: usize,
    place: usize,
}

/// A chunk that is on a shared queue pair.
struct Flying {
    chunk: Chunk,
    connection: usize,
}

/// See the module.
pub(crate) struct Agent {
    costs: Costs,
    scheduler: Scheduler,
    shared_qps: SharedQps,
    cq: Arc<dyn Cq>,
    ids: Vec<ConnectionId>,
    /// By the scheduler's number.
    numbers: BTreeMap<ConnectionId, usize>,
    connections: Vec<Connection>,
    /// What is in the rings, and when it is seen.
    rings: VecDeque<(Duration, usize, Ask)>,
    /// The first chunk that was not of the connection before it.
    next: Option<Chunk>,
    /// What it is at work on, and until when.
    work: Option<(Duration, Vec<Chunk>)>,
    flying: BTreeMap<u64, Flying>,
    posted: u64,
    busy: Duration,
}

impl Agent {
    /// Chunks on one shared queue pair, as the agent makes them.
    pub(crate) const PLACES: u32 = 512;

    /// Returns how many queue pairs so many connections share.
    pub(crate) fn queue_pairs(policy: &Policy, connections: usize) -> u32 {
        let wanted = (connections as u32).div_ceil(policy.between.ratio);
        wanted.min(policy.between.queue_pairs)
    }

    /// With as many applications of one connection each, of equal weights.
    pub(crate) fn new(
        port: &Port,
        policy: &Policy,
        costs: Costs,
        connections: usize,
    ) -> Result<Self> {
        let mut scheduler = Scheduler::new(policy.limits());
        let applications: Vec<ApplicationId> =
            (0..connections).map(|_| scheduler.add_application()).collect();
        let shares = optimum(&vec![1.0; connections], policy.alpha)?.shares;
        let shares: Vec<_> = applications.iter().copied().zip(shares).collect();
        scheduler.set_shares(&shares);
        let add = |application: &ApplicationId| scheduler.add_connection(*application, CHUNKS);
        let ids: Vec<ConnectionId> = applications.iter().map(add).collect();
        let entries = 2 * policy.between.queue_pairs * Self::PLACES;
        let cq = port.context.create_cq(entries, None)?;
        Ok(Self {
            costs,
            scheduler,
            shared_qps: SharedQps::new(Some(Arc::clone(&cq)), false),
            cq,
            numbers: ids.iter().copied().zip(0..).collect(),
            ids,
            connections: (0..connections).map(|_| Connection::default()).collect(),
            rings: VecDeque::new(),
            next: None,
            work: None,
            flying: BTreeMap::new(),
            posted: 0,
            busy: Duration::ZERO,
        })
    }

    pub(crate) fn cq(&self) -> &Arc<dyn Cq> {
        &self.cq
    }

    pub(crate) fn add(&mut self, number: u32, qp: Box<dyn Qp>) {
        self.shared_qps.add(HOST, number, qp);
    }

    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }

    /// Notes what is in the ring of a connection from then on.
    pub(crate) fn ask(&mut self, seen: Duration, connection: usize, asks: &[Ask]) {
        self.rings.extend(asks.iter().map(|ask| (seen, connection, *ask)));
    }

    /// Returns when it goes on, if no device does anything.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        let ring = self.rings.front().map(|(seen, ..)| *seen);
        self.work.as_ref().map_or(ring, |(until, _)| Some(*until))
    }

    /// Works until then; tells which connections learn of a completion, and when.
    pub(crate) fn advance(
        &mut self,
        now: Duration,
        port: &Port,
        remote: RemoteAddr,
        done: &mut Vec<(Duration, usize)>,
    ) -> Result<()> {
        loop {
            if let Some((_, run)) = self.work.take_if(|(until, _)| *until <= now) {
                self.give(&run, port, remote)?;
            }
            if self.work.is_some() {
                return Ok(());
            }
            self.take(now);
            self.poll(now, done)?;
            let run = self.choose();
            if run.is_empty() {
                return Ok(());
            }
            let takes = self.costs.agent * run.len() as u32;
            self.busy += takes;
            self.work = Some((now + takes, run));
        }
    }

    fn take(&mut self, now: Duration) {
        while self.rings.front().is_some_and(|(seen, ..)| *seen <= now)
            && let Some((_, connection, ask)) = self.rings.pop_front()
        {
            self.connections[connection].asks.push_back(ask);
            self.scheduler.push(self.ids[connection], ask.bytes().into(), true);
        }
    }

    fn poll(&mut self, now: Duration, done: &mut Vec<(Duration, usize)>) -> Result<()> {
        let (mut landed, mut failed) = (Vec::new(), Vec::new());
        while self.shared_qps.poll(&mut landed, &mut failed) {}
        ensure!(failed.is_empty(), "a shared queue pair failed");
        for wr_id in landed {
            let flying = self.flying.remove(&wr_id).context("a chunk that was given")?;
            self.connections[flying.connection].flying -= 1;
            self.scheduler.done(flying.chunk.connection, flying.chunk.bytes);
            if flying.chunk.last {
                done.push((now + self.costs.hand_over, flying.connection));
            }
        }
        Ok(())
    }

    /// Returns the next chunks of one connection.
    fn choose(&mut self) -> Vec<Chunk> {
        let mut run: Vec<Chunk> = Vec::new();
        let mut bytes = 0;
        while let Some(chunk) = self.next.take().or_else(|| self.scheduler.next_chunk()) {
            if run.first().is_some_and(|first| first.connection != chunk.connection) {
                self.next = Some(chunk);
                break;
            }
            run.push(chunk);
            bytes += chunk.bytes;
            let is_part = chunk.offset > 0 || !chunk.last;
            if is_part || run.len() >= BATCH || bytes >= BATCH_BYTES {
                break;
            }
        }
        run
    }

    fn give(&mut self, run: &[Chunk], port: &Port, remote: RemoteAddr) -> Result<()> {
        let Some(first) = run.first() else { return Ok(()) };
        let number = self.numbers[&first.connection];
        let connection = &mut self.connections[number];
        if connection.flying == 0 {
            connection.place = self.shared_qps.place(HOST).context("a shared queue pair")?;
        }
        for chunk in run {
            let ask = *connection.asks.front().context("a request of the chunk")?;
            let addr = port.mr.addr() + chunk.offset;
            let sge = Sge { addr, bytes: chunk.bytes as u32, lkey: port.mr.lkey() };
            let data = Data::of_elements(&[sge]).context("one element")?;
            let op = ask.op(RemoteAddr { addr: remote.addr + chunk.offset, ..remote });
            self.posted += 1;
            self.shared_qps.push(connection.place, Posted::new(self.posted, op, data));
            self.flying.insert(self.posted, Flying { chunk: *chunk, connection: number });
            connection.flying += 1;
            if chunk.last {
                connection.asks.pop_front();
            }
        }
        let failed = self.shared_qps.give(connection.place);
        ensure!(failed.is_none(), "a shared queue pair failed");
        Ok(())
    }
}
