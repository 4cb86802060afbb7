//! `ucx_perftest` over shared memory, with both sides bound to the same cores as the roles.
//!
//! What it measures is less than what the others do: a put into one buffer at the peer, which
//! nobody is told about and nobody gives back. The source keeps many of them outstanding and the
//! collector's program does not take part. Its latency test is a ping-pong of such puts, which
//! each side sees by polling the buffer's last byte: the same method as ours.
use crate::job::{Job, Needs, Outcome, PingPong, Stream};
use crate::sys;
use crate::sys::Used;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const PROGRAM: &str = "ucx_perftest";
/// Approximate length of one test.
const TEST_NS: f64 = 60e6;

/// Bandwidth and latency of puts of one size, each by a fresh pair of processes.
pub(crate) fn run(job: &Job) -> Result<Outcome> {
    let idle = test(job, "ucp_put_bw", 50, 1)?;
    let count = (TEST_NS / (15.0 + job.bytes as f64 / 10.0)) as u64 + 10;
    let bandwidth = test(job, "ucp_put_bw", 50, count)?;
    let round_trips = (TEST_NS / (200.0 + job.bytes as f64 / 5.0)) as u64 + 10;
    let median = test(job, "ucp_put_lat", 50, round_trips)?;
    let tail = test(job, "ucp_put_lat", 99, round_trips)?;
    // The warm-up is charged too, and start-up is not.
    let moved = count + warm_up(count);
    let per_timed = |cpu_ns: u64, idle_ns: u64| {
        (cpu_ns.saturating_sub(idle_ns) as f64 * count as f64 / moved as f64) as u64
    };
    let stream = Stream {
        count,
        wall_ns: (count as f64 * 1e9 / bandwidth.messages_per_s) as u64,
        source_cpu_ns: per_timed(bandwidth.source.cpu_ns, idle.source.cpu_ns),
        collector_cpu_ns: per_timed(bandwidth.collector.cpu_ns, idle.collector.cpu_ns),
        core_share: 1.0,
        status_reads: None,
    };
    let ping_pong = PingPong {
        count: round_trips,
        p50_ns: median.latency_us * 1000.0,
        p99_ns: tail.latency_us * 1000.0,
        middle_ns: median.latency_us * 1000.0,
        floor_ns: 0.0,
        core_share: 1.0,
    };
    Ok(Outcome {
        streams: vec![stream],
        ping_pongs: vec![ping_pong],
        source: needs(&[&bandwidth.source, &median.source]),
        collector: needs(&[&bandwidth.collector, &median.collector]),
        ..Outcome::default()
    })
}

/// What the larger one of two tests needed; its queues are inside of it.
fn needs(tests: &[&Used]) -> Needs {
    let most = tests.iter().map(|used| used.rss_bytes_peak).max();
    Needs { rss_bytes_peak: most.unwrap_or(0), queues: None, network: None }
}

struct Test {
    latency_us: f64,
    messages_per_s: f64,
    source: Used,
    collector: Used,
}

fn warm_up(count: u64) -> u64 {
    count / 10 + 1
}

fn test(job: &Job, name: &str, percentile: u32, count: u64) -> Result<Test> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let server = Running::start(command(job.collector_core, port).stdout(Stdio::null()))?;
    wait_until_listening(port)?;
    let client = Running::start(
        command(job.source_core, port)
            .arg("127.0.0.1")
            .args(["-t", name, "-f", "-v"])
            .args(["-s", &job.bytes.to_string(), "-n", &count.to_string()])
            .args(["-w", &warm_up(count).to_string()])
            .args(["-R", &percentile.to_string()])
            .stdout(Stdio::piped()),
    )?;
    let (text, source) = client.finish().context("the ucx client")?;
    let (_, collector) = server.finish().context("the ucx server")?;
    let (latency_us, messages_per_s) =
        parse(&text).with_context(|| format!("{PROGRAM} printed {text:?}"))?;
    Ok(Test { latency_us, messages_per_s, source, collector })
}

fn command(core: usize, port: u16) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("UCX_TLS", "posix,self").env("UCX_LOG_LEVEL", "error").args([
        "-c",
        &core.to_string(),
        "-p",
        &port.to_string(),
    ]);
    command
}

/// A program that is killed if it is still running when an error ends the test.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self(Some(child)))
    }

    pub(crate) fn finish(mut self) -> Result<(String, Used)> {
        let mut text = String::new();
        if let Some(out) = self.0.as_mut().and_then(|child| child.stdout.as_mut()) {
            out.read_to_string(&mut text)?;
        }
        // Taken out first: once it has been waited for, its number may belong to another process.
        let child = self.0.take().context("waited for twice")?;
        Ok((text, sys::wait_with_usage(&child)?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for the server without connecting: it takes the first connection as its client.
pub(crate) fn wait_until_listening(port: u16) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let wanted = format!(":{port:04X} ");
    while Instant::now() < deadline {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
        let listening = tables.iter().flatten().flat_map(|table| table.lines()).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().is_some_and(|l| format!("{l} ").ends_with(&wanted));
            local && words.nth(1) == Some("0A")
        });
        if listening {
            return Ok(());
        }
        // A program of others tells nobody when it listens: look again.
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("no server listens on port {port} after 10 s")
}

/// Percentile latency in microseconds and overall messages per second of the last line.
fn parse(text: &str) -> Result<(f64, f64)> {
    let mut lines = text.lines().rev().filter(|line| line.contains(','));
    let values = lines.next().context("no values")?;
    let names = lines.next().context("no column names")?;
    let column = |wanted: &str| {
        let at = names
            .split(',')
            .position(|name| name.ends_with(wanted))
            .with_context(|| format!("no column {wanted}"))?;
        let value = values.split(',').nth(at).context("too few values")?;
        value.parse().with_context(|| format!("{value:?} is not a number"))
    };
    Ok((column("percentile_lat")?, column("overall_mr")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_perftest_is_read_by_column_name() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    1000000,0.010,0.014,0.014,4341.63,4341.63,71133302,71133303\n";
        assert_eq!(parse(text).unwrap(), (0.010, 71_133_303.0));
        assert!(parse("nothing").is_err());
    }
}
