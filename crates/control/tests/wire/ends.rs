//! Both ends of the wire: how a transfer goes from its request to its end.
use crate::samples::ROOT;
use catchment_control::admission::controller_side::{self, ControllerSide};
use catchment_control::admission::source_side::{self, Fallback, GoOn, LocalId, SourceSide};
use catchment_control::admission::*;
use std::collections::VecDeque;
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const GBPS: u64 = 1_000_000_000;
const ID: LocalId = LocalId { device: 0, number: 1 };

pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 9))
}

pub(crate) fn config() -> Config {
    Config::new(vec![LinkConfig::new(10 * GBPS)], vec![vec![LinkId(0)]], Rules::deadline())
}

/// A controller and a source with one device, at the same time, over a wire without a delay.
pub(crate) struct Ends {
    pub(crate) controller: ControllerSide,
    pub(crate) source: SourceSide,
    pub(crate) now_ns: u64,
    pub(crate) to_controller: Vec<Vec<u8>>,
    pub(crate) to_source: Vec<Vec<u8>>,
    /// Chunks that have begun, and of which transfer each is.
    pub(crate) chunks: Vec<u64>,
    numbers: Vec<u64>,
    /// When each has left.
    leaves_ns: Vec<u64>,
    pub(crate) registers: u32,
    /// The safe rate that the next controller tells.
    pub(crate) safe_bps: u64,
    /// What has gone without a grant: the rate of each chunk, and when it has left.
    pub(crate) alone: Vec<(u64, u64)>,
}

impl Ends {
    pub(crate) fn new() -> Self {
        let config = config();
        let controller = ControllerSide::new(0, 1, config).expect("a right configuration");
        let source = SourceSide::new(0, source_side::Config::new(Fallback::Stop));
        let mut ends = Self {
            controller,
            source,
            now_ns: MS,
            to_controller: Vec::new(),
            to_source: Vec::new(),
            chunks: Vec::new(),
            numbers: Vec::new(),
            leaves_ns: Vec::new(),
            registers: 0,
            safe_bps: GBPS,
            alone: Vec::new(),
        };
        ends.register(1);
        ends
    }

    fn register(&mut self, term: u32) {
        let devices = vec![DeviceSpec::new(SourceId(0), PathId(0), ClassId(1), 10 * GBPS)];
        let (source, root, round_trip_ns) = (5, ROOT, 0);
        self.control(controller_side::Input::Register {
            source: SourceId(source),
            root,
            round_trip_ns,
            devices,
        });
        let safe_ns = self.controller.safe_ns(SourceId(source));
        let go_on = |safe_ns| GoOn { rate_bps: self.safe_bps, until_ns: self.now_ns + safe_ns };
        let go_on = safe_ns.map(go_on);
        self.tell(source_side::Input::Registered { source, term, root, round_trip_ns, go_on });
    }

    /// Replaces the controller by one of the next term, with which the source registers at once.
    pub(crate) fn take_over(&mut self) {
        let config = Config { recovering: true, ..config() };
        self.controller = ControllerSide::new(self.now_ns, 2, config).expect("as before");
        self.to_controller.clear();
        self.to_source.clear();
        self.register(2);
    }

    fn control(&mut self, input: controller_side::Input<'_>) {
        self.controller.handle(self.now_ns, input);
        loop {
            match self.controller.poll() {
                controller_side::Output::Transmit { bytes, .. } => {
                    self.to_source.push(bytes.to_vec());
                }
                controller_side::Output::Timeout(_) => return,
                controller_side::Output::Refused { .. }
                | controller_side::Output::Forgotten { .. }
                | controller_side::Output::Working { .. }
                | controller_side::Output::Superseded { .. } => {}
            }
        }
    }

    pub(crate) fn tell(&mut self, input: source_side::Input<'_>) {
        self.source.handle(self.now_ns, input);
        loop {
            match self.source.poll() {
                source_side::Output::Transmit(bytes) => self.to_controller.push(bytes.to_vec()),
                source_side::Output::Send { id, bytes, rate_bps, leaves_ns, leave } => {
                    if leave == source_side::Leave::Fallback {
                        self.alone.push((rate_bps, leaves_ns));
                    }
                    self.chunks.push(bytes);
                    self.numbers.push(id.number);
                    self.leaves_ns.push(leaves_ns);
                }
                source_side::Output::Register => self.registers += 1,
                source_side::Output::Timeout(_) => return,
                source_side::Output::Missed { .. } | source_side::Output::Refused { .. } => {}
            }
        }
    }

    pub(crate) fn datagram(&mut self, bytes: &[u8]) {
        self.control(controller_side::Input::Datagram { from: address(), bytes });
    }

    /// Lets a time pass; datagrams come at once.
    pub(crate) fn pass(&mut self, time_ns: u64) {
        self.step(time_ns, |ends| {
            while let Some(bytes) = ends.to_controller.pop() {
                ends.datagram(&bytes);
            }
            while let Some(bytes) = ends.to_source.pop() {
                ends.tell(source_side::Input::Datagram(&bytes));
            }
        });
    }

    /// Lets a time pass, in steps; `deliver` says what becomes of the datagrams of each.
    fn step(&mut self, time_ns: u64, deliver: impl Fn(&mut Self)) {
        let end_ns = self.now_ns + time_ns;
        while self.now_ns < end_ns {
            self.now_ns += MS / 10;
            self.tell(source_side::Input::Timeout);
            self.control(controller_side::Input::Timeout);
            deliver(self);
        }
    }

    /// Lets what the source has said arrive, and nothing come back.
    pub(crate) fn deliver(&mut self) {
        for bytes in std::mem::take(&mut self.to_controller) {
            self.datagram(&bytes);
        }
        self.to_source.clear();
    }

    /// Lets a time pass in which nothing arrives.
    pub(crate) fn be_cut_off(&mut self, time_ns: u64) {
        self.step(time_ns, |ends| {
            ends.to_controller.clear();
            ends.to_source.clear();
        });
    }

    pub(crate) fn ask(&mut self, bytes: u64) {
        self.ask_for(ID.number, bytes);
    }

    /// Lets the source ask for a transfer with a number.
    pub(crate) fn ask_for(&mut self, number: u64, bytes: u64) {
        let id = LocalId { number, ..ID };
        self.tell(source_side::Input::Ask { id, bytes, ahead_bytes: 0, age_ns: 0, class: 1 });
    }
}

/// Request, grant, WRITE, release (S2.3).
#[test]
fn a_transfer_is_granted_sent_in_its_time_and_forgotten_by_both() {
    let mut ends = Ends::new();
    ends.ask(10_000_000);
    ends.pass(3 * MS);
    assert!(ends.chunks.is_empty(), "fewer than 8 datagrams do not show the clock");
    let mut sent = 0;
    for _ in 0..40 {
        ends.pass(MS / 2);
        // A chunk takes longer than that: at most two have begun and not left.
        assert!(ends.chunks.len() <= sent + 2);
        if sent < ends.chunks.len() {
            sent += 1;
            ends.tell(source_side::Input::Sent { id: ID });
        }
    }
    assert_eq!(ends.chunks.iter().sum::<u64>(), 10_000_000);
    assert_eq!((ends.source.transfers(), ends.controller.controller().transfers()), (0, 0));
}

/// What was answered is not told again but to say that it goes on, a few times in a lease: each datagram wakes the
/// controller.
#[test]
fn what_was_answered_is_not_repeated() {
    let mut ends = Ends::new();
    ends.pass(6 * MS);
    let before = ends.source.counts().sent;
    // 40 ms at the rate of the link; nothing says that any of it has left.
    ends.ask(50_000_000);
    ends.pass(20 * MS);
    assert!(!ends.chunks.is_empty());
    assert_eq!(ends.source.counts().sent - before, 2, "the request, and that the window is known");
}

#[test]
fn a_source_that_is_not_answered_does_as_it_was_told() {
    for (fallback, alone_bps) in [
        (Fallback::Stop, 0),
        (Fallback::Safe { rate_bps: GBPS }, GBPS),
        (Fallback::Free, source_side::FREE_BPS),
    ] {
        let mut source = SourceSide::new(0, source_side::Config::new(fallback));
        source.handle(
            MS,
            source_side::Input::Ask { id: ID, bytes: 5000, ahead_bytes: 0, age_ns: 0, class: 1 },
        );
        let mut sent = 0;
        let mut due_ns = MS;
        for _ in 0..100 {
            match source.poll() {
                source_side::Output::Send { bytes, rate_bps, leave, .. } => {
                    assert!(
                        leave == source_side::Leave::Fallback
                            && due_ns >= 200 * MS
                            && rate_bps == alone_bps
                    );
                    sent += bytes;
                }
                source_side::Output::Timeout(None) => break,
                source_side::Output::Timeout(Some(next_ns)) => {
                    due_ns = next_ns;
                    source.handle(due_ns, source_side::Input::Timeout);
                }
                other @ (source_side::Output::Transmit(_)
                | source_side::Output::Missed { .. }
                | source_side::Output::Refused { .. }
                | source_side::Output::Register) => panic!("{other:?}"),
            }
        }
        assert_eq!(sent, if fallback == Fallback::Stop { 0 } else { 5000 });
    }
}

/// S2.9: a source that was held up says so while its window lasts: what is left goes at once, and does not wait behind the next
/// transfer, which is granted by then.
#[test]
fn what_was_held_up_ends_before_the_next_one_begins() {
    let mut ends = Ends::new();
    ends.pass(6 * MS);
    ends.ask_for(1, 25_000_000);
    ends.pass(MS);
    ends.ask_for(2, 25_000_000);
    let (mut sent, begin_ns) = (0, ends.now_ns);
    for tenth in 0..600 {
        if tenth == 100 {
            // The source stands still for 3 ms.
            for _ in 0..30 {
                ends.now_ns += MS / 10;
                ends.control(controller_side::Input::Timeout);
            }
        }
        ends.pass(MS / 10);
        // Each chunk is acknowledged a millisecond after it has left.
        let left_ns = ends.now_ns - MS;
        let is_there = |leaves_ns: &u64| *leaves_ns <= left_ns;
        while ends.leaves_ns.get(sent).is_some_and(is_there) {
            let id = LocalId { number: ends.numbers[sent], ..ID };
            sent += 1;
            ends.tell(source_side::Input::Sent { id });
        }
    }
    assert!(ends.numbers.is_sorted(), "{:?}", ends.numbers);
    let took_ns = ends.leaves_ns[sent - 1] - begin_ns;
    assert_eq!(ends.chunks.iter().sum::<u64>(), 50_000_000);
    // Each takes 20 ms.
    assert!(took_ns < 45 * MS, "{took_ns}");
}

/// Whoever repeats before any answer can come never learns how long answers take, repeats everything, and so
/// makes a slow controller slower.
#[test]
fn a_long_round_trip_is_learnt_and_not_taken_for_losses() {
    let mut ends = Ends::new();
    let mut wire = Vec::new();
    let mut pass = |ends: &mut Ends, id: LocalId| {
        for _ in 0..600 {
            ends.now_ns += MS / 10;
            ends.tell(source_side::Input::Timeout);
            ends.control(controller_side::Input::Timeout);
            let (now_ns, due_ns) = (ends.now_ns, ends.now_ns + 5 * MS);
            wire.extend(ends.to_controller.drain(..).map(|bytes| (due_ns, true, bytes)));
            wire.extend(ends.to_source.drain(..).map(|bytes| (due_ns, false, bytes)));
            for (_, up, bytes) in wire.extract_if(.., |(due_ns, ..)| *due_ns <= now_ns) {
                if up {
                    ends.datagram(&bytes);
                } else {
                    ends.tell(source_side::Input::Datagram(&bytes));
                }
            }
            if ends.chunks.pop().is_some() {
                ends.tell(source_side::Input::Sent { id });
            }
        }
    };
    pass(&mut ends, ID);
    let mut learnt = 0;
    for number in 1..=30 {
        let id = LocalId { device: 0, number };
        ends.tell(source_side::Input::Ask { id, bytes: 5000, ahead_bytes: 0, age_ns: 0, class: 1 });
        pass(&mut ends, id);
        if number == 10 {
            learnt = ends.source.counts().sent + ends.controller.counts().sent;
        }
    }
    assert_eq!(ends.source.transfers(), 0, "all have ended");
    let sent = ends.source.counts().sent + ends.controller.counts().sent - learnt;
    // Asking, a grant, that it came, the end, its answer; and two probes.
    assert!(sent <= 20 * 5 + 2, "{sent} datagrams for 20 transfers");
}

#[test]
fn a_source_that_wants_nothing_sets_no_timer_but_that_which_forgets_it() {
    let mut ends = Ends::new();
    let due_ns = |ends: &mut Ends| {
        let controller_side::Output::Timeout(due_ns) = ends.controller.poll() else {
            panic!("all was said");
        };
        due_ns.expect("a source is there") - ends.now_ns
    };
    ends.pass(500 * MS);
    assert!(due_ns(&mut ends) > 20_000 * MS);
    ends.ask(10_000_000);
    ends.pass(MS);
    assert!(due_ns(&mut ends) <= 200 * MS, "its windows end when it is not heard any more");
    ends.tell(source_side::Input::Cancel { id: ID });
    (0..2).for_each(|_| ends.tell(source_side::Input::Sent { id: ID }));
    ends.pass(500 * MS);
    assert!(due_ns(&mut ends) > 20_000 * MS);
}

/// However many transfers a source ends within the replay window, what is held up about them begins none anew.
#[test]
fn what_comes_late_about_an_ended_transfer_begins_nothing() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    ends.ask(5000);
    let held = ends.to_controller.clone();
    ends.to_controller.clear();
    ends.pass(10 * MS);
    while ends.source.transfers() > 0 {
        ends.tell(source_side::Input::Sent { id: ID });
        ends.pass(MS);
    }
    let before = ends.controller.counts().opened;
    held.iter().for_each(|bytes| ends.datagram(bytes));
    assert_eq!(ends.controller.counts().opened, before + held.len() as u64);
    assert_eq!(ends.controller.controller().transfers(), 0);
    assert_eq!(ends.controller.classes()[1].on_time, 1, "and counts once");
}

/// A datagram that was overtaken by one that says an end begins nothing, as it may be about what has ended since; what it
/// asks for is asked for again.
#[test]
fn what_is_overtaken_by_an_end_is_asked_for_again() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    ends.ask(5000);
    ends.pass(10 * MS);
    let other = LocalId { device: 0, number: ID.number + 1 };
    ends.ask_for(other.number, 5000);
    let held = std::mem::take(&mut ends.to_controller);
    assert_eq!(held.len(), 1, "the request");
    ends.tell(source_side::Input::Sent { id: ID });
    ends.pass(MS / 10);
    held.iter().for_each(|bytes| ends.datagram(bytes));
    assert_eq!(ends.controller.controller().transfers(), 0, "the first is over");
    ends.pass(10 * MS);
    ends.tell(source_side::Input::Sent { id: other });
    ends.pass(10 * MS);
    assert_eq!(ends.source.transfers(), 0, "the second is sent, too");
    assert_eq!(ends.controller.classes()[1].on_time, 2);
}

/// However many transfers sources end, the controller keeps nothing of them: a repeated end is answered, and counts once.
#[test]
fn an_end_that_is_said_again_is_answered_and_counts_once() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    ends.ask(5000);
    ends.pass(10 * MS);
    ends.tell(source_side::Input::Sent { id: ID });
    // The answer is lost.
    ends.deliver();
    assert_eq!(ends.controller.classes()[1].on_time, 1);
    assert_eq!(ends.source.transfers(), 1, "it waits for the answer");
    ends.pass(50 * MS);
    assert_eq!(ends.source.transfers(), 0, "it has said so again");
    assert_eq!(ends.controller.classes()[1].on_time, 1);
}

/// Where acknowledgements take long, as much is on its way as leaves until they come: once the first has come, the window
/// is used.
#[test]
fn a_long_path_is_filled_and_a_lost_one_forgotten() {
    const ACKNOWLEDGED_NS: u64 = 20 * MS;
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    ends.ask(1_000_000_000);
    let mut due = VecDeque::new();
    let mut carry = |ends: &mut Ends, time_ms: u64| {
        let before = ends.chunks.len();
        let mut seen = before;
        for _ in 0..2 * time_ms {
            ends.pass(MS / 2);
            // Each is acknowledged long after the time that it takes at 10 Gbit/s.
            let acknowledged_ns = |bytes: &u64| ends.now_ns + bytes * 8 / 10 + ACKNOWLEDGED_NS;
            due.extend(ends.chunks[seen..].iter().map(acknowledged_ns));
            seen = ends.chunks.len();
            while due.front().is_some_and(|at_ns| *at_ns <= ends.now_ns) {
                due.pop_front();
                ends.tell(source_side::Input::Sent { id: ID });
            }
        }
        ends.chunks[before..].iter().sum::<u64>()
    };
    assert_eq!(carry(&mut ends, 15), 2 << 20, "nothing is known of the path");
    carry(&mut ends, 35);
    let bytes = carry(&mut ends, 100);
    assert!(bytes > 118_000_000, "{bytes} of the 125 MB that 10 Gbit/s carry");
    ends.tell(source_side::Input::Abandon { id: ID });
    ends.pass(MS);
    assert_eq!(ends.source.transfers(), 0, "nothing is waited for that is lost");
}

/// In shared memory a chunk is acknowledged as soon as it is posted. The controller hears of its end when its time at the
/// rate of its window is over: others would have that time twice. A source paces to its grant (S2.9).
#[test]
fn what_is_faster_than_its_rate_takes_its_time() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    // 2 ms at 10 Gbit/s.
    ends.ask(2_500_000);
    let began_ns = ends.now_ns;
    while ends.source.transfers() > 0 {
        let before = ends.chunks.len();
        ends.pass(MS / 10);
        (before..ends.chunks.len()).for_each(|_| ends.tell(source_side::Input::Sent { id: ID }));
    }
    let took_ns = ends.now_ns - began_ns;
    assert!((2 * MS..4 * MS).contains(&took_ns), "{took_ns} ns");
    assert_eq!(ends.chunks.iter().sum::<u64>(), 2_500_000);
    // Who sends them is told until when each uses what was granted, one behind the other.
    let pairs = ends.leaves_ns.windows(2).zip(&ends.chunks[1..]);
    assert!(pairs.clone().all(|(pair, bytes)| pair[1] - pair[0] >= bytes * 8 / 10), "{pairs:?}");
    let last_ns = *ends.leaves_ns.last().unwrap();
    assert!((ends.now_ns - MS..ends.now_ns).contains(&last_ns), "{last_ns}");
}

/// Whoever asks for an event of which not all is there yet gets a window for all of it, and sends only what is there.
#[test]
fn what_is_asked_ahead_is_sent_when_it_is_there() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    let bytes = 10_000_000;
    let (ahead_bytes, age_ns) = (8_000_000, 0);
    ends.tell(source_side::Input::Ask { id: ID, bytes, ahead_bytes, age_ns, class: 1 });
    let mut sent = 0;
    let mut serve = |ends: &mut Ends, time_ms: u64| {
        for _ in 0..2 * time_ms {
            ends.pass(MS / 2);
            for _ in std::mem::replace(&mut sent, ends.chunks.len())..ends.chunks.len() {
                ends.tell(source_side::Input::Sent { id: ID });
            }
        }
        ends.chunks.iter().sum::<u64>()
    };
    assert_eq!(serve(&mut ends, 4), 2_000_000);
    ends.tell(source_side::Input::Add { id: ID, bytes: 3_000_000, last: false });
    assert_eq!(serve(&mut ends, 4), 5_000_000, "within the window that it has");
    let link_bps = |ends: &Ends| ends.controller.controller().load_bps(LinkId(0));
    ends.pass(500 * MS);
    assert_eq!(link_bps(&ends), Some(0), "nothing is kept for one who has nothing to send");
    // More than was asked for, and then less.
    ends.tell(source_side::Input::Add { id: ID, bytes: 6_000_000, last: true });
    assert_eq!(serve(&mut ends, 40), 11_000_000);
    assert_eq!((ends.source.transfers(), ends.controller.controller().transfers()), (0, 0));
    let id = LocalId { device: 0, number: 2 };
    ends.tell(source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class: 1 });
    ends.tell(source_side::Input::Add { id, bytes: 0, last: true });
    ends.pass(5 * MS);
    assert_eq!(ends.chunks.iter().sum::<u64>(), 13_000_000, "what does not come is given back");
}
