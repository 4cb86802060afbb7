//! `rate`: whether queue pairs keep the rate that they are asked for.
//!
//! The measuring engine keeps the send queue full of WRITEs to the memory of another process; the rate is
//! what completed, with the headers of the packets where there are packets. The burst that a fresh limit
//! allows is the warm-up.
use crate::output;
use anyhow::{Context as _, Result, bail, ensure};
use catchment_perf::{Amount, Bandwidth, ChildProcess, Control, LocalDevice, Plan, Waiting};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Flow, Provider, RateLimit};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A measured rate may differ from the one asked for by this much.
const LIMIT_PERCENT: f64 = 2.0;
/// Rates asked for, bits a second, as far as they are below [`LARGEST_SHARE`].
const FIXED: [f64; 4] = [1e6, 1e7, 1e8, 1e9];
/// And these shares of the rate without a limit.
const SHARES: [f64; 3] = [0.2, 0.5, LARGEST_SHARE];
const LARGEST_SHARE: f64 = 0.8;
/// Packets that a measurement has at least, beside its time.
const LEAST_PACKETS: u64 = 100;
/// WRITEs of rates below this are of one packet.
const SLOW_BPS: f64 = 2e8;
const SHORT_BYTES: u64 = 4096;
const LONG_BYTES: u64 = 64 << 10;
const DEPTH: u32 = 32;

/// Measure whether queue pairs keep the rate that they are asked for
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// One provider only: shm or roce
    #[arg(long)]
    only: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    provider: &'static str,
    /// Bits a second asked for; none is the rate without a limit.
    asked_bps: Option<u64>,
    measured_bps: f64,
    payload_bps: f64,
    /// By how much the measured rate is above the one asked for.
    error_percent: Option<f64>,
    seconds: f64,
    packets: u64,
    held: bool,
}

const TABLE_HEAD: &str =
    "provider      asked Mbit/s   measured Mbit/s    payload Mbit/s   error %  seconds  packets";

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.seconds >= 1.0, "a measurement takes at least 1 second");
    if !options.json {
        output::line(TABLE_HEAD)?;
    }
    let mut missed = 0;
    for provider in ["shm", "roce"] {
        if options.only.as_deref().is_none_or(|only| only == provider) {
            missed += measure_provider(provider, options)?;
        }
    }
    ensure!(missed == 0, "{missed} rates differ by more than {LIMIT_PERCENT} %");
    Ok(())
}

fn measure_provider(provider: &'static str, options: &Options) -> Result<usize> {
    let mut pair = Pair::connect(provider)?;
    let free = pair.measure(None, options.seconds)?;
    output::either(options.json, &free, Row::line)?;
    let fixed = FIXED.into_iter();
    let most = free.measured_bps * LARGEST_SHARE;
    let shares = SHARES.map(|share| free.measured_bps * share);
    let mut missed = 0;
    for asked in fixed.filter(|rate| *rate < most).chain(shares) {
        let row = pair.measure(Some(asked as u64), options.seconds)?;
        output::either(options.json, &row, Row::line)?;
        missed += usize::from(!row.held);
    }
    Ok(missed)
}

impl Row {
    fn line(&self) -> String {
        let asked = self.asked_bps.map_or("-".to_owned(), |bps| mega(bps as f64));
        let error = self.error_percent.map_or("-".to_owned(), |e| format!("{e:+.2}"));
        format!(
            "{:<8} {asked:>17} {:>17} {:>17} {error:>9} {:>8.2} {:>8}",
            self.provider,
            mega(self.measured_bps),
            mega(self.payload_bps),
            self.seconds,
            self.packets
        )
    }
}

fn mega(bps: f64) -> String {
    format!("{:.2}", bps / 1e6)
}

fn open(provider: &str, is_target: bool) -> Result<Arc<dyn Context>> {
    let name = match (provider, is_target) {
        ("shm", _) => "shm0",
        (_, false) => "127.0.0.1:0",
        (_, true) => "127.0.0.2:0",
    };
    let provider: Box<dyn Provider> = match provider {
        "shm" => Box::new(ShmProvider::new()),
        _ => Box::new(RoceProvider::new(RoceOptions::default())),
    };
    Ok(provider.open(name)?)
}

/// The second process: owns the memory until the sender leaves.
pub(crate) fn target(provider: &str) -> Result<()> {
    serve_at(open(provider, true)?, Ipv4Addr::LOCALHOST.into())
}

/// Says where it listens, and does the passive side's part of what one other process measures.
pub(crate) fn serve_at(context: Arc<dyn Context>, address: IpAddr) -> Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    output::line(&listener.local_addr()?.to_string())?;
    let mut control = Control::over_tcp(listener.accept()?.0)?;
    catchment_perf::serve(&mut control, &LocalDevice::new(context), &[])?;
    Ok(())
}

/// Waits until a target says where it listens.
pub(crate) fn address(target: &mut ChildProcess) -> Result<SocketAddr> {
    let at = target.wait_for(|_| true)?;
    at.trim().parse().with_context(|| format!("address {at:?}"))
}

/// The sender, and the process of the target.
pub(crate) struct Pair {
    provider: &'static str,
    device: LocalDevice,
    control: Control,
    _target: ChildProcess,
}

impl Pair {
    pub(crate) fn connect(provider: &'static str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["rate-target", provider]).stdin(Stdio::null());
        let mut target = ChildProcess::start("the target", &mut command)?;
        let control = Control::over_tcp(TcpStream::connect(address(&mut target)?)?)?;
        let device = LocalDevice::new(open(provider, false)?);
        Ok(Self { provider, device, control, _target: target })
    }

    fn measure(&mut self, asked_bps: Option<u64>, seconds: f64) -> Result<Row> {
        let slow = asked_bps.is_some_and(|bps| (bps as f64) < SLOW_BPS);
        let size = self.size(if slow { SHORT_BYTES } else { LONG_BYTES });
        let least_bits = (LEAST_PACKETS.div_ceil(size.packets) * size.bits) as f64;
        let seconds = asked_bps.map_or(seconds, |bps| seconds.max(least_bits / bps as f64));
        let row = self.send([asked_bps, None], size, Amount::Seconds(seconds))?;
        let measured_bps = row.messages_per_s * size.bits as f64;
        let error_percent = asked_bps.map(|bps| 100.0 * (measured_bps / bps as f64 - 1.0));
        Ok(Row {
            what: "rate",
            provider: self.provider,
            asked_bps,
            measured_bps,
            payload_bps: row.average_bytes_per_s * 8.0,
            error_percent,
            seconds: row.iterations as f64 / row.messages_per_s,
            packets: row.iterations * size.packets,
            held: error_percent.is_none_or(|error| error.abs() <= LIMIT_PERCENT),
        })
    }

    /// Sends so many bytes at two rates by turns; returns the rate that came of it, headers included. In short WRITEs: a
    /// rate is changed between two.
    pub(crate) fn transfer(&mut self, rates_bps: [u64; 2], bytes: u64) -> Result<f64> {
        let size = self.size(SHORT_BYTES);
        let row = self.send(rates_bps.map(Some), size, Amount::Iterations(bytes / size.bytes))?;
        Ok(row.messages_per_s * size.bits as f64)
    }

    fn size(&self, bytes: u64) -> Size {
        let caps = self.device.context.caps();
        let overhead_bytes = caps.rate.map_or(0, |range| u64::from(range.packet_overhead_bytes));
        // One packet where there are none.
        let packets = bytes.div_ceil(caps.path_mtu.map_or(bytes, u64::from));
        Size { bytes, packets, bits: 8 * (bytes + packets * overhead_bytes) }
    }

    /// Sends once the burst is over that a fresh limit allows.
    fn send(&mut self, rates: [Option<u64>; 2], size: Size, amount: Amount) -> Result<Bandwidth> {
        let [rate_bps, second_rate_bps] = rates;
        let burst_bytes = |bps: u64| Flow::new(RateLimit::new(bps)).burst_bytes;
        let burst_bytes = rates.into_iter().flatten().map(burst_bytes).max().unwrap_or(0);
        let plan = Plan {
            warm_up: Amount::Iterations(burst_bytes / size.bytes + 4),
            batch: 1,
            places: 1,
            rate_bps,
            second_rate_bps,
            ..Plan::new("write_bw".parse()?, size.bytes, amount, DEPTH, Waiting::Yield)
        };
        let measured = catchment_perf::measure(&mut self.control, &self.device, &plan)?;
        let catchment_perf::Row::Bandwidth(row) = measured.row else {
            bail!("the engine measured something else: {measured:?}");
        };
        Ok(row)
    }
}

/// A WRITE.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    packets: u64,
    /// With the headers of its packets.
    bits: u64,
}
