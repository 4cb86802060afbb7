//! `roce`: packets between two network namespaces joined by a veth pair, beside iperf3 and bare UDP.
//!
//! All run in the same pair of namespaces and on the same cores, in turn, round by round; a line is
//! the median over the rounds. Each side is a process of its own. Bare UDP has the packets, the
//! ICRC, the acknowledgements and the one copy of RoCE, and no protocol: no queue pair, no timer, no
//! retransmission. It is what the protocol is measured against.
mod bare_udp;
mod children;
mod iperf3;
mod row;

use crate::host::{self, Environment};
use anyhow::{Context, Result};
use bare_udp::{Job, Side, What};
use catchment_netns::VethPair;
use row::{Row, Sample};
use std::time::Duration;

pub(crate) use bare_udp::role;

/// MTU of the veth pair: what RoCE networks use, room for the path MTU of 4096.
const INTERFACE_MTU: u32 = 9000;
/// Path MTUs compared.
const PATH_MTUS: [usize; 2] = [4096, 1024];
const LATENCY_BYTES: usize = 64;

/// Measure packets between two network namespaces, beside iperf3 and bare UDP
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Two short rounds: under ten seconds
    #[arg(long)]
    quick: bool,
    /// Over IPv4; IPv6 if left out
    #[arg(long)]
    ipv4: bool,
    /// How often each is measured
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measurement of throughput
    #[arg(long)]
    seconds: Option<f64>,
    /// Bytes on their way at most, for bare UDP
    #[arg(long, default_value_t = 2 << 20)]
    window_bytes: usize,
    /// Microseconds that both sides look for packets before they sleep
    #[arg(long, default_value_t = 50)]
    spin_us: u64,
    /// Leave iperf3 out
    #[arg(long)]
    no_iperf3: bool,
}

impl Options {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 2 } else { 7 }).max(1)
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.5 } else { 3.0 })
    }

    /// Cores of the two sides.
    fn cores(&self) -> (usize, usize) {
        (0, 1 % host::cores())
    }

    fn job(&self, what: What, path_mtu: usize) -> Job {
        let (sender_core, receiver_core) = self.cores();
        let ends = if self.ipv4 {
            (VethPair::LEFT_V4, VethPair::RIGHT_V4)
        } else {
            (VethPair::LEFT_V6, VethPair::RIGHT_V6)
        };
        Job {
            side: Side::Sender,
            what,
            path_mtu,
            seconds: self.seconds(),
            window_bytes: self.window_bytes,
            spin: Duration::from_micros(self.spin_us),
            sender: ends.0,
            receiver: ends.1,
            sender_core,
            receiver_core,
            netns: String::new(),
        }
    }
}

/// What is measured in each round.
enum Task {
    Iperf3,
    BareUdp(What, usize),
}

impl Task {
    fn measure(&self, pair: &VethPair, options: &Options) -> Result<Sample> {
        match self {
            Task::Iperf3 => {
                let job = options.job(What::Stream, PATH_MTUS[0]);
                iperf3::measure(pair, &job).context("iperf3")
            }
            Task::BareUdp(what, path_mtu) => {
                bare_udp::measure(pair, &options.job(*what, *path_mtu)).context("bare UDP")
            }
        }
    }

    fn row(&self, samples: &[Sample]) -> Row {
        match self {
            Task::Iperf3 => Row::of("iperf3", "stream", None, iperf3::CHUNK_BYTES, samples),
            Task::BareUdp(what, path_mtu) => {
                let bytes = match what {
                    What::Stream => bare_udp::MESSAGE_BYTES,
                    What::PingPong => LATENCY_BYTES,
                };
                Row::of("bare-udp", "write", Some(*path_mtu), bytes, samples)
            }
        }
    }
}

/// Measures all and prints it.
///
/// # Errors
/// Without the right to make namespaces; without iperf3, unless it is left out; if a side fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let environment = Environment::detect();
    let mut tasks = Vec::new();
    if !options.no_iperf3 {
        iperf3::find()?;
        tasks.push(Task::Iperf3);
    }
    tasks.extend(PATH_MTUS.map(|mtu| Task::BareUdp(What::Stream, mtu)));
    tasks.push(Task::BareUdp(What::PingPong, PATH_MTUS[0]));
    let pair = VethPair::new(INTERFACE_MTU)?;
    let mut samples: Vec<Vec<Sample>> = tasks.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds() {
        for (task, samples) in tasks.iter().zip(&mut samples) {
            samples.push(task.measure(&pair, options)?);
        }
    }
    let rows: Vec<Row> = tasks.iter().zip(&samples).map(|(t, s)| t.row(s)).collect();
    row::print(&rows, &environment, options.json)
}
