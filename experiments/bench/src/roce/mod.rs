//! `roce`: packets between two network namespaces joined by a veth pair, beside iperf3 and bare UDP.
//!
//! All run in the same pair of namespaces and on the same cores, in turn, round by round; a line is
//! the median over the rounds. Each side is a process of its own. Bare UDP has the packets, the
//! ICRC, the acknowledgements and the one copy of RoCE, and no protocol: no queue pair, no timer, no
//! retransmission. It is what the protocol is measured against.
mod bare_udp;
mod goals;
pub(crate) mod iperf3;
mod job;
mod ours;
mod page;
mod row;
mod tcp;

use crate::host::Environment;
use crate::{host, sys};
use anyhow::{Context, Result};
use catchment_netns::{Namespace, VethPair};
pub(crate) use goals::beside;
use job::{Job, MESSAGE_BYTES, Op, SMALL_BYTES, Side, What};
use row::{Cell, Row, Sample};
use std::path::PathBuf;
use std::time::Duration;

/// MTU of the veth pair: what RoCE networks use, room for the path MTU of 4096.
const INTERFACE_MTU: u32 = 9000;
const PATH_MTUS: [usize; 2] = [4096, 1024];

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
    /// Measure only what has this in its name, such as ours, write, 1024; all of several
    #[arg(long)]
    only: Vec<String>,
    /// Write a page with the results to this file
    #[arg(long)]
    markdown: Option<PathBuf>,
}

impl Options {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 2 } else { 7 }).max(1)
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.5 } else { 3.0 })
    }

    fn cores(&self) -> (usize, usize) {
        (host::SOURCE_CORE, host::collector_core())
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

#[derive(Clone, Copy)]
enum Task {
    Iperf3,
    Packets(What, usize),
}

impl Task {
    /// All, in the order of a round: what is compared runs close together.
    fn all() -> Vec<Self> {
        let [large, small] = PATH_MTUS;
        let ours = |op, path_mtu| Self::Packets(What::Ours(op), path_mtu);
        vec![
            ours(Op::Write, large),
            Self::Packets(What::Tcp, large),
            ours(Op::WriteAgain, large),
            Self::Iperf3,
            Self::Packets(What::BareStream, large),
            ours(Op::Write, small),
            Self::Packets(What::BareStream, small),
            ours(Op::Read, large),
            ours(Op::Send, large),
            ours(Op::Messages, large),
            ours(Op::PingPong { inline: false }, large),
            Self::Packets(What::BarePingPong { threads: true }, large),
            Self::Packets(What::BarePingPong { threads: false }, large),
            ours(Op::PingPong { inline: true }, large),
        ]
    }

    fn measure(self, pair: &VethPair, options: &Options) -> Result<Sample> {
        match self {
            Self::Iperf3 => iperf3::measure(pair, &options.job(What::BareStream, PATH_MTUS[0])),
            Self::Packets(what, path_mtu) => {
                let job = options.job(what, path_mtu);
                match what {
                    What::BareStream | What::BarePingPong { .. } => bare_udp::measure(pair, &job),
                    What::Tcp => tcp::measure(pair, &job),
                    What::Ours(_) => ours::measure(pair, &job),
                }
            }
        }
    }

    fn cell(self) -> Cell {
        let Self::Packets(what, path_mtu) = self else {
            return Cell {
                what: "iperf3",
                op: "stream",
                polling: None,
                path_mtu: None,
                bytes: iperf3::CHUNK_BYTES,
            };
        };
        let (name, op, bytes) = match what {
            What::Tcp => ("tcp", "stream", MESSAGE_BYTES),
            What::BareStream => ("bare-udp", "write", MESSAGE_BYTES),
            What::BarePingPong { .. } => ("bare-udp", "write-latency", SMALL_BYTES),
            What::Ours(Op::Write) => ("ours", "write", MESSAGE_BYTES),
            What::Ours(Op::WriteAgain) => ("ours", "write-again", iperf3::CHUNK_BYTES),
            What::Ours(Op::Read) => ("ours", "read", MESSAGE_BYTES),
            What::Ours(Op::Send) => ("ours", "send", MESSAGE_BYTES),
            What::Ours(Op::Messages) => ("ours", "write-rate", SMALL_BYTES),
            What::Ours(Op::PingPong { .. }) => ("ours", "write-latency", SMALL_BYTES),
        };
        let polling = match what {
            What::Ours(Op::PingPong { inline: true }) => Some("inline polling"),
            What::Ours(Op::PingPong { inline: false }) => Some("engine thread"),
            What::BarePingPong { threads: true } => Some("receiving thread"),
            What::BarePingPong { threads: false } => Some("inline polling"),
            What::Ours(_) | What::BareStream | What::Tcp => None,
        };
        Cell { what: name, op, polling, path_mtu: (what != What::Tcp).then_some(path_mtu), bytes }
    }

    /// Returns whether all words of `--only` fit.
    fn is_wanted(self, options: &Options) -> bool {
        let cell = self.cell();
        let name = format!("{} {} {:?} {:?}", cell.what, cell.op, cell.path_mtu, cell.polling);
        options.only.iter().all(|word| name.contains(word))
            && !(options.no_iperf3 && matches!(self, Self::Iperf3))
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let environment = Environment::detect();
    let mut tasks = Task::all();
    tasks.retain(|task| task.is_wanted(options));
    if tasks.iter().any(|task| matches!(task, Task::Iperf3)) && !iperf3::is_installed() {
        eprintln!("no row for iperf3: it is not installed (apt-get install iperf3)");
        tasks.retain(|task| !matches!(task, Task::Iperf3));
    }
    let pair = VethPair::new(INTERFACE_MTU)?;
    let rows = rows(&tasks, &pair, options)?;
    let goals = goals::judge(&rows);
    page::print(&environment, &rows, &goals, options.json)?;
    match &options.markdown {
        Some(path) => page::write(path, &environment, &rows, &goals),
        None => Ok(()),
    }
}

/// Measures in short rounds what [`beside`] compares.
pub(crate) fn measure_beside(rounds: usize, seconds: f64) -> Result<Vec<Row>> {
    let options = Options {
        json: true,
        quick: true,
        ipv4: false,
        rounds: Some(rounds),
        seconds: Some(seconds),
        window_bytes: 2 << 20,
        spin_us: 50,
        no_iperf3: true,
        only: Vec::new(),
        markdown: None,
    };
    let large = PATH_MTUS[0];
    let tasks = [
        What::Ours(Op::Write),
        What::Tcp,
        What::Ours(Op::PingPong { inline: true }),
        What::BarePingPong { threads: false },
    ];
    let tasks = tasks.map(|what| Task::Packets(what, large));
    let pair = VethPair::new(INTERFACE_MTU)?;
    // What fails leaves the others.
    let rows_of = |two: &[Task]| {
        rows(two, &pair, &options).unwrap_or_else(|error| {
            eprintln!("\rnot measured: {error:#}");
            Vec::new()
        })
    };
    Ok(tasks.chunks(2).flat_map(rows_of).collect())
}

/// Measures in turn, round by round.
fn rows(tasks: &[Task], pair: &VethPair, options: &Options) -> Result<Vec<Row>> {
    let mut samples: Vec<Vec<Sample>> = tasks.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds() {
        for (task, samples) in tasks.iter().zip(&mut samples) {
            let name = || format!("{:?}", task.cell());
            samples.push(task.measure(pair, options).with_context(name)?);
        }
    }
    let rows = tasks.iter().zip(samples);
    Ok(rows.map(|(task, samples)| Row::of(task.cell(), samples)).collect())
}

pub(crate) fn role(job: &Job) -> Result<()> {
    sys::settle(match job.side {
        Side::Sender => job.sender_core,
        Side::Receiver => job.receiver_core,
    })?;
    Namespace::open(&job.netns)?.enter()?;
    match job.what {
        What::BareStream | What::BarePingPong { .. } => bare_udp::role(job),
        What::Tcp => tcp::role(job),
        What::Ours(op) => ours::role(job, op),
    }
}
