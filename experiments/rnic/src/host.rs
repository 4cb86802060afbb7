//! A host: connections with a target on another one, and what they have outstanding.
use crate::agent::Agent;
use crate::costs::{Costs, Method, Window};
use crate::port::{Ask, Port};
use anyhow::{Context as _, Result};
use catchment_sim::verbs::Fabric;
use catchment_verbs::{Completion, Cq, Gid, Payload, Qp, RemoteAddr, SendWr, Sge};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Requests of a queue pair of one connection, or of a group, at once.
const PLACES: u32 = 4096;
const POLLED: usize = 64;

/// A queue pair of one connection or of a group.
struct Lane {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    outstanding: usize,
    /// When the lock is free, and who had it last.
    free: Duration,
    holder: usize,
}

/// See the module.
pub(crate) struct Host {
    port: Port,
    remote: RemoteAddr,
    method: Method,
    costs: Costs,
    lanes: Vec<Lane>,
    agent: Option<Agent>,
    /// Posts that processors are at work on, by when they are done: connection and requests.
    posts: BTreeMap<(Duration, u64), (usize, Vec<Ask>)>,
    /// Connections that learn of a completion, by when.
    answers: BTreeMap<(Duration, u64), usize>,
    count: u64,
}

impl Host {
    pub(crate) fn new(
        fabric: &Fabric,
        target: &mut Port,
        (method, window): (Method, Window),
        connections: usize,
    ) -> Result<Self> {
        let (port, costs) = (Port::open(fabric)?, Costs::usual());
        let remote = target.remote();
        let lanes = match method {
            Method::Raw => connections,
            Method::Share => connections.div_ceil(costs.group),
            Method::Drum => 0,
        };
        let lane = |target: &mut Port| {
            let cq = port.context.create_cq(PLACES, None)?;
            let qp = port.connect(&cq, PLACES, target)?;
            let holder = usize::MAX;
            anyhow::Ok(Lane { qp, cq, outstanding: 0, free: Duration::ZERO, holder })
        };
        let lanes = (0..lanes).map(|_| lane(target)).collect::<Result<_>>()?;
        let agent = if method == Method::Drum {
            let policy = window.policy()?;
            let mut agent = Agent::new(&port, &policy, costs, connections)?;
            for number in 0..Agent::queue_pairs(&policy, connections) {
                agent.add(number, port.connect(agent.cq(), Agent::PLACES, target)?);
            }
            Some(agent)
        } else {
            None
        };
        let (posts, answers) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { port, remote, method, costs, lanes, agent, posts, answers, count: 0 })
    }

    pub(crate) fn gid(&self) -> Gid {
        self.port.context.gid()
    }

    /// Returns how long the agent's processor was at work.
    pub(crate) fn agent_busy(&self) -> Option<Duration> {
        self.agent.as_ref().map(Agent::busy)
    }

    fn key(&mut self, at: Duration) -> (Duration, u64) {
        self.count += 1;
        (at, self.count)
    }

    /// Takes requests of a connection.
    pub(crate) fn ask(&mut self, now: Duration, connection: usize, asks: Vec<Ask>) {
        let takes = self.costs.posting(asks.len());
        let at = match self.method {
            Method::Drum => {
                let seen = now + self.costs.hand_over;
                if let Some(agent) = &mut self.agent {
                    agent.ask(seen, connection, &asks);
                }
                return;
            }
            Method::Raw => now + takes,
            Method::Share => {
                let lane = &mut self.lanes[connection / self.costs.group];
                let mut start = lane.free.max(now);
                if lane.holder != connection {
                    start += self.costs.hand_over;
                }
                (lane.free, lane.holder) = (start + takes, connection);
                lane.free
            }
        };
        let key = self.key(at);
        self.posts.insert(key, (connection, asks));
    }

    /// Returns when something happens here next, beside what devices do.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        let first = |at: Option<&(Duration, u64)>| at.map(|(at, _)| *at);
        let posts = first(self.posts.keys().next());
        let answers = first(self.answers.keys().next());
        let agent = self.agent.as_ref().and_then(Agent::next_event);
        [posts, answers, agent].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Duration) -> Result<()> {
        while let Some(first) = self.posts.first_entry().filter(|first| first.key().0 <= now) {
            let (connection, asks) = first.remove();
            self.post(connection, &asks)?;
        }
        self.poll(now)?;
        let mut done = Vec::new();
        if let Some(agent) = &mut self.agent {
            agent.advance(now, &self.port, self.remote, &mut done)?;
        }
        for (at, connection) in done {
            let key = self.key(at);
            self.answers.insert(key, connection);
        }
        Ok(())
    }

    fn post(&mut self, connection: usize, asks: &[Ask]) -> Result<()> {
        let at = match self.method {
            Method::Share => connection / self.costs.group,
            Method::Raw | Method::Drum => connection,
        };
        let (addr, lkey) = (self.port.mr.addr(), self.port.mr.lkey());
        let sges: Vec<[Sge; 1]> =
            asks.iter().map(|ask| [Sge { addr, bytes: ask.bytes(), lkey }]).collect();
        let requests = asks.iter().zip(&sges).map(|(ask, sges)| {
            SendWr::new(connection as u64, ask.op(self.remote), Payload::Sges(sges))
        });
        let requests: Vec<SendWr<'_>> = requests.collect();
        let lane = &mut self.lanes[at];
        lane.outstanding += requests.len();
        lane.qp.post_send(&requests).context("posting")?;
        Ok(())
    }

    /// Takes completions: each connection looks all the time. That of a group is taken by any of its threads.
    fn poll(&mut self, now: Duration) -> Result<()> {
        let learns = match self.method {
            Method::Share => now + self.costs.hand_over,
            Method::Raw | Method::Drum => now,
        };
        let mut out = [Completion::EMPTY; POLLED];
        for at in 0..self.lanes.len() {
            while self.lanes[at].outstanding > 0 {
                let count = self.lanes[at].cq.poll(&mut out)?;
                if count == 0 {
                    break;
                }
                self.lanes[at].outstanding -= count;
                for done in &out[..count] {
                    let failed = done.result.as_ref().err();
                    anyhow::ensure!(failed.is_none(), "a request failed: {failed:?}");
                    let key = self.key(learns);
                    self.answers.insert(key, done.wr_id as usize);
                }
            }
        }
        Ok(())
    }

    /// Returns a connection that learns now that one of its requests is complete.
    pub(crate) fn answer(&mut self, now: Duration) -> Option<usize> {
        let first = self.answers.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}
