//! `catchment demo`: a collector process and a source process on this machine.
mod child;
mod folder;
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
use child::{Process, Role, Told};
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
    let (tell, told) = channel();
    let asked = tell.clone();
    let _stop = stop::watch(false, move || {
        let _ = asked.send(Told::AskedToEnd);
    })?;
    let plan = Plan::new(args)?;
    let mut collector = Process::start(Role::Collector, plan.collector(args), tell.clone())?;
    let listening = wait_listening(&told, &mut collector)?;
    report::tell_start(args, &plan, &listening);
    let source = Process::start(Role::Source, plan.source(args, &listening.address), tell)?;
    let mut demo = Demo {
        args,
        told,
        source,
        collector,
        collector_cpu: None,
        collector_cpu_percent: 0.0,
        queues: Queues::default(),
    };
    let sent = demo.send()?;
    let collected = demo.end_collector()?;
    let source_code = demo.source.wait()?;
    let summary = report::summary(&report::Parts {
        plan: &plan,
        listening: &listening,
        sent: &sent,
        collected: &collected,
        cpu_percent_collector: demo.collector_cpu_percent,
        queues: demo.queues,
    });
    report::tell_end(args, &plan, &summary)?;
    if source_code != 0 {
        return Err(Failure::Silent(source_code));
    }
    report::check(&summary)
}

fn wait_listening(told: &Receiver<Told>, collector: &mut Process) -> Result<Listening, Failure> {
    loop {
        match told.recv_timeout(PROCESS_LIMIT) {
            Ok(Told::Collector(CollectEvent::Listening(listening))) => return Ok(listening),
            Ok(Told::Silent(_)) => return Err(ended_early(collector)),
            Ok(Told::AskedToEnd) => return Err(Failure::Silent(0)),
            Ok(Told::Collector(_) | Told::Source(_)) => {}
            Err(_) => return Err(too_slow("start")),
        }
    }
}

fn too_slow(verb: &str) -> Failure {
    let error = anyhow!("the collector process did not {verb} within {PROCESS_LIMIT:?}");
    Failure::new(Code::Failed, error)
}

/// A process that ended by itself has told why, unless it was killed.
fn ended_early(process: &mut Process) -> Failure {
    match process.wait() {
        Ok(code) if code > 1 => Failure::Silent(code),
        _ => Failure::new(Code::Failed, anyhow!("the {} process ended early", process.role.name())),
    }
}

struct Demo<'a> {
    args: &'a DemoArgs,
    told: Receiver<Told>,
    source: Process,
    collector: Process,
    collector_cpu: Option<CpuMeter>,
    collector_cpu_percent: f64,
    queues: Queues,
}

impl Demo<'_> {
    fn send(&mut self) -> Result<SendSummary, Failure> {
        let progress = Progress::bar(self.args.seconds);
        let mut started = None;
        loop {
            match self.told.recv_timeout(TICK) {
                Ok(Told::Source(SendEvent::Connected(_))) => {
                    started = Some(Instant::now());
                    self.collector_cpu = CpuMeter::process(self.collector.id()).ok();
                }
                Ok(Told::Source(SendEvent::Summary(summary))) => {
                    let sampled = self.collector_cpu.as_mut().and_then(|cpu| cpu.sample().ok());
                    self.collector_cpu_percent = sampled.map_or(0.0, |cpu| cpu.cpu_percent);
                    return Ok(summary);
                }
                Ok(Told::Source(SendEvent::Session(session))) => {
                    self.queues.source = session.queues;
                }
                Ok(Told::Source(SendEvent::Progress(_) | SendEvent::Waiting { .. })) => {}
                Ok(Told::Collector(CollectEvent::Progress(now))) => {
                    progress.set_text(progress_text(&now));
                }
                Ok(Told::Collector(CollectEvent::Session(session))) => {
                    self.queues.collector = session.queues;
                }
                Ok(Told::Collector(CollectEvent::Listening(_) | CollectEvent::Summary(_))) => {}
                Ok(Told::AskedToEnd) => {
                    say!("ending");
                    self.source.ask_to_end();
                }
                Ok(Told::Silent(Role::Source)) => {
                    return Err(ended_early(&mut self.source));
                }
                Ok(Told::Silent(Role::Collector)) => {
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
            match self.told.recv_timeout(PROCESS_LIMIT) {
                Ok(Told::Collector(CollectEvent::Summary(summary))) => return Ok(summary),
                Ok(Told::Silent(Role::Collector)) => {
                    return Err(ended_early(&mut self.collector));
                }
                Ok(Told::Collector(CollectEvent::Session(session))) => {
                    // A short demo is over before the collector tells of its session.
                    self.queues.collector = session.queues;
                }
                Ok(Told::Collector(_) | Told::Source(_) | Told::Silent(_) | Told::AskedToEnd) => {}
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
