//! What a process of a measurement uses, what it does with it, and what came out.
use crate::sys;
use anyhow::{Result, bail};
use catchment_agent::protocol::{Account, Peer, Processor};
use catchment_agent::{AgentOptions, AgentProvider, Inquiry};
use catchment_perf::{
    Amount, Control, Figure, LocalDevice, Measured, Operation, Plan, Row, Test, Waiting, stats,
};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::{DEVICE, ShmProvider};
use catchment_verbs::{Context, Provider as _};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Receives that a target of SENDs keeps posted.
const RECEIVES: u32 = 256;

/// Whose device a process uses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// Nothing is RAW: a device of its own.
    pub(super) agent: Option<Served>,
    pub(super) application: String,
    /// Of its end of a network; without one, shared memory.
    pub(super) address: Option<IpAddr>,
}

/// An agent that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Served {
    pub(super) name: String,
    pub(super) process: u32,
}

/// What an application does with the device.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) operation: Operation,
    pub(crate) bytes: u64,
    /// 1: each request is timed.
    pub(crate) outstanding: u32,
    pub(crate) warm_up: Amount,
    pub(crate) seconds: f64,
    pub(crate) waiting: Waiting,
}

impl Work {
    pub(crate) fn plan(&self) -> Plan {
        let test = Test::new(self.operation, Figure::Bandwidth);
        let amount = Amount::Seconds(self.seconds);
        Plan {
            warm_up: self.warm_up,
            receives: if self.operation.takes_receive() { RECEIVES } else { 1 },
            ..Plan::new(test, self.bytes, amount, self.outstanding, self.waiting)
        }
    }
}

/// What came out of one piece of work.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) ops_per_s: f64,
    /// From posting until complete, where requests were timed: p50, p80, p99.
    pub(crate) latency_ns: Option<[f64; 3]>,
    /// Of both processes.
    pub(crate) cpu_percent_apps: f64,
    pub(crate) cpu_percent_agent: Option<f64>,
    pub(crate) agent_ns_per_op: Option<f64>,
    /// The steps' parts of its engine's processor time, in the order of `Processor::parts`.
    pub(crate) step_fractions: Option<[f64; 6]>,
    /// That the agent had in the device.
    pub(crate) queue_pairs: Option<u64>,
    /// Regions that the agent registered there for applications.
    pub(crate) registrations: Option<u64>,
    /// Of all requests: completions that were not the next of their connection, and requests that never had one.
    pub(crate) misrouted: u64,
    pub(crate) lost: u64,
}

impl Seat {
    /// Returns that of another application.
    pub(super) fn of(&self, application: String) -> Self {
        Self { application, ..self.clone() }
    }

    pub(super) fn open(&self) -> Result<Arc<dyn Context>> {
        let Some(Served { name, .. }) = &self.agent else {
            return Ok(match self.address {
                None => ShmProvider::new().open(DEVICE)?,
                Some(at) => {
                    // Several may be at one address, each with a device of its own.
                    let options = RoceOptions { other_port: true, ..RoceOptions::default() };
                    RoceProvider::new(options).open(&at.to_string())?
                }
            });
        };
        let (agent, application) = (name.clone(), self.application.clone());
        Ok(AgentProvider::new(AgentOptions { agent, application }).open(name)?)
    }

    pub(super) fn measure(&self, control: &mut Control, work: &Work) -> Result<Found> {
        let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
        let mut device = LocalDevice::new(self.open()?);
        if let Some(agent) = self.agent.clone() {
            let counts = Arc::clone(&counts);
            device.counters = Box::new(move || {
                let used = agent.used();
                counts[0].fetch_max(used.queue_pairs, Ordering::Relaxed);
                // Of the piece of work before, the target may still be there when this one begins.
                counts[1].store(used.registrations, Ordering::Relaxed);
                used.counters()
            });
        }
        let plan = work.plan();
        let (measured, times) = if work.outstanding == 1 {
            catchment_perf::time_requests(control, &device, &plan)?
        } else {
            (catchment_perf::measure(control, &device, &plan)?, Vec::new())
        };
        let Row::Bandwidth(row) = measured.row else {
            bail!("the engine measured something else: {measured:?}");
        };
        let Measured { time, active, strays, .. } = measured;
        let agent_ns = active.counters.first().map(|ns| *ns as f64);
        let latency = |part| stats::percentile(&times, part);
        let count = |at: usize| self.agent.as_ref().map(|_| counts[at].load(Ordering::Relaxed));
        Ok(Found {
            ops_per_s: row.messages_per_s,
            latency_ns: (!times.is_empty()).then(|| [0.5, 0.8, 0.99].map(latency)),
            cpu_percent_apps: row.client_cpu_percent + row.server_cpu_percent,
            cpu_percent_agent: agent_ns.map(|ns| 100.0 * ns / time.as_nanos() as f64),
            step_fractions: fractions(active.counters.get(1..)),
            agent_ns_per_op: agent_ns.map(|ns| ns / row.iterations as f64),
            queue_pairs: count(0),
            registrations: count(1),
            misrouted: strays.misrouted,
            lost: strays.lost,
        })
    }
}

/// Returns each step's part of what all of them took, where they were counted.
fn fractions(steps: Option<&[u64]>) -> Option<[f64; 6]> {
    let steps: [u64; 6] = steps?.try_into().ok()?;
    let all = steps.iter().sum::<u64>().max(1);
    Some(steps.map(|step| step as f64 / all as f64))
}

/// What an agent uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    /// Processor time of all its threads, where it can be read.
    pub(super) cpu_ns: Option<u64>,
    pub(super) queue_pairs: u64,
    /// Of all applications that are connected.
    pub(super) registrations: u64,
    /// Of its engine, by steps.
    processor: Option<Processor>,
}

impl Used {
    /// Returns the processor time of all threads, then that of each step of the engine, as far as they can be read.
    fn counters(&self) -> Vec<u64> {
        let steps = |all: Processor| {
            let Processor {
                take_ns, schedule_ns, post_ns, complete_ns, command_ns, look_ns, ..
            } = all;
            [take_ns, schedule_ns, post_ns, complete_ns, command_ns, look_ns]
        };
        let steps = self.processor.into_iter().flat_map(steps);
        self.cpu_ns.into_iter().flat_map(|ns| [ns].into_iter().chain(steps.clone())).collect()
    }
}

impl Served {
    pub(super) fn used(&self) -> Used {
        let standing = Inquiry::new(&*self.name).ask().ok();
        let processor = standing.as_ref().and_then(|standing| standing.processor);
        let (accounts, peers) = standing
            .map_or_else(Default::default, |standing| (standing.applications, standing.peers));
        let sum = |of: fn(&Account) -> u64| accounts.iter().map(of).sum::<u64>();
        let own = sum(|account| account.queue_pairs);
        let shares =
            |of: fn(&Peer) -> u32| peers.iter().map(|peer| u64::from(of(peer))).sum::<u64>();
        // Those that share have none of their own that is connected.
        let count = own - shares(|peer| peer.connections).min(own);
        Used {
            cpu_ns: sys::cpu_ns_of(self.process).ok(),
            queue_pairs: count + shares(|peer| peer.queue_pairs),
            registrations: sum(|account| account.registrations),
            processor,
        }
    }
}
