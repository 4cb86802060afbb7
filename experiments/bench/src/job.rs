//! What the coordinating process asks of the two role processes, and what they answer.
use crate::host;
use crate::mechanism::{Mechanism, Provider};
use crate::times::Law;
use catchment_transfer::WaitPolicy;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a role waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wait {
    /// Load again after the processor's pause hint.
    Spin,
    /// Let others run, then load again.
    Yield,
    /// Sleep 50 microseconds, as far as the timer allows, then load again.
    Sleep,
    /// Look, then sleep until the other side rings; where nobody rings, as `yield`.
    Doorbell,
}

const SLEEP: Duration = Duration::from_micros(50);

impl Wait {
    #[inline]
    pub(crate) fn pause(self) {
        match self {
            Self::Spin => std::hint::spin_loop(),
            Self::Yield | Self::Doorbell => rustix::thread::sched_yield(),
            // The paper's way to wait.
            Self::Sleep => std::thread::sleep(SLEEP),
        }
    }

    pub(crate) fn policy(self) -> WaitPolicy {
        match self {
            Self::Spin => WaitPolicy::Spin,
            Self::Yield => WaitPolicy::Yield,
            Self::Sleep => WaitPolicy::Sleep(SLEEP),
            Self::Doorbell => WaitPolicy::Doorbell { spin_polls: 1 },
        }
    }

    /// Returns whether who waits has its core for itself.
    pub(crate) fn polls(self) -> bool {
        matches!(self, Self::Spin | Self::Yield)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Source,
    Collector,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) enum Program {
    /// Blocks as fast as they go, then to and fro.
    #[default]
    Stream,
    /// From giving a block back until the next one is there, with a full ring.
    Sync {
        count: u64,
    },
    /// A look at the status bytes from posting to completion; or from one acknowledgement that a
    /// thread found to the next.
    Look {
        count: u64,
    },
    Cameras(Cameras),
    /// From posting a block until the collector sees it, the ring being empty.
    OneWay {
        count: u64,
    },
    /// Blocks as fast as they go, while the collector keeps one of them for a time.
    Hold(Hold),
    Workers(Workers),
}

/// Blocks that take their time at the source and at one of several workers of the collector.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workers {
    pub(crate) count: u64,
    /// How many process a block each at a time.
    pub(crate) workers: usize,
    pub(crate) law: Law,
    pub(crate) block_ns: u64,
}

/// All cameras begin at a multiple of this, by the clock that they share.
pub(crate) const BEGIN_EVERY_NS: u64 = 2_000_000_000;
/// From being asked to the beginning at least.
pub(crate) const SET_UP_NS: u64 = 300_000_000;

/// Frames that are due at a fixed rate, those of all cameras at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cameras {
    /// Number of the first camera of this pair of processes.
    pub(crate) first: usize,
    pub(crate) cameras: usize,
    /// Whether each has a window of its own on the one queue pair.
    pub(crate) windows: bool,
    pub(crate) frames: u64,
    pub(crate) period_ns: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Frames {
    /// When the first frames were due, by the clock that all processes share.
    pub(crate) begin_ns: u64,
    /// Of each frame: its camera, its number, and when it was seen, after the beginning.
    pub(crate) arrivals: Vec<[u64; 3]>,
    /// CPU time from there to the end: of the source and of the collector.
    pub(crate) cpu_ns: [u64; 2],
    pub(crate) registered_bytes: [u64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) end: u64,
    /// Blocks are counted in bins of this length.
    pub(crate) bin: u64,
}

/// One measurement of one mechanism by a fresh pair of processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) what: Mechanism,
    /// What moves the bytes of those over verbs.
    pub(crate) provider: Provider,
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) source_core: usize,
    pub(crate) collector_core: usize,
    pub(crate) wait: Wait,
    pub(crate) realtime: bool,
    /// Target length of a batch, in milliseconds.
    pub(crate) batch_ms: u64,
    pub(crate) batches: usize,
    pub(crate) unique: String,
    #[serde(default)]
    pub(crate) program: Program,
    /// Where source and collector are, for a network.
    pub(crate) network: Option<[NetworkEnd; 2]>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NetworkEnd {
    pub(crate) netns: String,
    pub(crate) address: IpAddr,
}

impl Job {
    /// Throughput and round trips of blocks of so many bytes, with the cores of this machine.
    pub(crate) fn new(what: Mechanism, (bytes, blocks): (usize, usize), wait: Wait) -> Self {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        Self {
            what,
            provider: Provider::Shm,
            bytes,
            blocks,
            source_core: host::SOURCE_CORE,
            collector_core: host::collector_core(),
            wait,
            realtime: false,
            batch_ms: 0,
            batches: 0,
            unique: format!("{}-{number}", std::process::id()),
            program: Program::Stream,
            network: None,
        }
    }

    /// Blocks of the way back, which only answers use: as many, as long as they fit in 64 MiB.
    pub(crate) fn back_blocks(&self) -> usize {
        if self.blocks * self.bytes <= 64 << 20 { self.blocks } else { self.blocks.min(3) }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) count: u64,
    /// From the first send to the last receive.
    pub(crate) wall_ns: u64,
    pub(crate) source_cpu_ns: u64,
    /// CPU time of the collector process; 0 if there is none.
    pub(crate) collector_cpu_ns: u64,
    /// Part of its core that the polling thread got: the smaller one of the two roles.
    pub(crate) core_share: f64,
    pub(crate) status_reads: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Needs {
    /// Most memory that the process had in use, shared pages included.
    pub(crate) rss_bytes_peak: u64,
    /// What the device keeps for the way from the source to the collector.
    pub(crate) queues: Option<Queues>,
    /// What became of the device's packets; nothing where there are none.
    pub(crate) network: Option<Network>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) lost: u64,
    pub(crate) sent_again: u64,
}

impl std::ops::Add for Network {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { lost: self.lost + other.lost, sent_again: self.sent_again + other.sent_again }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queues {
    pub(crate) queue_pairs: u32,
    pub(crate) completion_queues: u32,
    pub(crate) send_queue_depth: u32,
    pub(crate) receive_queue_depth: u32,
    pub(crate) completion_queue_depth: u32,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StatusRead {
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
}

/// One block to the collector and one back, again and again: half of the round trip.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct PingPong {
    pub(crate) count: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    /// Mean of the middle half of the one-way latencies: finer than the clock.
    pub(crate) middle_ns: f64,
    /// The same of hand-overs of a cache line between these two processes, directly before.
    pub(crate) floor_ns: f64,
    pub(crate) core_share: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    /// The next step would take time: may it begin? The answer is an empty message.
    Ready,
    Found(Box<Outcome>),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) streams: Vec<Stream>,
    pub(crate) ping_pongs: Vec<PingPong>,
    /// Single times of [`Program::Sync`] or [`Program::OneWay`] in nanoseconds, batch by batch; the one
    /// time of each batch of [`Program::Workers`].
    pub(crate) samples: Vec<Vec<f64>>,
    pub(crate) bins: Vec<Vec<u64>>,
    pub(crate) frames: Option<Frames>,
    pub(crate) status_read: Option<StatusRead>,
    pub(crate) source: Needs,
    pub(crate) collector: Needs,
    /// Blocks whose every byte was compared in the untimed twin run.
    pub(crate) verified_blocks: u64,
    /// Batches thrown away because a role did not have its core.
    pub(crate) repeated: usize,
    /// Whether batches had to be kept in which a role did not have its core; nothing where nobody
    /// looked.
    pub(crate) disturbed: Option<bool>,
    /// Smallest part of its core that a polling role had in a batch that counts.
    pub(crate) core_share_min: Option<f64>,
    /// Blocks, round trips or single times that came before what counts, and what counts.
    pub(crate) warm_up: Option<WarmUp>,
    /// Time of the machine's soft interrupts while blocks were streamed.
    pub(crate) softirq_ns: u64,
}

/// Operations that do not count since the machine was to get warm, and those after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WarmUp {
    pub(crate) dropped: u64,
    pub(crate) counted: u64,
}

/// Operations of a warm-up at least.
pub(crate) const WARM_UP_OPERATIONS: u64 = 1000;
/// Of all operations a warm-up has one part of so many at least.
pub(crate) const WARM_UP_PART: u64 = 10;

impl WarmUp {
    pub(crate) fn part(self) -> f64 {
        self.dropped as f64 / (self.dropped + self.counted).max(1) as f64
    }
}

/// Part of its core that a polling role must have had for a batch to count.
pub(crate) const CORE_SHARE_MIN: f64 = 0.97;

impl Outcome {
    /// Returns whether one of these was disturbed, or nothing where nobody looked at one.
    pub(crate) fn disturbed(outcomes: &[Self]) -> Option<bool> {
        if outcomes.iter().any(|one| one.disturbed == Some(true)) {
            return Some(true);
        }
        let all_known = !outcomes.is_empty() && outcomes.iter().all(|one| one.disturbed.is_some());
        all_known.then_some(false)
    }

    pub(crate) fn core_share_min(outcomes: &[Self]) -> Option<f64> {
        outcomes.iter().filter_map(|one| one.core_share_min).reduce(f64::min)
    }

    /// Returns the shortest warm-up of these, by its part of all operations; nothing where nobody counted.
    pub(crate) fn warm_up(outcomes: &[Self]) -> Option<WarmUp> {
        outcomes.iter().filter_map(|one| one.warm_up).min_by(|a, b| a.part().total_cmp(&b.part()))
    }

    /// Packets of both roles in all of these; nothing where there are none.
    pub(crate) fn network(outcomes: &[Self]) -> Option<Network> {
        let both = |one: &Self| Some(one.source.network? + one.collector.network?);
        outcomes.iter().filter_map(both).reduce(std::ops::Add::add)
    }
}
