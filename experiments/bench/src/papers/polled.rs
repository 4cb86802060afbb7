//! `connections` over shared memory: a completion queue that is polled at a rate. After each poll as many WRITEs are
//! posted as it found completions.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use crate::link::device::{Device, patient};
use crate::mechanism::Provider;
use anyhow::{Context as _, Result, anyhow, ensure};
use catchment_mechanisms::{EndNeeds, MemoryNeed, Port, QueueNeeds};
use catchment_verbs::{Access, Completion, Payload, SendOp, SendWr, Sge};
use std::time::{Duration, Instant};

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    let loads = &of.part.loads;
    ensure!(!loads.is_empty(), "polls a second are in `loads`; without them, use sim");
    let conditions = Conditions {
        wait: "yield".to_owned(),
        caches: "the same bytes again and again",
        restarts: of.effort.restarts,
        ..Conditions::default()
    };
    for (mechanism, bytes, batch) in of.cells() {
        for &polls_per_s in loads {
            of.progress(&format!("batches of {batch}, {polls_per_s} polls/s"));
            let interval = Duration::from_secs_f64(1.0 / polls_per_s);
            let (mut speeds, mut parts) = (Vec::new(), Vec::new());
            for _ in 0..of.effort.restarts {
                let mut link = Link::new(of.provider, bytes, batch)?;
                let (done, took) = link.run(interval, of.effort.count)?;
                speeds.push(done as f64 / took.as_secs_f64());
                parts.push(done as f64 / of.effort.count as f64);
            }
            let cell = of.cell(mechanism, (bytes, batch)).at(polls_per_s, "1/s");
            let cell = Cell { streams: Some(1), variant: of.part.variant.clone(), ..cell };
            let row = |metric, values| Row::new(of.id, &cell, metric, values, &conditions);
            of.rows.extend([row(("ops_per_s", "1/s"), speeds), row(("ops_per_poll", "1"), parts)]);
        }
    }
    Ok(())
}

/// Two queue pairs of this process, and the requests of one of them.
struct Link {
    source: Port,
    _target: Port,
    _devices: [Device; 2],
    to: SendOp,
    from: Sge,
    batch: usize,
}

impl Link {
    fn new(provider: Provider, bytes: usize, batch: usize) -> Result<Self> {
        let devices = [Device::without_network(provider)?, Device::without_network(provider)?];
        let depth = u32::try_from(batch)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let open = |device: &Device| {
            let needs = EndNeeds {
                queues: QueueNeeds {
                    max_send_wr: depth,
                    max_recv_wr: 0,
                    send_cqe: depth,
                    recv_cqe: 0,
                    max_inline_bytes: 0,
                },
                memory: vec![MemoryNeed::new("the requests' bytes", bytes, access)],
            };
            let pd = device.context.alloc_pd()?;
            anyhow::Ok(Port::open(&*device.context, &*pd, &needs)?)
        };
        let [mut source, mut target] = [open(&devices[0])?, open(&devices[1])?];
        let (there, here) = (target.offer(), source.offer());
        source.connect_with(&there, patient())?;
        target.connect_with(&here, patient())?;
        let to = SendOp::Write(there.memory(0, "the target", bytes)?.at(0));
        let memory = source.memory.first().context("the requests' bytes")?;
        let from = Sge { addr: memory.addr(), bytes: u32::try_from(bytes)?, lkey: memory.lkey() };
        Ok(Self { source, _target: target, _devices: devices, to, from, batch })
    }

    /// Polls so many times; returns the requests that were done, and how long it took.
    fn run(&mut self, interval: Duration, polls: u64) -> Result<(u64, Duration)> {
        let mut found = vec![Completion::EMPTY; self.batch];
        self.post(self.batch)?;
        let (mut done, begun) = (0, Instant::now());
        let mut due = begun;
        for _ in 0..polls {
            due += interval;
            while Instant::now() < due {
                rustix::thread::sched_yield();
            }
            let count = self.source.send_cq.poll(&mut found)?;
            for completion in found.iter().take(count) {
                let failed = |failure| anyhow!("a WRITE failed: {failure:?}");
                completion.result.map_err(failed)?;
            }
            self.post(count)?;
            done += count as u64;
        }
        Ok((done, begun.elapsed()))
    }

    fn post(&mut self, count: usize) -> Result<()> {
        let from = [self.from];
        let request = SendWr::new(0, self.to, Payload::Sges(&from));
        Ok(self.source.qp.post_send(&vec![request; count])?)
    }
}
