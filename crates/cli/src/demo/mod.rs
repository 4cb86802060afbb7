//! `catchment demo`: a collector process and a source process on this machine; with `--controller` several that share a
//! narrow link.
mod child;
mod ends;
mod folder;
mod narrow;
mod plan;
mod report;

use crate::args::DemoArgs;
use crate::failure::{Code, Failure};
use crate::output::events::{
    CollectEvent, CollectProgress, CollectSummary, Listening, SendEvent, SendSummary,
};
use crate::output::progress::Progress;
use crate::output::{say, units};
use crate::stop;
use anyhow::anyhow;
use catchment::format::FrameRate;
use catchment::observe::cpu::CpuMeter;
use child::{Event, Process, Role};
use ends::Ends;
use plan::Plan;
use report::Queues;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const RATE: FrameRate = match FrameRate::new(25, 1) {
    Some(rate) => rate,
    None => unreachable!(),
};
const PROCESS_LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    if args.controller {
        return narrow::run(args);
    }
    let (sender, events) = channel();
    let asked = sender.clone();
    let _stop = stop::watch(false, move || {
        let _ = asked.send(Event::AskedToEnd);
    })?;
    let ends = Ends::new(args)?;
    let plan = Plan::new(&ends.source)?;
    let words = plan.collector(&ends.collector);
    let mut collector = Process::start(Role::Collector, words, sender.clone())?;
    let listening = wait_listening(&events, &mut collector)?;
    report::announce(args, &plan, &listening);
    let words = plan.source(&ends.source, &listening.address);
    let source = Process::start(Role::Source, words, sender)?;
    let mut demo = Demo {
        args,
        events,
        source,
        collector,
        ends: &ends,
        collector_cpu: None,
        collector_cpu_percent: 0.0,
        agent_cpu: None,
        agent_cpu_percent: None,
        queues: Queues::default(),
    };
    let sent = demo.send()?;
    let collected = demo.end_collector()?;
    let source_code = demo.source.wait()?;
    let parts = report::Parts {
        plan: &plan,
        listening: &listening,
        sent: &sent,
        collected: &collected,
        cpu_percent_collector: demo.collector_cpu_percent,
        cpu_percent_agent: demo.agent_cpu_percent,
        queues: demo.queues,
    };
    let summary = report::summary(&parts);
    report::print_summary(args, &plan, &summary)?;
    if source_code != 0 {
        return Err(Failure::Silent(source_code));
    }
    report::check(&parts, &summary)
}

fn wait_listening(events: &Receiver<Event>, collector: &mut Process) -> Result<Listening, Failure> {
    loop {
        match events.recv_timeout(PROCESS_LIMIT) {
            Ok(Event::Collector(CollectEvent::Listening(listening))) => return Ok(listening),
            Ok(Event::Silent(_)) => return Err(ended_early(collector)),
            Ok(Event::AskedToEnd) => return Err(Failure::Silent(0)),
            Ok(Event::Collector(_) | Event::Source(_)) => {}
            Err(_) => return Err(too_slow("start")),
        }
    }
}

fn too_slow(verb: &str) -> Failure {
    let error = anyhow!("the collector process did not {verb} within {PROCESS_LIMIT:?}");
    Failure::new(Code::Failed, error)
}

/// Returns the failure of a process that ended by itself, which has printed why unless it was killed.
fn ended_early(process: &mut Process) -> Failure {
    match process.wait() {
        Ok(code) if code > 1 => Failure::Silent(code),
        _ => Failure::new(Code::Failed, anyhow!("the {} process ended early", process.role.name())),
    }
}

struct Demo<'a> {
    args: &'a DemoArgs,
    events: Receiver<Event>,
    source: Process,
    collector: Process,
    ends: &'a Ends,
    collector_cpu: Option<CpuMeter>,
    collector_cpu_percent: f64,
    agent_cpu: Option<CpuMeter>,
    agent_cpu_percent: Option<f64>,
    queues: Queues,
}

impl Demo<'_> {
    fn send(&mut self) -> Result<SendSummary, Failure> {
        let progress = Progress::bar(self.args.seconds);
        let mut started = None;
        loop {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Source(SendEvent::Connected(_))) => {
                    started = Some(Instant::now());
                    self.collector_cpu = CpuMeter::process(self.collector.id()).ok();
                    self.agent_cpu = self.ends.meter();
                }
                Ok(Event::Source(SendEvent::Summary(summary))) => {
                    let sample = |meter: &mut Option<CpuMeter>| {
                        meter.as_mut().and_then(|cpu| cpu.sample().ok()).map(|cpu| cpu.cpu_percent)
                    };
                    self.collector_cpu_percent = sample(&mut self.collector_cpu).unwrap_or(0.0);
                    self.agent_cpu_percent = sample(&mut self.agent_cpu);
                    return Ok(summary);
                }
                Ok(Event::Source(SendEvent::Session(session))) => {
                    self.queues.source = session.queues;
                }
                Ok(Event::Source(SendEvent::Progress(_) | SendEvent::Waiting { .. })) => {}
                Ok(Event::Collector(CollectEvent::Progress(now))) => {
                    progress.set_text(progress_text(&now));
                }
                Ok(Event::Collector(CollectEvent::Session(session))) => {
                    self.queues.collector = session.queues;
                }
                Ok(Event::Collector(CollectEvent::Listening(_) | CollectEvent::Summary(_))) => {}
                Ok(Event::AskedToEnd) => {
                    say!("ending");
                    self.source.ask_to_end();
                }
                Ok(Event::Silent(Role::Source)) => {
                    return Err(ended_early(&mut self.source));
                }
                Ok(Event::Silent(Role::Collector)) => {
                    return Err(ended_early(&mut self.collector));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(started) = started {
                progress.set_elapsed(started.elapsed());
            }
        }
    }

    fn end_collector(&mut self) -> Result<CollectSummary, Failure> {
        self.collector.ask_to_end();
        loop {
            match self.events.recv_timeout(PROCESS_LIMIT) {
                Ok(Event::Collector(CollectEvent::Summary(summary))) => return Ok(summary),
                Ok(Event::Silent(Role::Collector)) => {
                    return Err(ended_early(&mut self.collector));
                }
                Ok(Event::Collector(CollectEvent::Session(session))) => {
                    // A short demo is over before the collector reports its session.
                    self.queues.collector = session.queues;
                }
                Ok(
                    Event::Collector(_) | Event::Source(_) | Event::Silent(_) | Event::AskedToEnd,
                ) => {}
                Err(_) => return Err(too_slow("end")),
            }
        }
    }
}

fn progress_text(now: &CollectProgress) -> String {
    format!(
        "{} frames  {:.0}/s  {}/s  p50 {}  lost {}",
        units::count(now.received.frames_received),
        now.frames_per_s.unwrap_or(0.0),
        units::bytes(now.bytes_per_s.unwrap_or(0.0)),
        units::latency(now.received.latency_us_p50),
        units::count(now.received.frames_lost),
    )
}
