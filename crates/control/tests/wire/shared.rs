//! Sources that always have small frames, and share a link that carries no more than one of them can send.
use crate::ends::address;
use crate::samples::ROOT;
use catchment_control::admission::controller_side::{self, ControllerSide};
use catchment_control::admission::source_side::{self, Fallback, LocalId, SourceSide};
use catchment_control::admission::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

const US: u64 = 1000;
const SECOND: u64 = 1_000_000_000;
const MBPS: u64 = 1_000_000;
const FRAME_BYTES: u64 = 64 << 10;
/// Frames of a source that wait or go.
const FRAMES: usize = 8;
/// How long a datagram takes, and how late a source wakes up.
const WAY_NS: u64 = 40 * US;
const LATE_NS: u64 = 60 * US;

/// What happens when.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    ToController(Vec<u8>),
    ToSource(usize, Vec<u8>),
    Sent(LocalId),
}

struct Source {
    side: SourceSide,
    number: u64,
    /// What of each transfer has not arrived.
    left: BTreeMap<u64, u64>,
    wake_ns: u64,
}

pub(crate) struct World {
    controller: ControllerSide,
    control_ns: u64,
    sources: Vec<Source>,
    due: BinaryHeap<Reverse<(u64, u64, usize, Due)>>,
    count: u64,
    now_ns: u64,
    /// Sources always have frames, and whether those that wait share a request.
    always: Option<bool>,
    /// When chunks arrive: from, until, the rate.
    arrivals: Vec<(u64, u64, u64)>,
    /// What the controller has to do: datagrams that come, those that it sends, and times that are due.
    pub(crate) work: [u64; 3],
}

impl World {
    pub(crate) fn new(
        sources: usize,
        (link_bps, device_bps): (u64, u64),
        always: Option<bool>,
    ) -> Self {
        let link = LinkConfig::new(link_bps);
        let config = Config::new(vec![link], vec![vec![LinkId(0)]], Rules::deadline());
        let source = |_| Source {
            side: SourceSide::new(0, source_side::Config::new(Fallback::Stop)),
            number: 0,
            left: BTreeMap::new(),
            wake_ns: 0,
        };
        let mut world = Self {
            controller: ControllerSide::new(0, 1, config).expect("a right configuration"),
            control_ns: u64::MAX,
            sources: (0..sources).map(source).collect(),
            due: BinaryHeap::new(),
            count: 0,
            now_ns: SECOND,
            always,
            arrivals: Vec::new(),
            work: [0; 3],
        };
        for at in 0..sources {
            let devices = vec![DeviceSpec::new(SourceId(0), PathId(0), ClassId(1), device_bps)];
            let (source, root, round_trip_ns) = (at as u32, ROOT, 2 * WAY_NS);
            world.control(controller_side::Input::Register {
                source: SourceId(source),
                root,
                round_trip_ns,
                devices,
            });
            let (term, go_on) = (1, None);
            let told = source_side::Input::Registered { source, term, root, round_trip_ns, go_on };
            world.tell(at, told);
            world.fill(at);
        }
        world
    }

    /// Lets a source have frames.
    fn fill(&mut self, at: usize) {
        let Some(joins) = self.always else { return };
        let waiting = |source: &Source| -> u64 { source.left.values().sum() };
        while waiting(&self.sources[at]) < FRAMES as u64 * FRAME_BYTES {
            let source = &mut self.sources[at];
            let last = LocalId { device: 0, number: source.number };
            if joins && source.side.may_join(last, FRAME_BYTES, 0) {
                *source.left.entry(last.number).or_default() += FRAME_BYTES;
                self.tell(at, source_side::Input::Join { id: last, bytes: FRAME_BYTES });
                continue;
            }
            self.ask(at, FRAME_BYTES);
        }
    }

    /// Lets a source have a frame.
    pub(crate) fn ask(&mut self, at: usize, bytes: u64) {
        let source = &mut self.sources[at];
        source.number += 1;
        let id = LocalId { device: 0, number: source.number };
        source.left.insert(id.number, bytes);
        let (ahead_bytes, age_ns, class) = (0, 0, 1);
        self.tell(at, source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class });
    }

    fn post(&mut self, at_ns: u64, source: usize, due: Due) {
        self.count += 1;
        self.due.push(Reverse((at_ns, self.count, source, due)));
    }

    fn control(&mut self, input: controller_side::Input<'_>) {
        self.controller.handle(self.now_ns, input);
        let mut told = Vec::new();
        loop {
            match self.controller.poll() {
                controller_side::Output::Transmit { to, bytes } => {
                    told.push((usize::from(to.port()), bytes.to_vec()));
                }
                controller_side::Output::Timeout(due_ns) => {
                    self.control_ns = due_ns.unwrap_or(u64::MAX);
                    break;
                }
                wrong @ (controller_side::Output::Refused { .. }
                | controller_side::Output::Forgotten { .. }
                | controller_side::Output::Superseded { .. }
                | controller_side::Output::Working { .. }) => panic!("{wrong:?}"),
            }
        }
        self.work[1] += told.len() as u64;
        for (at, bytes) in told {
            self.post(self.now_ns + WAY_NS, at, Due::ToSource(at, bytes));
        }
    }

    fn tell(&mut self, at: usize, input: source_side::Input<'_>) {
        self.sources[at].side.handle(self.now_ns, input);
        let (mut told, mut chunks) = (Vec::new(), Vec::new());
        loop {
            match self.sources[at].side.poll() {
                source_side::Output::Transmit(bytes) => told.push(bytes.to_vec()),
                source_side::Output::Send { id, bytes, rate_bps, leaves_ns, .. } => {
                    chunks.push((id, bytes, rate_bps, leaves_ns));
                }
                source_side::Output::Timeout(due_ns) => {
                    self.sources[at].wake_ns = due_ns.map_or(u64::MAX, |due_ns| due_ns + LATE_NS);
                    break;
                }
                source_side::Output::Missed { .. } => {}
                wrong @ (source_side::Output::Refused { .. } | source_side::Output::Register) => {
                    panic!("{wrong:?}")
                }
            }
        }
        told.into_iter().for_each(|bytes| {
            self.post(self.now_ns + WAY_NS, at, Due::ToController(bytes));
        });
        for (id, bytes, rate_bps, leaves_ns) in chunks {
            let begins_ns = leaves_ns - bytes * 8 * SECOND / rate_bps;
            assert!(begins_ns + 1 >= self.now_ns, "a chunk begins before it may");
            self.arrivals.push((begins_ns + WAY_NS, leaves_ns + WAY_NS, rate_bps));
            let left = self.sources[at].left.get_mut(&id.number).expect("it is known");
            *left = left.checked_sub(bytes).expect("no more than there was");
            self.post(leaves_ns + 2 * WAY_NS, at, Due::Sent(id));
        }
    }

    /// Lets a time pass.
    pub(crate) fn pass(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        loop {
            let wakes_ns = self.sources.iter().map(|source| source.wake_ns).min();
            let due_ns = self.due.peek().map(|Reverse((at_ns, ..))| *at_ns);
            let next_ns = [wakes_ns, due_ns, Some(self.control_ns)].into_iter().flatten().min();
            self.now_ns = next_ns.unwrap_or(end_ns).max(self.now_ns);
            if self.now_ns >= end_ns {
                return;
            }
            if due_ns == Some(self.now_ns) {
                let Some(Reverse((_, _, at, due))) = self.due.pop() else { return };
                match due {
                    Due::ToController(bytes) => {
                        self.work[0] += 1;
                        let from = SocketAddr::new(address().ip(), at as u16);
                        self.control(controller_side::Input::Datagram { from, bytes: &bytes });
                    }
                    Due::ToSource(at, bytes) => {
                        self.tell(at, source_side::Input::Datagram(&bytes));
                    }
                    Due::Sent(id) => {
                        self.sources[at].left.retain(|_, left| *left > 0);
                        self.tell(at, source_side::Input::Sent { id });
                        self.fill(at);
                    }
                }
            } else if self.control_ns <= self.now_ns {
                self.work[2] += 1;
                self.control(controller_side::Input::Timeout);
            } else {
                for at in 0..self.sources.len() {
                    if self.sources[at].wake_ns <= self.now_ns {
                        self.tell(at, source_side::Input::Timeout);
                    }
                }
            }
        }
    }

    /// Returns which part of a link was used from a time on; no two chunks arrive at once.
    fn used(mut self, from_ns: u64, link_bps: u64) -> f64 {
        self.arrivals.sort_unstable();
        for pair in self.arrivals.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 1, "beyond the link: {pair:?}");
        }
        let counted = self.arrivals.iter().filter(|(begins_ns, ..)| *begins_ns >= from_ns);
        let time_ns: u64 = counted.clone().map(|(from, until, _)| until - from).sum();
        assert!(counted.clone().all(|(.., rate_bps)| *rate_bps == link_bps));
        let first = counted.clone().next().expect("something arrives");
        let last = counted.clone().next_back().expect("something arrives");
        time_ns as f64 / (last.1 - first.0) as f64
    }
}

fn used(sources: usize, link_bps: u64, joins: bool) -> f64 {
    let mut world = World::new(sources, (link_bps, link_bps), Some(joins));
    world.pass(3 * SECOND);
    world.used(2 * SECOND, link_bps)
}

/// A window is longer than its frame by three guards and 0.2 ms, for sources that begin late, and the next one began at
/// its end: 0.5 ms of each frame were lost, which is 0.913 of this link.
#[test]
fn the_next_window_begins_when_the_one_before_has_been_used() {
    let used = used(2, 100 * MBPS, false);
    assert!(used > 0.935, "{used}");
}

/// Each by itself, these frames would use 0.72 of the link.
#[test]
fn small_frames_that_wait_share_a_window() {
    let used = used(3, 400 * MBPS, true);
    assert!(used > 0.95, "{used}");
}
