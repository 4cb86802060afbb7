//! Programs of other projects that measure themselves, on the cores of the two roles; and what is
//! here of all other projects.
use crate::job::{Job, Outcome, PingPong, Stream};
use crate::mechanism::{External, What};
use crate::roce::iperf3;
use crate::ucx;
use crate::ucx::{Running, wait_until_listening};
use anyhow::{Context, Result};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// How long a stream lasts, in seconds.
pub(crate) const STREAM_SECONDS: u32 = 2;
/// Round trips of one test.
const ROUND_TRIPS: u64 = 400;

/// What to do to have it, if this program was built without it or this machine lacks it.
pub(crate) fn missing(what: What) -> Option<&'static str> {
    let (is_here, remedy) = match what {
        What::Iceoryx2 | What::Iceoryx2Credit => {
            (cfg!(feature = "iceoryx2"), "cargo build --features iceoryx2")
        }
        What::ZenohTcp | What::ZenohShm => {
            (cfg!(feature = "zenoh"), "cargo build --features zenoh")
        }
        What::Aeron => (
            cfg!(feature = "aeron"),
            "apt-get install g++ libclang-dev uuid-dev libbsd-dev; pip install cmake (3.30 or later); cargo build --features aeron",
        ),
        What::Ucx => (runs(ucx::PROGRAM, "-h"), "apt-get install ucx-utils"),
        What::Program(External::Iperf3) => (runs("iperf3", "-v"), "apt-get install iperf3"),
        What::Program(External::LibfabricTcp | External::LibfabricShm) => {
            (runs("fi_pingpong", "-h"), "apt-get install libfabric-bin")
        }
        What::CacheLine
        | What::Memcpy
        | What::OursCopy
        | What::OursInPlace
        | What::Tcp
        | What::TcpBlocking
        | What::Unix
        | What::StatusReadPrefetched
        | What::StatusReadWhenEmpty
        | What::Paper
        | What::Mechanism(..) => return None,
    };
    (!is_here).then_some(remedy)
}

fn runs(program: &str, argument: &str) -> bool {
    let mut quiet = Command::new(program);
    quiet.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok()
}

pub(crate) fn run(program: External, job: &Job) -> Result<Outcome> {
    match program {
        External::Iperf3 => stream(job),
        External::LibfabricTcp => ping_pong(job, "tcp"),
        External::LibfabricShm => ping_pong(job, "shm"),
    }
}

/// A TCP port of loopback that nobody uses now.
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
fn stream(job: &Job) -> Result<Outcome> {
    let port = free_port()?.to_string();
    let mut server = on_core(job.collector_core, "iperf3");
    server.args(["-s", "-1", "-p", &port]).stdout(Stdio::null());
    let server = Running::start(&mut server)?;
    wait_until_listening(port.parse()?)?;
    let mut client = on_core(job.source_core, "iperf3");
    client.args(["-c", "127.0.0.1", "-p", &port, "-J"]);
    client.args(["-t", &STREAM_SECONDS.to_string(), "-l", &job.bytes.to_string()]);
    let client = Running::start(client.stdout(Stdio::piped()))?;
    let (report, _) = client.finish().context("the iperf3 client")?;
    server.finish().context("the iperf3 server")?;
    let sample = iperf3::read(&report).with_context(|| format!("iperf3 printed {report}"))?;
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

fn ping_pong(job: &Job, provider: &str) -> Result<Outcome> {
    let port = free_port()?;
    let (bytes, count) = (job.bytes.to_string(), ROUND_TRIPS.to_string());
    let words = ["-p", provider, "-e", "rdm", "-S", &bytes, "-I", &count];
    let mut server = on_core(job.collector_core, "fi_pingpong");
    server.args(words).args(["-B", &port.to_string()]);
    let server = Running::start(server.stdout(Stdio::null()))?;
    wait_until_listening(port)?;
    let mut client = on_core(job.source_core, "fi_pingpong");
    client.args(words).args(["-P", &port.to_string(), "127.0.0.1"]);
    let client = Running::start(client.stdout(Stdio::piped()))?;
    let (text, _) = client.finish().context("the fi_pingpong client")?;
    server.finish().context("the fi_pingpong server")?;
    let one_way_ns = parse(&text).with_context(|| format!("fi_pingpong printed {text:?}"))?;
    let ping_pong = PingPong {
        count: ROUND_TRIPS,
        p50_ns: one_way_ns,
        p99_ns: one_way_ns,
        middle_ns: one_way_ns,
        floor_ns: 0.0,
        core_share: 1.0,
    };
    Ok(Outcome { ping_pongs: vec![ping_pong], ..Outcome::default() })
}

/// The mean one-way time in nanoseconds: the column `usec/xfer` of the last line.
fn parse(text: &str) -> Result<f64> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let head = lines.find(|line| line.contains("usec/xfer"));
    let head = head.context("no column names")?;
    let names = head.split_whitespace();
    let at = names.take_while(|name| *name != "usec/xfer").count();
    let line = lines.next_back().context("no values")?;
    let value = line.split_whitespace().nth(at).context("too few values")?;
    let us: f64 = value.parse().with_context(|| format!("{value:?} is not a number"))?;
    Ok(us * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_fi_pingpong_is_read_by_column_name() {
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    900k    200     =200     351m        1.87s    196.71    4684.98       0.00\n";
        assert_eq!(parse(text).unwrap(), 4_684_980.0);
        assert!(parse("fi_getinfo: -61").is_err());
    }
}
