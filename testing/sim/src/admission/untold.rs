//! A link that carries less than it is said to, and nobody tells the controller: losses do.
//!
//! Both ends of the admission protocol as shipped, over packets of the shipped queue pairs (selective repeat) and a
//! queue that drops. A tenth of the rates of the other rows, as each packet is simulated.
use super::account::Ledger;
use super::packet::{Carry as _, Network, Notice, Plan, Transport};
use super::trace::FRAME_BYTES;
use catchment_control::admission::controller_side::{self, ControllerSide};
use catchment_control::admission::source_side::{self, Fallback, LocalId, SourceSide};
use catchment_control::admission::{
    ClassId, Config, DeviceSpec, LinkConfig, LinkId, PathId, SourceId,
};
use catchment_roce::Recovery;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

pub(super) const SCALE: u64 = 10;
const SOURCES: u32 = 3;
/// Transfers of a source that wait or go, of fifteen frames each.
const AHEAD: usize = 2;
const TRANSFER_BYTES: u64 = 15 * FRAME_BYTES / SCALE;
const MS: u64 = 1_000_000;
/// Of the capacity, to call it used.
const USED: f64 = 0.97;

/// For so long, on average.
const MEAN_NS: u64 = 100 * MS;

/// What happens when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) link_bps: u64,
    pub(super) rtt_ns: u64,
    pub(super) chunk_bytes: u64,
    pub(super) halved_ns: u64,
    pub(super) back_ns: u64,
    /// Nothing more is asked for.
    pub(super) end_ns: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What was granted, from each time on.
    pub(super) granted: Vec<(u64, u64)>,
    /// Bytes that had arrived, at each time.
    pub(super) arrived: Vec<(u64, u64)>,
    pub(super) frames_lost: u64,
    pub(super) packets_dropped: u64,
    pub(super) lowered: u64,
    pub(super) ledger: Ledger,
}

impl Found {
    /// Returns when what was granted first fitted the halved link.
    pub(super) fn fits_ns(&self, course: &Course) -> Option<u64> {
        let fits = |(at_ns, bps): &&(u64, u64)| {
            *at_ns >= course.halved_ns && *bps > 0 && *bps <= course.link_bps / 2
        };
        self.granted.iter().find(fits).map(|(at_ns, _)| *at_ns)
    }

    /// Returns when almost all of the link that is back has been granted for a while, on average.
    pub(super) fn used_ns(&self, course: &Course) -> Option<u64> {
        let used_bits = course.link_bps as f64 * USED * MEAN_NS as f64 / 1e9;
        let times = (course.back_ns + MEAN_NS..course.end_ns).step_by(MS as usize * 10);
        let mean = |at_ns: &u64| self.granted_bits(at_ns - MEAN_NS, *at_ns, 0) >= used_bits;
        times.into_iter().find(mean)
    }

    /// Returns what arrived between two times, of what the link carries.
    pub(super) fn used(&self, from_ns: u64, until_ns: u64, bps: u64) -> f64 {
        let at = |time_ns: u64| {
            let after = self.arrived.partition_point(|(at_ns, _)| *at_ns <= time_ns);
            after.checked_sub(1).map_or(0, |at| self.arrived[at].1)
        };
        let bits = (at(until_ns) - at(from_ns)) as f64 * 8.0;
        bits / (bps as f64 * (until_ns - from_ns) as f64 / 1e9)
    }

    /// Returns what was granted beyond a rate between two times: bits.
    pub(super) fn granted_bits(&self, from_ns: u64, until_ns: u64, beyond_bps: u64) -> f64 {
        let first = self.granted.partition_point(|(at_ns, _)| *at_ns < from_ns).saturating_sub(1);
        let beyond = |pair: &[(u64, u64)]| {
            let span_ns = pair[1].0.min(until_ns).saturating_sub(pair[0].0.max(from_ns));
            pair[0].1.saturating_sub(beyond_bps) as f64 * span_ns as f64 / 1e9
        };
        let pairs = self.granted[first..].windows(2);
        pairs.take_while(|pair| pair[0].0 < until_ns).map(beyond).sum()
    }
}

struct Source {
    side: SourceSide,
    /// Transfers and what of them has not arrived.
    left: BTreeMap<u64, u64>,
    number: u64,
    /// Chunks on their way: the transfer of each, and its bytes.
    chunks: VecDeque<u64>,
    due_ns: Option<u64>,
    report_ns: u64,
}

/// When it arrives, its count, the source, whether it goes there, and the datagram.
type Mail = (u64, u64, u32, bool, Vec<u8>);

struct World<'a> {
    course: &'a Course,
    controller: ControllerSide,
    due_ns: Option<u64>,
    sources: Vec<Source>,
    network: Box<Network>,
    /// Datagrams on their way: to a source, or from it to the controller.
    mail: BinaryHeap<Reverse<Mail>>,
    count: u64,
    now_ns: u64,
    arrived: u64,
    found: Found,
}

/// Runs sources that always want more than the link.
pub(super) fn run(course: &Course) -> Found {
    let mut world = World::new(course);
    (0..SOURCES).for_each(|number| world.register(number));
    let steps = [(course.halved_ns, course.link_bps / 2), (course.back_ns, course.link_bps)];
    let mut steps = steps.into_iter().peekable();
    loop {
        let until_ns = world.next_ns(steps.peek().map(|(at_ns, _)| *at_ns));
        world.network.run(until_ns);
        world.now_ns = world.network.now_ns().max(world.now_ns);
        world.account();
        world.notice();
        while let Some((_, bps)) = steps.next_if(|(at_ns, _)| *at_ns <= world.now_ns) {
            world.network.set_capacity(bps);
        }
        world.deliver();
        world.wake();
        let is_over = world.sources.iter().all(|source| source.left.is_empty());
        if world.now_ns >= course.end_ns && is_over || world.now_ns > course.end_ns + 10_000 * MS {
            return world.finish();
        }
    }
}

impl<'a> World<'a> {
    fn new(course: &'a Course) -> Self {
        let nic_bps = course.link_bps / 10 * 6;
        let plan = Plan {
            sources: SOURCES,
            nic_bps,
            capacity_bps: course.link_bps,
            collectors: 1,
            collector_bps: course.link_bps,
            rtt_ns: course.rtt_ns,
            urgent: SOURCES,
        };
        let transport =
            Transport { recovery: Recovery::SelectiveRepeat, marks: false, priority: false };
        let link = LinkConfig::new(course.link_bps);
        let rules = catchment_control::admission::Rules::deadline();
        let mut config = Config::new(vec![link], vec![vec![LinkId(0)]], rules);
        config.chunk_bytes = course.chunk_bytes;
        let source = |_| Source {
            side: SourceSide::new(
                0,
                source_side::Config {
                    chunk_bytes: course.chunk_bytes,
                    ..source_side::Config::new(Fallback::Stop)
                },
            ),
            left: BTreeMap::new(),
            number: 0,
            chunks: VecDeque::new(),
            due_ns: None,
            report_ns: 0,
        };
        Self {
            course,
            controller: ControllerSide::new(0, 1, config).expect("a right configuration"),
            due_ns: None,
            sources: (0..SOURCES).map(source).collect(),
            network: Box::new(Network::new(&plan, transport)),
            mail: BinaryHeap::new(),
            count: 0,
            now_ns: 0,
            arrived: 0,
            found: Found { ledger: Ledger::new(SOURCES as usize), ..Found::default() },
        }
    }

    /// Notes what became of the time until now.
    fn account(&mut self) {
        let controller = self.controller.controller();
        let working_bps = controller.capacity_bps(LinkId(0)).map_or(0, |(_, working)| working);
        let granted_bps = controller.load_bps(LinkId(0)).unwrap_or(0);
        let ledger = &mut self.found.ledger;
        ledger.advance(self.now_ns, working_bps, granted_bps);
        for (number, source) in (0..).zip(&self.sources) {
            ledger.add_source(number as usize, self.now_ns, &source.side);
            ledger.add_queue_pair(self.now_ns, self.network.behind_bps(number, self.now_ns));
        }
        ledger.end(self.now_ns, &self.network);
    }

    fn register(&mut self, number: u32) {
        let root = [number as u8; 32];
        let rate_bps = self.course.link_bps / 10 * 6;
        let devices = vec![DeviceSpec::new(SourceId(0), PathId(0), ClassId(1), rate_bps)];
        let round_trip_ns = self.course.rtt_ns;
        let source = SourceId(number);
        self.control(controller_side::Input::Register { source, root, round_trip_ns, devices });
        let (source, term, go_on) = (number, 1, None);
        let told = source_side::Input::Registered { source, term, root, round_trip_ns, go_on };
        self.tell(number, told);
        self.ask(number);
    }

    fn next_ns(&self, step_ns: Option<u64>) -> u64 {
        let mail = self.mail.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let sources = self.sources.iter();
        let sources = sources.flat_map(|source| [source.due_ns, Some(source.report_ns)]).flatten();
        let due = [mail, self.due_ns, step_ns].into_iter().flatten().chain(sources).min();
        due.unwrap_or(self.now_ns).max(self.now_ns)
    }

    /// Lets a source have something to send, always.
    fn ask(&mut self, number: u32) {
        while self.sources[number as usize].left.len() < AHEAD && self.now_ns < self.course.end_ns {
            let source = &mut self.sources[number as usize];
            source.number += 1;
            source.left.insert(source.number, TRANSFER_BYTES);
            let id = LocalId { device: 0, number: source.number };
            let (bytes, ahead_bytes, age_ns, class) = (TRANSFER_BYTES, 0, 0, 1);
            self.tell(number, source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class });
        }
    }

    fn notice(&mut self) {
        for notice in self.network.take_notices() {
            let (event, bytes) = match notice {
                Notice::Begun { .. } => continue,
                Notice::Arrived { event, bytes } => (event, bytes),
                Notice::Failed { .. } => {
                    panic!("a queue pair that repeats until it is through has failed")
                }
            };
            let source = &mut self.sources[event];
            let Some(number) = source.chunks.pop_front() else { continue };
            if let Some(left) = source.left.get_mut(&number) {
                *left -= bytes;
                if *left == 0 {
                    source.left.remove(&number);
                }
            }
            self.arrived += bytes;
            self.found.arrived.push((self.now_ns, self.arrived));
            self.tell(event as u32, source_side::Input::Sent { id: LocalId { device: 0, number } });
            self.ask(event as u32);
        }
    }

    fn deliver(&mut self) {
        while self.mail.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= self.now_ns) {
            let Some(Reverse((_, _, number, to_source, bytes))) = self.mail.pop() else { return };
            if to_source {
                self.tell(number, source_side::Input::Datagram(&bytes));
            } else {
                let from = SocketAddr::from(([127, 0, 0, 1], number as u16 + 1));
                self.control(controller_side::Input::Datagram { from, bytes: &bytes });
            }
        }
    }

    fn wake(&mut self) {
        if self.due_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
            self.control(controller_side::Input::Timeout);
        }
        for number in 0..SOURCES {
            let source = &mut self.sources[number as usize];
            if source.report_ns <= self.now_ns {
                source.report_ns = self.now_ns + source.side.delivery_pause_ns();
                let seen = self.network.delivery(number);
                self.tell(
                    number,
                    source_side::Input::Delivered {
                        acknowledged_bytes: seen.acknowledged_bytes,
                        resent_bytes: seen.resent_bytes,
                    },
                );
            }
            if self.sources[number as usize].due_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
                self.tell(number, source_side::Input::Timeout);
            }
        }
    }

    fn post(&mut self, number: u32, to_source: bool, bytes: &[u8]) {
        self.count += 1;
        let at_ns = self.now_ns + self.course.rtt_ns / 2;
        self.mail.push(Reverse((at_ns, self.count, number, to_source, bytes.to_vec())));
    }

    fn control(&mut self, input: controller_side::Input<'_>) {
        self.controller.handle(self.now_ns, input);
        let mut told = Vec::new();
        loop {
            match self.controller.poll() {
                controller_side::Output::Transmit { to, bytes } => {
                    told.push((u32::from(to.port()) - 1, bytes.to_vec()));
                }
                controller_side::Output::Working { .. } => self.found.lowered += 1,
                controller_side::Output::Timeout(due_ns) => {
                    self.due_ns = due_ns;
                    break;
                }
                other @ (controller_side::Output::Refused { .. }
                | controller_side::Output::Forgotten { .. }
                | controller_side::Output::Superseded { .. }) => panic!("{other:?}"),
            }
        }
        told.into_iter().for_each(|(number, bytes)| self.post(number, true, &bytes));
        let granted_bps = self.controller.controller().load_bps(LinkId(0)).unwrap_or(0);
        match self.found.granted.last_mut() {
            Some(last) if last.0 == self.now_ns => last.1 = granted_bps,
            _ => self.found.granted.push((self.now_ns, granted_bps)),
        }
    }

    fn tell(&mut self, number: u32, input: source_side::Input<'_>) {
        let source = &mut self.sources[number as usize];
        source.side.handle(self.now_ns, input);
        let mut told = Vec::new();
        loop {
            match source.side.poll() {
                source_side::Output::Transmit(bytes) => told.push(bytes.to_vec()),
                source_side::Output::Send { id, bytes, rate_bps, leaves_ns, .. } => {
                    source.chunks.push_back(id.number);
                    self.found.ledger.begin(number as usize, bytes, rate_bps, leaves_ns);
                    self.network.post(number, number as usize, bytes, Some(rate_bps));
                }
                source_side::Output::Missed { .. } => {}
                source_side::Output::Timeout(due_ns) => {
                    source.due_ns = due_ns;
                    break;
                }
                other @ (source_side::Output::Refused { .. } | source_side::Output::Register) => {
                    panic!("{other:?}")
                }
            }
        }
        told.into_iter().for_each(|bytes| self.post(number, false, &bytes));
    }

    fn finish(mut self) -> Found {
        let left = self.sources.iter().flat_map(|source| source.left.values());
        self.found.frames_lost = left.map(|left| left.div_ceil(FRAME_BYTES / SCALE)).sum();
        self.found.packets_dropped = self.network.finish().dropped_in_all();
        self.found
    }
}
