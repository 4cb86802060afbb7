//! `catchment-lab measure`: one side of a measurement by the engine of `catchment-perf`, and what it
//! costs the machine on which both sides run.
use crate::table::{LATENCY_ROUNDS, STREAM_BYTES, Sample};
use anyhow::{Context as _, Result, bail, ensure};
use catchment_perf::{Amount, Control, LocalDevice, Plan, Row, Waiting};
use catchment_verbs::RtsAttr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What the passive side prints once the active one may connect.
pub(crate) const READY: &str = "ready";
/// Outstanding requests of a stream.
const OUTSTANDING: u32 = 64;
const SMALL_BYTES: u64 = 64;
/// The unit of processor time in /proc (USER_HZ).
const TICK: Duration = Duration::from_millis(10);
/// How often a thread is woken to take the median.
const WAKE_UPS: usize = 500;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which provider
    provider: String,
    /// Its device
    device: String,
    /// Where the passive side listens
    at: SocketAddr,
    /// Seconds of the stream; without it, this is the passive side
    #[arg(long)]
    seconds: Option<f64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let context = super::end::provider(&args.provider)?.open(&args.device)?;
    let device = LocalDevice {
        rts: RtsAttr { timeout: crate::end::server::ACK_TIMEOUT, ..RtsAttr::default() },
        counters: Box::new(|| [busy_ns(), switches()].map(Result::unwrap_or_default).to_vec()),
        ..LocalDevice::new(context)
    };
    let Some(seconds) = args.seconds else {
        let listener = TcpListener::bind(args.at)?;
        println!("{READY}");
        catchment_perf::serve(&mut Control::over_tcp(listener.accept()?.0)?, &device, &[])?;
        return Ok(());
    };
    let mut control = Control::over_tcp(TcpStream::connect(args.at)?)?;
    println!("{}", serde_json::to_string(&measure(&mut control, &device, seconds)?)?);
    Ok(())
}

fn measure(control: &mut Control, device: &LocalDevice, seconds: f64) -> Result<Sample> {
    let (write_bw, write_lat) = ("write_bw".parse()?, "write_lat".parse()?);
    let bytes = STREAM_BYTES as u64;
    let stream = Plan {
        warm_up: Amount::Seconds(seconds / 10.0),
        ..Plan::new(write_bw, bytes, Amount::Seconds(seconds), OUTSTANDING, Waiting::Sleep)
    };
    let moved = catchment_perf::measure(control, device, &stream)?;
    let trips = Plan {
        // The provider's own thread, or the kernel, drives the queue pair.
        polls: false,
        ..Plan::new(write_lat, SMALL_BYTES, Amount::Iterations(LATENCY_ROUNDS), 1, Waiting::Yield)
    };
    let small = catchment_perf::measure(control, device, &trips)?;
    let (Row::Bandwidth(stream), Row::Latency(latency)) = (moved.row, small.row) else {
        bail!("unexpected rows: {moved:?}, {small:?}");
    };
    let busy_ns = moved.active.counters[0];
    ensure!(busy_ns > 0, "/proc/stat has no line with the times of all processors");
    let switches = small.active.counters[1] + small.passive.counters[1];
    Ok(Sample {
        bytes_per_s: stream.average_bytes_per_s,
        cpu_s_per_gb: busy_ns as f64 / (stream.iterations * bytes) as f64,
        latency_ns: latency.typical_ns,
        switches: switches as f64 / (2 * LATENCY_ROUNDS) as f64,
        wake_up_ns: wake_up()?.as_nanos() as f64,
    })
}

/// Returns how many context switches the threads of this process have made.
fn switches() -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(task?.path().join("status"))?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let counts = lines.filter(|(name, _)| name.ends_with("ctxt_switches"));
        for (_, count) in counts {
            sum += count.trim().parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Measures how long a woken thread takes to run: half of a round trip to it.
fn wake_up() -> Result<Duration> {
    let (ask, asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel();
    let thread = thread::spawn(move || asked.iter().try_for_each(|()| answer.send(())));
    let mut times = Vec::with_capacity(WAKE_UPS);
    for _ in 0..WAKE_UPS {
        let begin = Instant::now();
        ask.send(())?;
        answered.recv()?;
        times.push(begin.elapsed());
    }
    drop(ask);
    let ended = thread.join();
    ensure!(matches!(ended, Ok(Ok(()))), "the woken thread failed: {ended:?}");
    times.sort_unstable();
    Ok(times[WAKE_UPS / 2] / 2)
}

/// Returns the busy time of all processors since boot, the kernel's included: its work for a network
/// is charged to no program.
fn busy_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = busy_ticks(&text).context("/proc/stat has no times of all processors")?;
    Ok((TICK * ticks).as_nanos() as u64)
}

/// Sums the first line without its fourth and fifth numbers: idle and iowait.
fn busy_ticks(stat: &str) -> Option<u32> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u32>> = numbers.split_whitespace().map(|n| n.parse().ok()).collect();
    let ticks = ticks?;
    let is_busy = |at: &usize| !matches!(at, 3 | 4);
    // The times of guests are already included in user and nice.
    Some((0..ticks.len().min(8)).filter(is_busy).map(|at| ticks[at]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_no_work() {
        let stat = "cpu  10 20 30 4000 500 6 7 8 90 90\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(10 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(busy_ticks("intr 5"), None);
    }
}
