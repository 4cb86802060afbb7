//! `rate`: whether queue pairs keep the rate that they are asked for.
//!
//! The sender and the owner of the memory are two processes. The sender keeps its send queue full of
//! WRITEs; the rate is what completed between two completions, with the headers of the packets where
//! there are packets. The burst that a fresh limit allows goes before.
use crate::output;
use anyhow::{Context as _, Result, ensure};
use catchment_perf::ChildProcess;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{
    Access, Completion, Context, Cq, Endpoint, Flow, Mr, Payload, Pd, Provider, Qp, QpInit,
    RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Sge,
};
use serde::Serialize;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
const SHORT_BYTES: u32 = 4096;
const LONG_BYTES: u32 = 64 << 10;
const DEPTH: u64 = 32;

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

/// A queue pair with memory of its own.
struct End {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    context: Arc<dyn Context>,
    _pd: Arc<dyn Pd>,
}

impl End {
    fn new(provider: &str, is_target: bool) -> Result<Self> {
        let context = open(provider, is_target)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(2 * DEPTH as u32, None)?;
        let strict = context.caps().strict_capacity;
        let qp = pd.create_qp(QpInit { strict, ..QpInit::rc(&cq, DEPTH as u32, 0) })?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = pd.alloc_mr(LONG_BYTES as usize, access)?;
        let _pd = pd;
        Ok(Self { qp, cq, mr, context, _pd })
    }

    fn connect(&mut self, peer: Endpoint) -> Result<()> {
        Ok(self.qp.connect(Access::REMOTE_WRITE, RtrAttr::new(peer), RtsAttr::default())?)
    }
}

/// The second process: owns the memory until its standard input ends.
pub(crate) fn target(provider: &str) -> Result<()> {
    let mut end = End::new(provider, true)?;
    let (endpoint, mr) = (end.qp.endpoint(), &end.mr);
    output::line(&format!("{endpoint} {} {}", mr.addr(), mr.rkey()))?;
    let mut lines = std::io::stdin().lines();
    let peer = lines.next().context("no peer")??;
    end.connect(peer.parse()?)?;
    output::line("connected")?;
    lines.next();
    Ok(())
}

/// The sender, and the process of the target.
struct Pair {
    provider: &'static str,
    end: End,
    target: RemoteAddr,
    _process: ChildProcess,
    posted: u64,
    done: u64,
}

impl Pair {
    fn connect(provider: &'static str) -> Result<Self> {
        let mut end = End::new(provider, false)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["rate-target", provider]);
        let mut process = ChildProcess::start("the target", command.stdin(Stdio::piped()))?;
        let card = process.wait_for(|_| true)?;
        let mut words = card.trim().split(' ');
        let mut word = || words.next().context("the first line of the target is incomplete");
        let peer: Endpoint = word()?.parse()?;
        let target = RemoteAddr { addr: word()?.parse()?, rkey: word()?.parse()? };
        process.say(&end.qp.endpoint().to_string())?;
        end.connect(peer)?;
        process.wait_for(|line| line == "connected")?;
        Ok(Self { provider, end, target, _process: process, posted: 0, done: 0 })
    }

    fn measure(&mut self, asked_bps: Option<u64>, seconds: f64) -> Result<Row> {
        self.drain()?;
        self.end.qp.set_rate(asked_bps)?;
        let slow = asked_bps.is_some_and(|bps| (bps as f64) < SLOW_BPS);
        let bytes = if slow { SHORT_BYTES } else { LONG_BYTES };
        let burst = asked_bps.map_or(0, |bps| Flow::of_rate(bps).burst_bytes);
        let warm_up = burst / u64::from(bytes) + 4;
        self.send(bytes, |sent, _| sent > warm_up)?;
        let least = Duration::from_secs_f64(seconds);
        let enough = move |sent: u64, after: Duration| after >= least && sent >= LEAST_PACKETS;
        let (sent, elapsed) = self.send(bytes, enough)?;
        let packets = sent * self.packets_of(bytes);
        let payload_bits = 8.0 * sent as f64 * f64::from(bytes);
        let header_bits = 8.0 * packets as f64 * f64::from(self.overhead_bytes());
        let seconds = elapsed.as_secs_f64();
        let measured_bps = (payload_bits + header_bits) / seconds;
        let error_percent = asked_bps.map(|bps| 100.0 * (measured_bps / bps as f64 - 1.0));
        Ok(Row {
            what: "rate",
            provider: self.provider,
            asked_bps,
            measured_bps,
            payload_bps: payload_bits / seconds,
            error_percent,
            seconds,
            packets,
            held: error_percent.is_none_or(|error| error.abs() <= LIMIT_PERCENT),
        })
    }

    /// Sends until it is enough, by the number of completions since the first one and the time
    /// since then; what is outstanding stays so.
    fn send(
        &mut self,
        bytes: u32,
        enough: impl Fn(u64, Duration) -> bool,
    ) -> Result<(u64, Duration)> {
        let mut start: Option<(Instant, u64)> = None;
        loop {
            while self.posted - self.done < DEPTH {
                self.post(bytes)?;
            }
            if self.poll()? == 0 {
                continue;
            }
            let (since, first) = *start.get_or_insert_with(|| (Instant::now(), self.done));
            let (sent, elapsed) = (self.done - first, since.elapsed());
            if enough(sent, elapsed) {
                return Ok((sent, elapsed));
            }
        }
    }

    fn drain(&mut self) -> Result<()> {
        while self.done < self.posted {
            self.poll()?;
        }
        Ok(())
    }

    /// Takes completions, all of which must be successes; how many.
    fn poll(&mut self) -> Result<u64> {
        let mut out = [Completion::EMPTY; DEPTH as usize];
        let taken = self.end.cq.poll(&mut out)?;
        for done in &out[..taken] {
            done.result.map_err(|failure| failure.status)?;
        }
        if taken == 0 {
            std::thread::yield_now();
        }
        self.done += taken as u64;
        Ok(taken as u64)
    }

    fn post(&mut self, bytes: u32) -> Result<()> {
        let sges = [Sge { addr: self.end.mr.addr(), bytes, lkey: self.end.mr.lkey() }];
        let op = SendOp::Write(self.target);
        let wr = SendWr::new(self.posted, op, Payload::Sges(&sges));
        self.end.qp.post_send(&[wr])?;
        self.posted += 1;
        Ok(())
    }

    /// Packets of a WRITE; one where there are none.
    fn packets_of(&self, bytes: u32) -> u64 {
        let mtu = self.end.context.caps().path_mtu.unwrap_or(bytes);
        bytes.div_ceil(mtu).into()
    }

    fn overhead_bytes(&self) -> u32 {
        self.end.context.caps().rate.map_or(0, |range| range.packet_overhead_bytes)
    }
}
