//! Our stack in user space beside the kernel's, in one guest: how fast, and for how much work.
//!
//! Each has two ends at a virtual cable of its own, with the same MTU. The kernel's is measured twice:
//! over libibverbs by the program that measures ours, and by perftest, the usual tool. An emulated
//! processor distorts absolute numbers, so only ratios are reported, of measurements that alternate in
//! the same guest.
mod page;
mod perftest;
mod profile;

use crate::remote::Start;
use crate::remote::process::{Output, Process};
use crate::vm::guest::Guest;
use crate::vm::shell;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use page::page;

pub(crate) const STREAM_BYTES: usize = 64 << 10;
pub(crate) const STREAM_TIME: Duration = Duration::from_secs(5);

/// WRITEs each way; their median is reported.
pub(crate) const LATENCY_ROUNDS: u64 = 500;

const LIMIT: Duration = Duration::from_secs(60);

/// Two namespaces joined by a cable, as the RDMA devices `rxv0` and `rxv1` are. The kernel's RoCE has
/// the first namespace for itself.
const CABLE: &str = "\
ip netns add left && ip netns add right &&
ip link add w0 mtu 9000 netns left type veth peer name w1 mtu 9000 netns right &&
ip -n left addr add 10.97.0.1/24 dev w0 && ip -n right addr add 10.97.0.2/24 dev w1 &&
ip -n left link set w0 up && ip -n right link set w1 up &&
ip -n left link set lo up && ip -n right link set lo up";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Our RoCE, by our program.
    Ours,
    /// The kernel's, by the same program.
    Kernel,
    /// The kernel's, by perftest.
    Perftest,
}

impl Subject {
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Kernel, Self::Perftest];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) bytes_per_s: f64,
    /// Processor time of the whole guest, both ends and the kernel, for 10^9 bytes.
    pub(crate) cpu_s_per_gb: f64,
    /// One-way latency of a WRITE of 64 bytes.
    pub(crate) latency_ns: f64,
    /// Context switches at both ends for one such WRITE; our program only.
    pub(crate) switches: f64,
    pub(crate) wake_up_ns: f64,
}

pub(crate) type Round = [Sample; 3];

pub(crate) struct Table {
    guest: Guest,
    lab: PathBuf,
}

impl Table {
    pub(crate) fn new(guest: Guest) -> Result<Self> {
        guest.run(&["sh", "-c", CABLE], LIMIT)?;
        let lab = shell::this_program()?;
        Ok(Self { guest, lab })
    }

    pub(crate) fn round(&self) -> Result<Round> {
        let mut round = Round::default();
        for (sample, subject) in round.iter_mut().zip(Subject::ALL) {
            *sample = self.measure(subject).with_context(|| format!("{subject:?}"))?;
        }
        Ok(round)
    }

    fn measure(&self, subject: Subject) -> Result<Sample> {
        if subject == Subject::Perftest {
            return perftest::measure(&self.guest);
        }
        let (_passive, mut active) = self.sides(subject, STREAM_TIME)?;
        let output = active.wait(LIMIT)?.success().context("the active side")?.stdout;
        serde_json::from_str(&output).with_context(|| format!("the active side wrote {output:?}"))
    }

    /// Starts the two sides of a measurement with our program: the passive one, then the active one.
    fn sides(&self, subject: Subject, time: Duration) -> Result<(Process, Process)> {
        // `ip netns exec` also changes mounts, so that perf would not find the program.
        let inside = |name: &str| vec!["nsenter".to_owned(), format!("--net=/run/netns/{name}")];
        let (provider, at, passive, active) = match subject {
            Subject::Ours => {
                let sides = [(inside("right"), "10.97.0.2"), (inside("left"), "10.97.0.1")];
                ("roce", "10.97.0.2:18515", sides[0].clone(), sides[1].clone())
            }
            Subject::Kernel | Subject::Perftest => {
                ("ibverbs", "127.0.0.1:18515", (Vec::new(), "rxv1"), (Vec::new(), "rxv0"))
            }
        };
        let lab = self.lab.display().to_string();
        let side = |(by, device): (Vec<String>, &str), more: &[&str]| {
            let words =
                [&lab, "measure", provider, device, at].into_iter().chain(more.iter().copied());
            let words = by.into_iter().chain(words.map(str::to_owned));
            self.guest.start(&Start::like_here(words), Output::Kept)
        };
        let passive = side(passive, &[])?;
        passive.line("line that it listens", LIMIT)?;
        let seconds = time.as_secs_f64().to_string();
        Ok((passive, side(active, &["--seconds", &seconds])?))
    }
}
