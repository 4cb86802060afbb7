//! Arguments of `catchment bench`.
use super::{ProviderArgs, values};
use catchment::perf::{Amount, BlockPlan, Figure, PORT, Plan, Test, Waiting};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

const BENCH_HELP: &str = "\
  catchment bench write_bw                           both sides on this machine
  catchment bench write_lat --provider roce          over software RoCE on loopback
  catchment bench server --listen 10.0.0.1:18515 --insecure    on one machine, and on the other:
  catchment bench write_bw --all --connect 10.0.0.1

Tests and columns are those of the perftest programs (ib_write_bw and so on). Latencies of WRITE and
SEND are half of a round trip, those of READ all of it. The control connection is plain TCP.

Exit codes: 0 measured, 1 it broke, 2 wrong arguments, 3 no server, or it refuses.";

/// Measure the path between two machines, or within one, as perftest does
#[derive(Debug, Clone, Args)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: Bench,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Bench {
    /// Wait to be measured, by one client at a time
    Server(ServerArgs),
    /// Bandwidth of RDMA WRITE
    #[command(name = "write_bw")]
    WriteBw(TestArgs),
    /// Latency of RDMA WRITE
    #[command(name = "write_lat")]
    WriteLat(TestArgs),
    /// Bandwidth of RDMA READ
    #[command(name = "read_bw")]
    ReadBw(TestArgs),
    /// Latency of RDMA READ
    #[command(name = "read_lat")]
    ReadLat(TestArgs),
    /// Bandwidth of RDMA WRITE with immediate data
    #[command(name = "write_imm_bw")]
    WriteImmBw(TestArgs),
    /// Latency of RDMA WRITE with immediate data
    #[command(name = "write_imm_lat")]
    WriteImmLat(TestArgs),
    /// Bandwidth of SEND
    #[command(name = "send_bw")]
    SendBw(TestArgs),
    /// Latency of SEND
    #[command(name = "send_lat")]
    SendLat(TestArgs),
    /// Blocks through this program's mechanism, the status bytes
    Transfer(TransferArgs),
}

/// The side that waits.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Where to listen; off loopback only with --insecure
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    pub(crate) listen: SocketAddr,
    /// Listen off loopback: anyone who reaches the address can measure, one at a time
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// End after the first client
    #[arg(long)]
    pub(crate) once: bool,
    /// Write JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

/// The side that measures.
#[derive(Debug, Clone, Args)]
pub(crate) struct Measuring {
    /// The machine where `catchment bench server` runs [default: one is started here]
    #[arg(short, long, value_name = "HOST[:PORT]")]
    pub(crate) connect: Option<ServerAt>,
    /// Requests or blocks of each size
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration")]
    iterations: Option<u64>,
    /// Seconds of each size
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = values::some_seconds, default_value = "1")]
    duration: Duration,
    /// How both sides wait [default: sleep for bandwidth, yield for latency]
    #[arg(long, value_enum)]
    wait: Option<Wait>,
    /// Bandwidth in 10^9 bits per second instead of 2^20 bytes
    #[arg(long)]
    pub(crate) report_gbits: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Write one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// One of the tests.
#[derive(Debug, Clone, Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) measuring: Measuring,
    /// Bytes of a request [default: 64KiB for bandwidth, 64 for latency]
    #[arg(short, long, value_name = "SIZE", value_parser = values::bytes, value_delimiter = ',', conflicts_with = "all")]
    size: Vec<u64>,
    /// All powers of two from 2 bytes to 8 MiB
    #[arg(short, long)]
    all: bool,
    /// Requests outstanding at once, for bandwidth
    #[arg(short = 't', long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=i64::from(Plan::DEPTH_MAX)))]
    tx_depth: u32,
}

const TRANSFER_HELP: &str = "\
  catchment bench transfer --blocks 3,16 -s 256,921600
  catchment bench transfer --mechanism all --latency

The client fills each block from a buffer of its own; the server takes and releases it. Latency is
half of the time of a block to the server and one back.

Sliding windows, rendezvous, the published form of the status bytes and TCP are not part of this
program. In the source tree, `cargo xtask bench mechanisms transfer -m all` measures them
side by side.";

/// Blocks through this program's mechanism.
#[derive(Debug, Clone, Args)]
#[command(after_help = TRANSFER_HELP)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) measuring: Measuring,
    /// How the status bytes move blocks, or `all`: sb (copied), sb-in-place (filled in the server's memory, on one host)
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', default_value = "sb")]
    mechanism: Vec<String>,
    /// Blocks that can be in flight
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "16")]
    blocks: Vec<u32>,
    /// Bytes of a block [default: 64KiB, for latency 64]
    #[arg(short, long, value_name = "SIZE", value_parser = values::bytes, value_delimiter = ',')]
    size: Vec<u64>,
    /// Latency instead of bandwidth
    #[arg(long)]
    latency: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Poll, and yield the core in between
    Yield,
    /// Sleep until a completion arrives
    Sleep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAt {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for ServerAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("a URL, where HOST or HOST:PORT is wanted".to_owned());
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let is_address = bare.parse::<std::net::IpAddr>().is_ok();
        let (host, port) = if is_address || !bare.contains(':') {
            (bare, Some(PORT))
        } else {
            let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
            let inside = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
            (inside.unwrap_or(host), port.parse().ok())
        };
        match port {
            Some(port) if !host.is_empty() && port > 0 => Ok(Self { host: host.to_owned(), port }),
            _ => Err("write HOST or HOST:PORT, an IPv6 address with a port in brackets".to_owned()),
        }
    }
}

impl Measuring {
    pub(crate) fn waiting(&self, figure: Figure) -> Waiting {
        match (self.wait, figure) {
            (Some(Wait::Yield), _) | (None, Figure::Latency) => Waiting::Yield,
            (Some(Wait::Sleep), _) | (None, Figure::Bandwidth) => Waiting::Sleep,
        }
    }

    fn amount(&self) -> Amount {
        self.iterations.map_or(Amount::Seconds(self.duration.as_secs_f64()), Amount::Iterations)
    }
}

fn sizes(given: &[u64], figure: Figure) -> Vec<u64> {
    match (given, figure) {
        ([], Figure::Bandwidth) => vec![64 << 10],
        ([], Figure::Latency) => vec![64],
        (given, _) => given.to_vec(),
    }
}

impl TestArgs {
    /// Returns what is measured, one size after the other.
    pub(crate) fn plans(&self, test: Test) -> Vec<Plan> {
        let sizes = if self.all {
            (1..=23).map(|power| 1 << power).collect()
        } else {
            sizes(&self.size, test.figure)
        };
        let amount = self.measuring.amount();
        let waiting = self.measuring.waiting(test.figure);
        let plan = |bytes| Plan::new(test, bytes, amount, self.tx_depth, waiting);
        sizes.into_iter().map(plan).collect()
    }
}

impl TransferArgs {
    pub(crate) fn figure(&self) -> Figure {
        if self.latency { Figure::Latency } else { Figure::Bandwidth }
    }

    /// Returns whether mechanisms that the path does not support are skipped.
    pub(crate) fn is_about_all(&self) -> bool {
        self.mechanism.iter().any(|name| name == "all")
    }

    /// What is measured, mechanisms of one size side by side. `all` are the names of those there are.
    pub(crate) fn plans(&self, all: &[&str]) -> Vec<BlockPlan> {
        let figure = self.figure();
        let named = self.mechanism.iter().flat_map(|name| match name.as_str() {
            "all" => all.to_vec(),
            name => vec![name],
        });
        let mechanisms: Vec<&str> = named.collect();
        let mut plans = Vec::new();
        for bytes in sizes(&self.size, figure) {
            for blocks in &self.blocks {
                plans.extend(mechanisms.iter().map(|mechanism| BlockPlan {
                    mechanism: (*mechanism).to_owned(),
                    blocks: *blocks,
                    // Too many are refused with the limit.
                    bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                    figure,
                    amount: self.measuring.amount(),
                    waiting: self.measuring.waiting(figure),
                }));
            }
        }
        plans
    }
}

impl Bench {
    pub(crate) fn test(&self) -> Option<(Test, &TestArgs)> {
        let (name, args) = match self {
            Self::Server(_) | Self::Transfer(_) => return None,
            Self::WriteBw(args) => ("write_bw", args),
            Self::WriteLat(args) => ("write_lat", args),
            Self::ReadBw(args) => ("read_bw", args),
            Self::ReadLat(args) => ("read_lat", args),
            Self::WriteImmBw(args) => ("write_imm_bw", args),
            Self::WriteImmLat(args) => ("write_imm_lat", args),
            Self::SendBw(args) => ("send_bw", args),
            Self::SendLat(args) => ("send_lat", args),
        };
        Some((name.parse().ok()?, args))
    }
}

/// The words behind those for `bench` that start a server of its own for one client.
pub(crate) fn own_server(providers: &ProviderArgs) -> Vec<OsString> {
    let fixed = ["server", "--listen", "127.0.0.1:0", "--once", "--json", "--until-stdin-closes"];
    fixed.map(OsString::from).into_iter().chain(providers.words()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, Command};
    use super::*;

    fn bench(words: &[&str]) -> Bench {
        let words: Vec<&str> = ["catchment", "bench"].iter().chain(words).copied().collect();
        let command = Arguments::parse_words(&words).unwrap().command;
        let Command::Bench(args) = command else {
            panic!("{command:?}");
        };
        args.what
    }

    #[test]
    fn tests_have_the_sizes_and_the_waiting_that_fit_them() {
        let plans = |words: &[&str]| {
            let what = bench(words);
            let (test, args) = what.test().unwrap();
            args.plans(test)
        };
        let plan = plans(&["write_bw"])[0];
        assert_eq!((plan.bytes, plan.waiting), (65536, Waiting::Sleep));
        let plan = plans(&["send_lat"])[0];
        assert_eq!((plan.bytes, plan.waiting), (64, Waiting::Yield));
        assert_eq!(plan.amount, Amount::Seconds(1.0));
        let sizes = plans(&["read_bw", "-a"]);
        assert_eq!((sizes.len(), sizes[22].bytes), (23, 8 << 20));
        let some = plans(&["read_lat", "-s", "1,4KiB", "-n", "7", "--wait", "sleep"]);
        assert_eq!(some.iter().map(|p| p.bytes).collect::<Vec<_>>(), [1, 4096]);
        assert_eq!(some[0].amount, Amount::Iterations(7));
    }

    #[test]
    fn mechanisms_sizes_and_blocks_are_combined() {
        let plans = |words: &[&str]| {
            let what = bench(words);
            let Bench::Transfer(args) = what else {
                panic!("{what:?}");
            };
            args.plans(&["sb", "sb-in-place"])
        };
        let plan = plans(&["transfer"]).remove(0);
        assert_eq!((plan.mechanism.as_str(), plan.blocks, plan.bytes), ("sb", 16, 65536));
        let all = plans(&["transfer", "-m", "all", "-b", "3,16", "-s", "64,1KiB", "--latency"]);
        assert_eq!(all.len(), 2 * 4);
        assert_eq!((all[0].figure, all[0].waiting), (Figure::Latency, Waiting::Yield));
        assert_eq!(plans(&["transfer", "-s", "8GiB"])[0].bytes, u32::MAX);
    }

    #[test]
    fn a_server_may_stand_without_a_port() {
        for (text, host, port) in [
            ("10.0.0.1", "10.0.0.1", PORT),
            ("10.0.0.1:7", "10.0.0.1", 7),
            ("lab", "lab", PORT),
            ("lab:7", "lab", 7),
            ("fd00::1", "fd00::1", PORT),
            ("[fd00::1]", "fd00::1", PORT),
            ("[fd00::1]:7", "fd00::1", 7),
        ] {
            let expected = ServerAt { host: host.to_owned(), port };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for wrong in ["", ":7", "lab:", "lab:x", "lab:0", "lab:99999", "http://lab:7"] {
            assert!(wrong.parse::<ServerAt>().is_err(), "{wrong}");
        }
    }
}
