//! The processes of a cell over Catchment: sources that replay their events, and the collector that notes what is there.
use super::talk::{
    Begun, Came, Job, Log, Report, STAMP_BYTES, SourceJob, begin, events, note, noted, obey, say,
    say_json, sleep_until, stamp, wait_for_end,
};
use super::tcp;
use crate::sys;
use anyhow::{Result, anyhow};
use catchment::collector::Collector;
use catchment::observe::RoceSnapshot;
use catchment::roce::{Faults, RoceOptions};
use catchment::session::path::PathRules;
use catchment::source::{Device, DeviceSpec, Fallback, Source, Standing};
use catchment_provider_roce::io::SocketOptions;
use catchment_sim::admission::Event;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A NIC holds some packets; a socket that holds more, or trains of them, would be a queue that no NIC has.
const SEND_BUFFER_BYTES: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// Does the job until its input ends.
pub(crate) fn role(job: &Job) -> Result<()> {
    match job {
        Job::Collector { listen, tcp: true, frame_bytes, .. } => tcp::collect(listen, *frame_bytes),
        Job::Collector { listen, port, .. } => collect(listen, *port),
        Job::Source(job) if job.congestion.is_some() => tcp::send(job),
        Job::Source(job) => send(job),
    }
}

fn only_roce() -> PathRules {
    PathRules { require: vec!["roce".to_owned()], ..PathRules::default() }
}

/// Go-back-N everywhere, as NICs have it.
fn roce_options() -> RoceOptions {
    RoceOptions { selective_repeat: false, ..RoceOptions::default() }
}

fn collect(listen: &str, port: Option<u16>) -> Result<()> {
    let options = roce_options();
    let options = RoceOptions { port: port.unwrap_or(options.port), ..options };
    let log = Log::default();
    let noted = Arc::clone(&log);
    let collector = Collector::builder(listen)
        .insecure(true)
        .path_rules(only_roce())
        .provider(options)
        .on_frame(move |frame| {
            let mut bytes = [0; STAMP_BYTES];
            frame.read_at(0, &mut bytes);
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(Came::now(bytes));
        })
        .start()?;
    say(&collector.local_addr().to_string())?;
    obey(&log, || {
        let snapshot = collector.metrics().snapshot();
        let sum = |of: fn(&RoceSnapshot) -> u64| snapshot.roce.iter().map(of).sum();
        Report {
            bytes: snapshot.totals.bytes_received,
            frames_lost: Some(snapshot.totals.frames_lost),
            sequence_naks_sent: Some(sum(|roce| roce.sequence_naks_sent)),
            ..Report::default()
        }
    })
}

fn send(job: &SourceJob) -> Result<()> {
    let events = events(job)?;
    // By packet number: frames of the events so far.
    let ends: Vec<u64> = events
        .iter()
        .scan(0, |sum, event| {
            *sum += event.frames;
            Some(*sum)
        })
        .collect();
    let told: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
    let source = connect(job, ends, &told)?;
    let device = source.device(&name(job.device))?;
    say("ready")?;
    let begin_ns = begin()?;
    let cpu_before_ns = sys::process_cpu_ns();
    let begun = Begun::default();
    let sender = Sender { job: job.clone(), events, begin_ns, begun: begun.clone() };
    // It may wait for room when the end comes, and ends with the process.
    std::thread::spawn(move || {
        if let Err(error) = sender.run(device) {
            eprintln!("source {}: {error:#}", sender.job.device);
        }
    });
    wait_for_end()?;
    // What has not left by now is not waited for, and nothing leaves any more: all that did is counted.
    let metrics = Arc::clone(source.metrics());
    drop(source);
    let snapshot = metrics.snapshot();
    let sum = |of: fn(&RoceSnapshot) -> u64| snapshot.roce.iter().map(of).sum();
    let report = Report {
        cpu_ns: sys::process_cpu_ns() - cpu_before_ns,
        bytes: snapshot.totals.bytes_sent,
        begun_ns: noted(&begun),
        told: told.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        packets_sent: sum(|roce| roce.packets_sent),
        retransmitted: sum(|roce| roce.retransmitted),
        timeouts: sum(|roce| roce.timeouts),
        reconnects: snapshot.reconnects,
        ..Report::default()
    };
    say_json(&report)?;
    // The sender may wait for ever.
    std::process::exit(0);
}

fn name(device: u32) -> String {
    format!("cam{device}")
}

fn connect(job: &SourceJob, ends: Vec<u64>, told: &Arc<Mutex<BTreeSet<usize>>>) -> Result<Source> {
    let socket = SocketOptions {
        gso: false,
        send_buffer_bytes: SEND_BUFFER_BYTES,
        ..SocketOptions::default()
    };
    let fault = job.via.map(|via| {
        let mut fault = Faults::default();
        fault.via = Some(via);
        fault
    });
    let traffic_class = job.traffic_class;
    let options = RoceOptions { traffic_class, socket, fault, ..roce_options() };
    let class = if job.device == 0 { "urgent" } else { "tolerant" };
    let device = DeviceSpec::new(name(job.device)).frame_bytes(job.frame_bytes).priority(class);
    let noted = Arc::clone(told);
    let mut builder = Source::builder(&job.collector)
        .insecure(true)
        .path_rules(only_roce())
        .provider(options)
        .device(device.rate_max(job.rate_max_bps))
        .blocks(job.blocks)
        .patience(PATIENCE)
        .on_missed(move |missed| {
            let event = ends.partition_point(|end| *end <= missed.packet_number);
            noted.lock().unwrap_or_else(PoisonError::into_inner).insert(event);
        });
    if let Some(controller) = &job.controller {
        builder = builder.controller(controller, Fallback::SafeRate);
    }
    let source = builder.connect()?;
    let limit = std::time::Instant::now() + PATIENCE;
    while source.standing() == Some(Standing::Unregistered) {
        if std::time::Instant::now() > limit {
            return Err(anyhow!("not registered with the controller"));
        }
        // A change of it has no event.
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(source)
}

struct Sender {
    job: SourceJob,
    events: Vec<Event>,
    begin_ns: u64,
    begun: Begun,
}

impl Sender {
    fn run(&self, mut device: Device) -> Result<()> {
        let pattern = vec![0x5a; self.job.frame_bytes - STAMP_BYTES];
        for (index, event) in self.events.iter().enumerate() {
            let due_ns = self.begin_ns + event.at_ns;
            sleep_until(due_ns);
            if self.job.by_event {
                device.event(u32::try_from(event.frames)?);
            }
            for number in 0..event.frames {
                let mut frame = device.frame(self.job.frame_bytes)?;
                if number == 0 && self.job.controller.is_none() {
                    note(&self.begun);
                }
                let age = Duration::from_nanos(sys::monotonic_ns() - due_ns);
                frame.set_capture_time(SystemTime::now() - age);
                frame.write_all(&stamp(self.job.device, index, number))?;
                frame.write_all(&pattern)?;
                frame.send()?;
            }
        }
        Ok(())
    }
}
