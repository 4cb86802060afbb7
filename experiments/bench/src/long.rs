//! `long`: frames from `catchment send` to `catchment collect` over a long path, with default settings.
//!
//! A relay passes the packets of two namespaces on, late, at a rate, and loses some of them at random, in both
//! directions. The goodput is what the collector's own reports say of a span after a warm-up, as a
//! fraction of what the rate allows in full packets.
use crate::goal::{Goal, Limit};
use crate::host::Environment;
use crate::output;
use anyhow::{Context as _, Result, ensure};
use catchment_netns::{LongPath, Namespace, PathCounts, PathSpec};
use catchment_perf::ChildProcess;
use catchment_probe::random::Random;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A process of this program that has this name is the command: see `main`.
pub(crate) const COMMAND: &str = "catchment";
const INTERFACE_MTU: u32 = 1500;
/// What a packet of a WRITE carries there, and its bytes on the path: IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4.
const PAYLOAD_BYTES: f64 = 1024.0;
const PACKET_BYTES: f64 = PAYLOAD_BYTES + 60.0;
/// How long the queue before the path takes to empty.
const QUEUE: Duration = Duration::from_millis(20);
/// Round trips, and seconds, before the span begins: the rate is found by then.
const WARM_UP_TRIPS: u32 = 20;
const WARM_UP: Duration = Duration::from_secs(2);
/// Fraction of the link that must be reached.
pub(crate) const LEAST: f64 = 0.9;
/// The paths of the goal.
const RATE_BPS: u64 = 1_000_000_000;
const DELAYS_MS: [u64; 3] = [10, 50, 100];
const LOSSES: [f64; 2] = [0.0, 0.01];

/// Measure frames over long paths: a product's default settings, a relay between two namespaces
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Rates of the path, bits a second
    #[arg(long, value_delimiter = ',', default_values_t = [RATE_BPS])]
    rate: Vec<u64>,
    /// Delays of the path, milliseconds each way
    #[arg(long, value_delimiter = ',', default_values_t = DELAYS_MS)]
    ms: Vec<u64>,
    /// Fractions of packets that the path loses
    #[arg(long, value_delimiter = ',', default_values_t = LOSSES)]
    loss: Vec<f64>,
    /// Seconds of each span
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Seed of what is lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A path.
#[derive(Debug, Clone, Copy, Serialize)]
struct Place {
    rate_bps: u64,
    delay_ms: u64,
    loss: f64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " at {} bit/s, {} ms each way, {} lost", self.rate_bps, self.delay_ms, self.loss)
    }
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    #[serde(flatten)]
    place: Place,
    queue_bytes: u64,
    bytes_per_s: f64,
    fraction: f64,
    frames_lost: u64,
    packets_passed: u64,
    packets_lost: u64,
    packets_dropped: u64,
    collector_cpu_percent: f64,
    source_cpu_percent: f64,
    seconds: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.seconds >= 1.0, "a span takes at least 1 second");
    if options.json {
        output::json(&serde_json::json!({ "what": "run", "environment": Environment::detect() }))?;
    } else {
        output::line(
            "   Mbit/s  ms each way   lost  fraction      MB/s  dropped  collector %  source %",
        )?;
    }
    let mut goals = Vec::new();
    for &rate_bps in &options.rate {
        for &delay_ms in &options.ms {
            for &loss in &options.loss {
                ensure!((0.0..1.0).contains(&loss), "--loss is {loss}: from 0 to less than 1");
                let place = Place { rate_bps, delay_ms, loss };
                let row = measure(place, options.seconds, options.seed)?;
                output::either(options.json, &row, line)?;
                goals.push(Goal::new("long path", place, row.fraction, Limit::AtLeast(LEAST)));
            }
        }
    }
    for goal in &goals {
        output::either(options.json, goal, Goal::line)?;
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let Place { rate_bps, delay_ms, loss } = row.place;
    format!(
        "{:9.0} {delay_ms:12} {loss:6} {:9.3} {:9.1} {:8} {:12.1} {:9.1}",
        rate_bps as f64 / 1e6,
        row.fraction,
        row.bytes_per_s / 1e6,
        row.packets_dropped,
        row.collector_cpu_percent,
        row.source_cpu_percent,
    )
}

/// Returns what part of each path of the goal is reached over this many seconds, with the path in words.
pub(crate) fn fractions(seconds: f64) -> Result<Vec<(String, f64)>> {
    let mut found = Vec::new();
    for delay_ms in DELAYS_MS {
        for loss in LOSSES {
            let place = Place { rate_bps: RATE_BPS, delay_ms, loss };
            let lost =
                if loss > 0.0 { format!(", {} % lost", 100.0 * loss) } else { String::new() };
            let words = format!("{delay_ms} ms each way{lost}");
            found.push((words, measure(place, seconds, 1)?.fraction));
        }
    }
    Ok(found)
}

fn measure(place: Place, seconds: f64, seed: u64) -> Result<Row> {
    measure_over(place, seconds, seed).with_context(|| format!("a path{place}"))
}

fn measure_over(place: Place, seconds: f64, seed: u64) -> Result<Row> {
    let spec = PathSpec {
        rate_bps: place.rate_bps,
        delay: Duration::from_millis(place.delay_ms),
        queue_bytes: (QUEUE.as_secs_f64() * place.rate_bps as f64 / 8.0) as u64,
        mtu: INTERFACE_MTU,
    };
    let mut random = Random::new(seed);
    let lose = [random.fork(), random.fork()].map(|mut random| {
        let bound = (place.loss * u64::MAX as f64) as u64;
        move || random.next_u64() < bound
    });
    let path = LongPath::new(spec, lose)?;
    let mut collector = start("the collector", &path.right, &collect())?;
    let listening = event(&mut collector, "listening")?;
    let address = listening["address"].as_str().context("no address")?.to_owned();
    let mut source = start("the source", &path.left, &send(&address))?;
    event(&mut source, "session")?;
    let warm_up = WARM_UP.max(2 * spec.delay * WARM_UP_TRIPS);
    let begun = number(&progress_at(&mut collector, 0.0)?, "uptime_s")?;
    let from = progress_at(&mut collector, begun + warm_up.as_secs_f64())?;
    let to = progress_at(&mut collector, number(&from, "uptime_s")? + seconds)?;
    let counts = path.counts();
    let source_cpu_percent = number(&event(&mut source, "progress")?, "cpu_percent")?;
    row(place, &spec, [&from, &to], counts, source_cpu_percent)
}

fn row(
    place: Place,
    spec: &PathSpec,
    [from, to]: [&Value; 2],
    counts: PathCounts,
    source_cpu_percent: f64,
) -> Result<Row> {
    let difference = |name| Ok::<f64, anyhow::Error>(number(to, name)? - number(from, name)?);
    let seconds = difference("uptime_s")?;
    let bytes_per_s = difference("bytes_received")? / seconds;
    let possible = place.rate_bps as f64 / 8.0 * PAYLOAD_BYTES / PACKET_BYTES;
    Ok(Row {
        what: "long",
        place,
        queue_bytes: spec.queue_bytes,
        bytes_per_s,
        fraction: bytes_per_s / possible,
        frames_lost: number(to, "frames_lost")? as u64,
        packets_passed: counts.passed,
        packets_lost: counts.lost,
        packets_dropped: counts.queue_full,
        collector_cpu_percent: number(to, "cpu_percent")?,
        source_cpu_percent,
        seconds,
    })
}

fn collect() -> Vec<String> {
    let listen = format!("{}:0", LongPath::RIGHT);
    let words = [
        "collect", "--listen", &listen, "--sink", "null", "--no-dashboard", "--insecure", "--json",
    ];
    words.map(str::to_owned).to_vec()
}

fn send(to: &str) -> Vec<String> {
    let words =
        ["send", to, "--input", "synthetic:640x480:rgb24", "--rate", "max", "--insecure", "--json"];
    words.map(str::to_owned).to_vec()
}

/// Starts the command in a namespace; it ends with this process, even if that is killed.
pub(crate) fn start(name: &'static str, at: &Namespace, words: &[String]) -> Result<ChildProcess> {
    let program = std::env::current_exe()?;
    let started = at.run(|| {
        let mut command = Command::new(program);
        command.arg0(COMMAND).args(words).stdin(Stdio::null());
        ChildProcess::start(name, &mut command)
    })?;
    Ok(started?)
}

/// Waits for the next event of this name.
pub(crate) fn event(process: &mut ChildProcess, name: &str) -> Result<Value> {
    let wanted = format!("{{\"event\":\"{name}\"");
    Ok(serde_json::from_str(&process.wait_for(|line| line.starts_with(&wanted))?)?)
}

/// Waits for the first report at this uptime or later.
fn progress_at(collector: &mut ChildProcess, uptime_s: f64) -> Result<Value> {
    loop {
        let report = event(collector, "progress")?;
        if number(&report, "uptime_s")? >= uptime_s {
            return Ok(report);
        }
    }
}

fn number(report: &Value, name: &str) -> Result<f64> {
    report[name].as_f64().with_context(|| format!("no {name} in {report}"))
}
