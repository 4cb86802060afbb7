//! `catchment send`: inputs as the devices of one source.
mod carry;
mod feed;
mod page;
mod report;

use crate::args::{InputArgs, SendArgs};
use crate::cert::{client_security, reread_on_hangup};
use crate::failure::{Code, Failure, OrFail as _};
use crate::hint;
use crate::output::events::{Connected, SendEvent};
use crate::output::progress::Progress;
use crate::output::{self, say};
use crate::stop::{self, Stop, spawn};
use anyhow::anyhow;
use carry::{Outcome, carry};
use catchment::format::FrameRate;
use catchment::input::pace::spread_phase;
use catchment::input::{FrameInput, FrameSync, InputOptions, open};
use catchment::observe::cpu::CpuMeter;
use catchment::observe::{SessionSnapshot, SourceSampler};
use catchment::session::SOFTWARE;
use catchment::session::message::ProtocolRange;
use catchment::session::refusal::RefusalCode;
use catchment::source::{DeviceSpec, Source, SourceBuilder, SourceError};
use feed::{Feed, FeedError, Schedule};
use std::ffi::OsStr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const SHARED_THREADS: usize = 4;
const TICK: Duration = Duration::from_secs(1);
const SAY_WAITING_AFTER: Duration = Duration::from_secs(1);
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);
/// Practically forever, yet addable to an instant.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
/// Shortest search for a collector: the time of one attempt.
const WAIT_LEAST: Duration = Duration::from_millis(500);

enum Event {
    Connected(Result<Source, SourceError>),
    Ended(Outcome),
    Closed(Result<(), SourceError>),
    AskedToEnd,
}

pub(crate) fn run(args: &SendArgs) -> Result<(), Failure> {
    // Unusable certificates are reported before any waiting.
    let security = client_security(&args.security)?;
    hint::warn_insecure(&args.collector, args.security.insecure);
    if !hint::is_remote(&args.collector) {
        args.providers.check_fault_within_host()?;
    }
    let (sender, events) = mpsc::channel();
    let asked = sender.clone();
    let stop = stop::watch(args.until_stdin_closes, move || {
        let _ = asked.send(Event::AskedToEnd);
    })?;
    reread_on_hangup(&stop, security.tls.as_ref());
    let inputs = open_all(&args.each)?;
    let running = page::Running::default();
    let _page = page::start(args, running.clone())?;
    let source = connect(args, builder(args, &inputs)?, &sender, &events)?;
    // It is set here alone.
    let _ = running.set(source.metrics().clone());
    let sending = Sending {
        args,
        stop,
        sender,
        events,
        start: Instant::now(),
        failures: Failures::default(),
    };
    sending.run(source, inputs)
}

type Inputs = Vec<Box<dyn FrameInput>>;

fn open_all(each: &[InputArgs]) -> Result<Inputs, Failure> {
    let stdin = each.iter().filter(|one| reads_stdin(&one.input)).count();
    if stdin > 1 {
        let error = anyhow!("{stdin} inputs are `-`, and there is only one stdin");
        return Err(Failure::new(Code::Usage, error).hint("use named pipes for the others"));
    }
    each.iter().enumerate().map(|(i, one)| open_one(i, one, 0)).collect()
}

fn open_one(
    index: usize,
    one: &InputArgs,
    first_frame: u64,
) -> Result<Box<dyn FrameInput>, Failure> {
    let options = InputOptions {
        format: one.format,
        repeat: one.repeat,
        sync: one.every_frame.then_some(FrameSync::EveryFrame),
        device: one.device.to_string(),
        device_index: u32::try_from(index).unwrap_or(u32::MAX),
        first_frame,
        ..InputOptions::default()
    };
    open(&one.input, &options).or_fail(Code::Input)
}

fn reads_stdin(input: &OsStr) -> bool {
    ["-", "raw:-", "y4m:-"].iter().any(|name| input == *name)
}

fn is_synthetic(input: &OsStr) -> bool {
    let text = input.to_string_lossy();
    text == "synthetic" || text.starts_with("synthetic:")
}

fn builder(args: &SendArgs, inputs: &Inputs) -> Result<SourceBuilder, Failure> {
    let mut builder = Source::builder(args.collector.to_string())
        .checksum(!args.no_checksum)
        .in_place(!args.no_in_place)
        .insecure(args.security.insecure)
        .providers(args.providers.secured(&args.security)?);
    if let Some(files) = args.security.files() {
        builder = builder.tls(files);
    }
    if let Some(requests) = args.send_queue {
        builder = builder.send_queue(requests);
    }
    if let Some(wait) = args.wait {
        builder = builder.patience(wait.max(WAIT_LEAST));
    }
    if !args.controller.is_empty() {
        let controllers: Vec<String> = args.controller.iter().map(ToString::to_string).collect();
        builder = builder.controller(controllers.join(","), args.fallback.into());
    }
    let named = args.priority.iter().map(|(name, _)| name);
    let timed = args.deadline.iter().chain(&args.periodic).map(|(name, _)| name);
    for name in named.chain(timed) {
        if !args.each.iter().any(|one| one.device.as_str() == name) {
            let error = anyhow!("--priority, --deadline and --periodic: there is no device {name}");
            return Err(Failure::new(Code::Usage, error));
        }
    }
    for (one, input) in args.each.iter().zip(inputs) {
        let name = one.device.as_str();
        let mut spec = DeviceSpec::new(name).format(*input.format()).policy(args.policy.into());
        if let Some((_, class)) = args.priority.iter().rfind(|(device, _)| device == name) {
            spec = spec.priority(class);
        }
        if let Some((_, time)) = args.deadline.iter().rfind(|(device, _)| device == name) {
            spec = spec.deadline(*time);
        }
        if let Some((_, period)) = args.periodic.iter().rfind(|(device, _)| device == name) {
            spec = spec.periodic(input.format().frame_bytes(), *period);
        }
        builder = builder.device(spec);
    }
    Ok(builder)
}

/// Connects on a thread of its own, so that a signal can end the waiting.
fn connect(
    args: &SendArgs,
    builder: SourceBuilder,
    sender: &mpsc::Sender<Event>,
    events: &mpsc::Receiver<Event>,
) -> Result<Source, Failure> {
    let answer = sender.clone();
    spawn("connect", move || {
        let _ = answer.send(Event::Connected(builder.connect()));
    })?;
    let mut limit = SAY_WAITING_AFTER;
    loop {
        match events.recv_timeout(limit) {
            Ok(Event::Connected(connected)) => {
                let source = connected.map_err(source_failure)?;
                announce_connected(args)?;
                return Ok(source);
            }
            Ok(Event::AskedToEnd) => {
                let error = anyhow!("ended before there was a collector at {}", args.collector);
                return Err(Failure::new(Code::Unreachable, error));
            }
            Ok(Event::Ended(_) | Event::Closed(_)) => {}
            Err(_) => {
                announce_waiting(args)?;
                limit = FOR_EVER;
            }
        }
    }
}

fn announce_waiting(args: &SendArgs) -> Result<(), Failure> {
    let collector = args.collector.to_string();
    // A program that started this one starts the collector too.
    if !args.until_stdin_closes {
        say!(
            "waiting for a collector at {collector}; if none runs there: {}",
            hint::collect(&args.collector, &args.security)
        );
    }
    if args.json {
        output::print_json(&SendEvent::Waiting { collector })?;
    }
    Ok(())
}

fn announce_connected(args: &SendArgs) -> Result<(), Failure> {
    if args.json {
        return output::print_json(&SendEvent::Connected(Connected {
            collector: args.collector.to_string(),
            devices: args.each.len(),
            pid: std::process::id(),
        }));
    }
    let devices = match &args.each[..] {
        [one] => format!("device {}", one.device),
        more => format!("{} devices", more.len()),
    };
    say!("sending {devices} to {}", args.collector);
    Ok(())
}

struct Sending<'a> {
    args: &'a SendArgs,
    stop: Arc<Stop>,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    start: Instant,
    failures: Failures,
}

impl Sending<'_> {
    fn run(mut self, source: Source, inputs: Inputs) -> Result<(), Failure> {
        let metrics = source.metrics().clone();
        let mut cpu = CpuMeter::this_process();
        let mut ticker = Ticker::new(self.args, SourceSampler::new(metrics.clone()));
        // What is known before the first tick.
        ticker.output = ticker.report_session(metrics.snapshot().session.as_ref());
        let devices = self.start_feeds(&source, inputs)?;
        self.watch_devices(devices, &mut ticker);
        let seconds = self.start.elapsed().as_secs_f64();
        let limit = self.close(source)?;
        self.watch_close(limit, &mut ticker);
        let cpu_percent = cpu.sample().map_or(0.0, |cpu| cpu.cpu_percent);
        let summary = report::summary(&metrics.snapshot(), seconds, cpu_percent, &self.failures);
        let printed = ticker.output.and_then(|()| report::print_summary(self.args, &summary));
        self.failures.into_result()?;
        printed
    }

    fn watch_devices(&mut self, mut running: usize, ticker: &mut Ticker<'_>) {
        while running > 0 {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Ended(outcome)) => {
                    running -= 1;
                    self.failures.of_device(outcome);
                }
                Ok(Event::AskedToEnd) => return,
                Ok(Event::Connected(_) | Event::Closed(_)) => {}
                Err(_) => ticker.tick(),
            }
        }
    }

    fn watch_close(&mut self, limit: Duration, ticker: &mut Ticker<'_>) {
        let mut give_up = Instant::now() + limit;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left.min(TICK)) {
                Ok(Event::Closed(closed)) => return self.failures.of_source(closed),
                Ok(Event::Ended(outcome)) => self.failures.of_device(outcome),
                Ok(Event::AskedToEnd) => give_up = give_up.min(Instant::now() + GOODBYE_LIMIT),
                Ok(Event::Connected(_)) => {}
                Err(_) if left.is_zero() => return self.failures.gave_up(limit),
                Err(_) => ticker.tick(),
            }
        }
    }

    fn start_feeds(&self, source: &Source, inputs: Inputs) -> Result<usize, Failure> {
        let devices = inputs.len();
        let mut shared: Vec<Vec<Feed>> = Vec::new();
        shared.resize_with(SHARED_THREADS.min(devices), Vec::new);
        for (i, (one, input)) in self.args.each.iter().zip(inputs).enumerate() {
            let synthetic = is_synthetic(&one.input);
            let feed = self.feed(source, i, one, input, synthetic)?;
            if synthetic {
                let thread = i % shared.len();
                shared[thread].push(feed);
            } else {
                self.start_thread(vec![feed])?;
            }
        }
        shared
            .into_iter()
            .filter(|feeds| !feeds.is_empty())
            .try_for_each(|feeds| self.start_thread(feeds))?;
        Ok(devices)
    }

    fn feed(
        &self,
        source: &Source,
        index: usize,
        one: &InputArgs,
        mut input: Box<dyn FrameInput>,
        synthetic: bool,
    ) -> Result<Feed, Failure> {
        let device = source.device(one.device.as_str()).map_err(source_failure)?;
        if synthetic {
            // The picture shows its packet number, also after a restart of this process.
            input = open_one(index, one, device.next_packet())?;
        }
        let rate = feed::rate_of(one.rate, input.as_ref(), synthetic);
        let schedule = Schedule {
            phase: rate.map_or(Duration::ZERO, |rate: FrameRate| {
                spread_phase(rate, index as u32, self.args.each.len() as u32)
            }),
            rate,
            start: self.start,
            time: self.args.seconds,
            frames: one.frames,
        };
        Ok(Feed::new(device, input, &schedule))
    }

    fn start_thread(&self, feeds: Vec<Feed>) -> Result<(), Failure> {
        let (stop, sender) = (self.stop.clone(), self.sender.clone());
        spawn("carry", move || {
            carry(feeds, &stop, |outcome| {
                let _ = sender.send(Event::Ended(outcome));
            });
        })
    }

    /// Waits for the last frames on a thread of its own; returns how long to wait for that thread.
    fn close(&self, source: Source) -> Result<Duration, Failure> {
        let limit = if self.stop.is_set() {
            GOODBYE_LIMIT
        } else {
            self.args.wait.map_or(FOR_EVER, |wait| wait.max(WAIT_LEAST))
        };
        let sender = self.sender.clone();
        spawn("close", move || {
            let _ = sender.send(Event::Closed(source.close(limit).map(drop)));
        })?;
        // The source gives up by itself at the limit, and then reports how many frames are left.
        Ok(limit + WAIT_LEAST)
    }
}

struct Ticker<'a> {
    args: &'a SendArgs,
    progress: Progress,
    sampler: SourceSampler,
    session: Option<SessionSnapshot>,
    output: Result<(), Failure>,
}

impl Ticker<'_> {
    fn new(args: &SendArgs, sampler: SourceSampler) -> Ticker<'_> {
        let progress = if args.until_stdin_closes { Progress::none() } else { Progress::text() };
        Ticker { args, progress, sampler, session: None, output: Ok(()) }
    }

    fn tick(&mut self) {
        if self.output.is_err() {
            return;
        }
        let snapshot = self.sampler.sample();
        self.output = self.report_session(snapshot.session.as_ref());
        let is_seen = self.args.json || self.progress.is_shown();
        if is_seen && self.output.is_ok() {
            self.output = report::progress(self.args, &self.progress, &snapshot);
        }
    }

    /// Reports the path of the frames when it changes.
    fn report_session(&mut self, session: Option<&SessionSnapshot>) -> Result<(), Failure> {
        let Some(session) = session.filter(|now| Some(*now) != self.session.as_ref()) else {
            return Ok(());
        };
        self.session = Some(session.clone());
        if self.args.json {
            return output::print_json(&SendEvent::Session(session.clone()));
        }
        say!("frames go from {session}; {}", session.reason);
        Ok(())
    }
}

/// What went wrong; the worst decides the exit code.
#[derive(Default)]
struct Failures {
    of_inputs: Vec<Failure>,
    of_source: Option<Failure>,
    undelivered: u64,
}

impl Failures {
    fn of_device(&mut self, outcome: Outcome) {
        match outcome.result {
            Ok(()) => {}
            Err(FeedError::Input(error)) => {
                let error = anyhow::Error::new(error);
                let error = error.context(format!("device {} ended early", outcome.device));
                self.of_inputs.push(Failure::new(Code::Input, error));
            }
            // Closed is expected; everything else is reported once by closing the source.
            Err(FeedError::Source(error)) => tracing::debug!(%error, "a device ended"),
        }
    }

    fn of_source(&mut self, closed: Result<(), SourceError>) {
        let Err(error) = closed else { return };
        if let SourceError::Undelivered { frames, .. } = error {
            self.undelivered = frames as u64;
        }
        if let SourceError::Lost { frames } = error {
            self.undelivered = frames;
        }
        self.of_source = Some(source_failure(error));
    }

    fn gave_up(&mut self, limit: Duration) {
        let error = anyhow!("the collector has not confirmed the last frames within {limit:?}");
        self.of_source = Some(Failure::new(Code::Failed, error));
    }

    fn texts(&self) -> Vec<String> {
        self.of_inputs.iter().chain(&self.of_source).map(ToString::to_string).collect()
    }

    fn into_result(mut self) -> Result<(), Failure> {
        let worst = match self.of_source {
            Some(failure) => Some(failure),
            None => self.of_inputs.pop(),
        };
        for failure in self.of_inputs {
            crate::output::report(failure);
        }
        worst.map_or(Ok(()), Err)
    }
}

fn source_failure(error: SourceError) -> Failure {
    let code = source_code(&error);
    // That the source has ended is clear; why is what the user needs.
    if let SourceError::Ended(cause) = &error {
        return Failure::new(code, anyhow!("{cause}"));
    }
    let hint = hint(&error);
    let failure = Failure::new(code, error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn hint(error: &SourceError) -> Option<String> {
    if matches!(error, SourceError::Undelivered { .. }) {
        return Some("start the collector again, or give it more time with --wait".to_owned());
    }
    let SourceError::Refused { refusal, .. } = error else { return None };
    (refusal.code == RefusalCode::ProtocolVersion)
        .then(|| format!("this source is {SOFTWARE} and speaks {}", ProtocolRange::OURS))
}

fn source_code(error: &SourceError) -> Code {
    if let SourceError::Ended(cause) = error {
        return source_code(cause);
    }
    let no_collector = matches!(
        error,
        SourceError::Unreachable { .. }
            | SourceError::Refused { .. }
            | SourceError::Incompatible { .. }
            | SourceError::Config(_)
    );
    if no_collector { Code::Unreachable } else { Code::Failed }
}
