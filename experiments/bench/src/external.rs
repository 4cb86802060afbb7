//! What is here of other projects; and iperf3, which measures itself, on the cores of the two roles.
use crate::job::{Job, Outcome, Stream};
use crate::mechanism::Mechanism;
use crate::roce::iperf3 as report;
use crate::ucx::{Running, wait_until_listening};
use crate::{pair, ucx};
use anyhow::{Context, Result};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const STREAM_SECONDS: u32 = 2;

/// What to do to have it, if this program was built without it or this machine lacks it.
pub(crate) fn missing(what: Mechanism) -> Option<&'static str> {
    let (is_here, remedy) = if matches!(what, Mechanism::Iceoryx2 | Mechanism::Iceoryx2Credit) {
        (cfg!(feature = "iceoryx2"), "cargo build --features iceoryx2")
    } else if what == Mechanism::Ucx {
        (runs(ucx::PROGRAM, "-h"), "apt-get install ucx-utils")
    } else if what == Mechanism::Iperf3 {
        (runs("iperf3", "-v"), "apt-get install iperf3")
    } else {
        return None;
    };
    (!is_here).then_some(remedy)
}

fn runs(program: &str, argument: &str) -> bool {
    let mut quiet = Command::new(program);
    quiet.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok()
}

/// Carries out a measurement, by the program of others that it names or by two roles of this one, which
/// are killed when it takes longer than `limit`.
pub(crate) fn measure(job: &Job, limit: Option<Duration>) -> Result<Outcome> {
    if job.what == Mechanism::Iperf3 {
        return iperf3(job);
    }
    if job.what == Mechanism::Ucx { ucx::run(job) } else { pair::run(job, limit) }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn on_core(core: usize, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), program]);
    command.stderr(Stdio::null());
    command
}

/// iperf3 writes blocks of the job's size for a time.
fn iperf3(job: &Job) -> Result<Outcome> {
    let port = free_port()?.to_string();
    let mut server = on_core(job.collector_core, "iperf3");
    server.args(["-s", "-1", "-p", &port]).stdout(Stdio::null());
    let server = Running::start(&mut server)?;
    wait_until_listening(port.parse()?)?;
    let mut client = on_core(job.source_core, "iperf3");
    client.args(["-c", "127.0.0.1", "-p", &port, "-J"]);
    client.args(["-t", &STREAM_SECONDS.to_string(), "-l", &job.bytes.to_string()]);
    let client = Running::start(client.stdout(Stdio::piped()))?;
    let (printed, _) = client.finish().context("the iperf3 client")?;
    server.finish().context("the iperf3 server")?;
    let sample = report::read(&printed).with_context(|| format!("iperf3 printed {printed}"))?;
    let rate = sample.bytes_per_s.context("iperf3 reported no rate")?;
    let bytes = rate * f64::from(STREAM_SECONDS);
    let cpu_ns = |s_per_gb: Option<f64>| (s_per_gb.unwrap_or(0.0) * bytes) as u64;
    let stream = Stream {
        count: (bytes / job.bytes as f64) as u64,
        wall_ns: u64::from(STREAM_SECONDS) * 1_000_000_000,
        source_cpu_ns: cpu_ns(sample.cpu_s_per_gb_sender),
        collector_cpu_ns: cpu_ns(sample.cpu_s_per_gb_receiver),
        core_share: 1.0,
        status_reads: None,
    };
    Ok(Outcome { streams: vec![stream], ..Outcome::default() })
}
