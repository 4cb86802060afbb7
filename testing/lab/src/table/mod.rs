//! Our stack in user space beside the kernel's, in one guest: how fast, and for how much work.
//!
//! Both have two ends at a virtual cable of their own, with the same MTU. The kernel's is measured
//! twice: by the program that measures ours, over libibverbs, and by perftest, which is what the
//! field uses. An emulated processor is slow in its own way, so only ratios are told, of what took
//! turns in the same guest.
mod page;
mod perftest;
mod profile;

use crate::end::client::End;
use crate::end::{Kind, Place};
use crate::remote::Start;
use crate::vm::guest::Guest;
use crate::vm::shell;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use page::page;

pub(crate) const STREAM_BYTES: usize = 64 << 10;
pub(crate) const STREAM_TIME: Duration = Duration::from_secs(5);

/// WRITEs to and fro of which the median counts.
pub(crate) const LATENCY_ROUNDS: u64 = 500;

const LIMIT: Duration = Duration::from_secs(60);

/// Two namespaces at a cable, as the RDMA devices `rxv0` and `rxv1` have one. The kernel's RoCE has
/// the first namespace for itself.
const CABLE: &str = "\
ip netns add left && ip netns add right &&
ip link add w0 mtu 9000 netns left type veth peer name w1 mtu 9000 netns right &&
ip -n left addr add 10.97.0.1/24 dev w0 && ip -n right addr add 10.97.0.2/24 dev w1 &&
ip -n left link set w0 up && ip -n right link set w1 up &&
ip -n left link set lo up && ip -n right link set lo up";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Our RoCE, by our program.
    Ours,
    /// The kernel's, by the same program.
    Kernel,
    /// The kernel's, by perftest.
    Perftest,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Kernel, Self::Perftest];
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) bytes_per_s: f64,
    /// Work of the whole guest, both ends and the kernel, for 10^9 bytes of it.
    pub(crate) cpu_s_per_gb: f64,
    /// One way, of 64 bytes.
    pub(crate) latency_ns: f64,
    /// Switches of threads at both ends for one of those; of our program.
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
        for (sample, way) in round.iter_mut().zip(Way::ALL) {
            *sample = self.measure(way).with_context(|| format!("{way:?}"))?;
        }
        Ok(round)
    }

    fn measure(&self, way: Way) -> Result<Sample> {
        match way {
            Way::Perftest => perftest::measure(&self.guest),
            Way::Ours | Way::Kernel => measure(self.ends(way)?),
        }
    }

    fn ends(&self, way: Way) -> Result<[End; 2]> {
        // `ip netns exec` would change the file systems too, and perf would find no program.
        let inside = |name: &str| ["nsenter".to_owned(), format!("--net=/run/netns/{name}")];
        Ok(match way {
            Way::Ours => [
                self.end(&inside("left"), "roce", "10.97.0.1")?,
                self.end(&inside("right"), "roce", "10.97.0.2")?,
            ],
            Way::Kernel | Way::Perftest => {
                [self.end(&[], "ibverbs", "rxv0")?, self.end(&[], "ibverbs", "rxv1")?]
            }
        })
    }

    fn end(&self, by: &[String], provider: &str, device: &str) -> Result<End> {
        let lab = self.lab.display().to_string();
        let program = [&lab, "end", provider, device].map(str::to_owned);
        let words = by.iter().cloned().chain(program);
        let start = Start::like_here(words).listening();
        let process = self.guest.start(&start, crate::remote::process::Output::Kept)?;
        let mut end = End::new(process);
        let made = end.make(Kind::Connection);
        made.with_context(|| format!("the end at {device}"))?;
        Ok(end)
    }
}

fn measure([mut left, mut right]: [End; 2]) -> Result<Sample> {
    let place = connect(&mut left, &mut right)?;
    let moved = left.stream(place, STREAM_BYTES, STREAM_TIME)?;
    // The memory of both still has the zeros that it was made with, and the stream has moved.
    let trips = left.ping_pong(&mut right, LATENCY_ROUNDS)?;
    let wake_up = left.wake_up()?;
    Ok(Sample {
        bytes_per_s: moved.bytes as f64 * 1e9 / moved.wall_ns as f64,
        cpu_s_per_gb: moved.busy_ns as f64 / moved.bytes as f64,
        latency_ns: trips.write_ns as f64,
        switches: trips.switches as f64 / (2 * LATENCY_ROUNDS) as f64,
        wake_up_ns: wake_up.as_nanos() as f64,
    })
}

fn connect(left: &mut End, right: &mut End) -> Result<Place> {
    right.connect(&left.card)?;
    left.connect(&right.card)?;
    let place = right.place(0);
    // A first, short one: memory is there and caches are warm.
    left.stream(place, STREAM_BYTES, STREAM_TIME / 10)?;
    Ok(place)
}
