//! Another controller takes over.
use crate::ends::{Ends, address, config};
use catchment_control::admission::controller_side::{self, ControllerSide};
use catchment_control::admission::source_side::{self, LocalId, Standby, StandbyOutput};
use catchment_control::admission::wire::{Seal, SourceRecord, SourceState};
use catchment_control::admission::{ClassId, Config, DeviceSpec, LinkId, PathId, SourceId};

const MS: u64 = 1_000_000;
const LEASE_MS: u64 = 200;
const ID: LocalId = LocalId { device: 0, number: 1 };

/// Lets time pass, and everything leave at once that begins.
fn serve(ends: &mut Ends, time_ms: u64, left: &mut usize) {
    for _ in 0..2 * time_ms {
        ends.pass(MS / 2);
        while *left < ends.chunks.len() {
            *left += 1;
            ends.tell(source_side::Input::Sent { id: ID });
        }
    }
}

#[test]
fn a_new_controller_grants_nothing_while_windows_of_the_one_before_may_be_in_use() {
    let mut ends = Ends::new();
    let mut left = 0;
    ends.pass(5 * MS);
    let (id, bytes, ahead_bytes, age_ns, class) = (ID, 1_000_000_000, 0, 0, 1);
    ends.tell(source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class });
    serve(&mut ends, 5, &mut left);
    assert!(left > 0, "a window for a lease");
    ends.take_over();
    serve(&mut ends, LEASE_MS / 2, &mut left);
    let during = left;
    serve(&mut ends, LEASE_MS / 2, &mut left);
    assert!(left > during, "windows stand");
    // This source's window is over, which others' need not be that have not registered yet.
    let before = left;
    serve(&mut ends, 50, &mut left);
    assert_eq!(left, before, "nothing is granted to who has said that its window is over");
    serve(&mut ends, LEASE_MS, &mut left);
    assert!(left > before, "then it goes on");
}

#[test]
fn a_rate_that_is_in_use_goes_on_under_a_new_controller() {
    const RATE_BPS: u64 = 1_000_000_000;
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    let (device, bytes, period_ns) = (0, 5_000_000, 40 * MS);
    ends.tell(source_side::Input::Periodic { device, bytes, period_ns });
    ends.pass(5 * MS);
    ends.take_over();
    for at_ms in 0..3 * LEASE_MS {
        ends.pass(MS);
        let rate = ends.source.rate(0).map(|rate| rate.rate_bps);
        assert_eq!(rate, Some(RATE_BPS), "{at_ms} ms after that");
    }
    assert_eq!(ends.controller.rates(SourceId(5)), (1, RATE_BPS));
    assert_eq!(ends.controller.controller().periodic_bps(LinkId(0)), Some(RATE_BPS));
}

/// A controller that stands by beside the one that leads, and the source's end of its session with it.
struct Beside {
    ends: Ends,
    next: ControllerSide,
    standby: Standby,
    /// What it says gets lost.
    is_deaf: bool,
}

/// The number of the source there.
const THERE: SourceId = SourceId(9);
const ROOT: [u8; 32] = [9; 32];

impl Beside {
    fn new() -> Self {
        let ends = Ends::new();
        let config = Config { recovering: true, ..config() };
        let next = ControllerSide::new(ends.now_ns, 0, config).expect("as before");
        let standby = Standby::new(ends.now_ns, THERE.0, &ROOT, 0);
        let mut beside = Self { ends, next, standby, is_deaf: false };
        let devices = vec![DeviceSpec::new(THERE, PathId(0), ClassId(1), 10_000_000_000)];
        let (source, root, round_trip_ns) = (THERE, ROOT, 0);
        let register = controller_side::Input::Register { source, root, round_trip_ns, devices };
        beside.next.handle(beside.ends.now_ns, register);
        beside
    }

    /// Does what is due at the two ends of the session with the standby; returns whether that leads.
    fn step(&mut self) -> bool {
        let now_ns = self.ends.now_ns;
        self.standby.handle(now_ns, 1, None);
        loop {
            match self.standby.poll() {
                StandbyOutput::Transmit(bytes) => {
                    let from = address();
                    self.next.handle(now_ns, controller_side::Input::Datagram { from, bytes });
                }
                StandbyOutput::Leads { .. } => return true,
                StandbyOutput::Register => panic!("it is known there"),
                StandbyOutput::Timeout(_) => break,
            }
        }
        self.next.handle(now_ns, controller_side::Input::Timeout);
        loop {
            match self.next.poll() {
                controller_side::Output::Transmit { bytes, .. } if !self.is_deaf => {
                    self.standby.handle(now_ns, 1, Some(bytes));
                }
                controller_side::Output::Timeout(_) => break,
                controller_side::Output::Transmit { .. }
                | controller_side::Output::Refused { .. }
                | controller_side::Output::Forgotten { .. }
                | controller_side::Output::Working { .. }
                | controller_side::Output::Superseded { .. } => {}
            }
        }
        matches!(self.standby.poll(), StandbyOutput::Leads { term: 2 })
    }

    fn pass(&mut self, time_ms: u64) {
        for _ in 0..10 * time_ms {
            self.ends.pass(MS / 10);
            assert!(!self.step(), "nobody has made it lead");
        }
    }

    /// Lets the one that leads end, and the other one lead; returns how long the source did not know.
    fn hand_over(mut self, left_ns: Option<u64>) -> (Ends, u64) {
        self.ends.to_source.clear();
        let lead = controller_side::Input::Lead { term: 2, left_ns };
        self.next.handle(self.ends.now_ns, lead);
        let since_ns = self.ends.now_ns;
        while !self.step() {
            self.ends.tell(source_side::Input::Timeout);
            self.ends.to_controller.clear();
            self.ends.now_ns += MS / 10;
            self.is_deaf &= self.ends.now_ns - since_ns < LEASE_MS * MS;
        }
        let Self { mut ends, next, standby, .. } = self;
        ends.controller = next;
        ends.tell(source_side::Input::Leads(Box::new(standby)));
        let took_ns = ends.now_ns - since_ns;
        (ends, took_ns)
    }
}

fn ask(ends: &mut Ends, bytes: u64) {
    let (id, ahead_bytes, age_ns, class) = (ID, 0, 0, 1);
    ends.tell(source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class });
}

#[test]
fn a_leader_that_gives_up_says_when_its_windows_are_over_and_the_next_one_waits_no_longer() {
    let (mut beside, mut left) = (Beside::new(), 0);
    beside.pass(10);
    ask(&mut beside.ends, 40_000_000);
    beside.pass(2);
    serve(&mut beside.ends, 5, &mut left);
    let left_ns = beside.ends.controller.left_ns().expect("it leads");
    assert!((10 * MS..40 * MS).contains(&left_ns), "of 32 ms some are over: {left_ns}");
    let (mut ends, took_ns) = beside.hand_over(Some(left_ns));
    assert_eq!(took_ns, 0, "told at once");
    let until_ns = ends.now_ns + left_ns;
    while ends.now_ns + MS < until_ns {
        serve(&mut ends, 1, &mut left);
        assert_eq!(ends.controller.granted_bps(THERE), 0, "windows of the one before stand");
    }
    ask_more(&mut ends);
    serve(&mut ends, 5, &mut left);
    assert!(ends.controller.granted_bps(THERE) > 0, "granted when these are over");
}

/// Another transfer, of the next number.
fn ask_more(ends: &mut Ends) {
    let id = LocalId { number: 2, ..ID };
    let (bytes, ahead_bytes, age_ns, class) = (40_000_000, 0, 0, 1);
    ends.tell(source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class });
}

#[test]
fn what_a_source_has_of_a_leader_that_died_runs_out_before_the_standby_grants() {
    let (mut beside, mut left) = (Beside::new(), 0);
    beside.pass(10);
    ask(&mut beside.ends, 1_000_000_000);
    beside.pass(5);
    let (mut ends, _) = beside.hand_over(None);
    let before = ends.source.counts().old_term;
    ends.tell(source_side::Input::Registered {
        source: 5,
        term: 1,
        root: [1; 32],
        round_trip_ns: 0,
        go_on: None,
    });
    assert_eq!(ends.source.counts().old_term, before + 1, "the one before is not obeyed any more");
    for _ in 0..LEASE_MS {
        serve(&mut ends, 1, &mut left);
        assert_eq!(ends.controller.granted_bps(THERE), 0, "windows that are not known may stand");
    }
    serve(&mut ends, LEASE_MS, &mut left);
    assert!(ends.controller.granted_bps(THERE) > 0);
}

#[test]
fn a_source_that_was_not_reached_learns_by_its_next_probe_who_leads() {
    let mut beside = Beside::new();
    beside.pass(10);
    beside.is_deaf = true;
    let (mut ends, took_ns) = beside.hand_over(Some(0));
    assert!((LEASE_MS * MS..2 * LEASE_MS * MS).contains(&took_ns), "{took_ns}");
    ask(&mut ends, 10_000_000);
    ends.pass(3 * MS);
    assert!(!ends.chunks.is_empty());
}

#[test]
fn a_standby_grants_nothing_and_only_a_leader_that_knows_says_what_is_left() {
    let mut beside = Beside::new();
    beside.pass(10);
    assert!(beside.next.stands_by() && beside.next.left_ns().is_none());
    let mut bytes = Vec::new();
    let mut seal = Seal::<SourceRecord>::new(&ROOT);
    // The source's own end has used some sequence numbers.
    (0..100).for_each(|_| seal.seal((1, THERE.0, beside.ends.now_ns), &[], &mut bytes).unwrap());
    let record = SourceRecord {
        device: 0,
        number: 1,
        revision: 1,
        seen: 0,
        ask: true,
        obeys: true,
        finish: false,
        state: SourceState::Waiting { left_bytes: 5000 },
        age_ns: 0,
    };
    seal.seal((1, THERE.0, beside.ends.now_ns), &[record], &mut bytes).unwrap();
    let from = address();
    beside
        .next
        .handle(beside.ends.now_ns, controller_side::Input::Datagram { from, bytes: &bytes });
    assert!(matches!(beside.next.poll(), controller_side::Output::Timeout(_)), "no answer");
    assert_eq!(beside.next.controller().transfers(), 0);
    let (ends, _) = beside.hand_over(None);
    assert_eq!(ends.controller.left_ns(), None, "windows of the one before may stand");
}

#[test]
fn a_leader_that_gives_up_cuts_what_lasts_long_once_its_source_says_so() {
    let (mut beside, mut left) = (Beside::new(), 0);
    beside.pass(10);
    ask(&mut beside.ends, 1_000_000_000);
    beside.pass(2);
    let mut ends = beside.ends;
    serve(&mut ends, 5, &mut left);
    let before_ns = ends.controller.left_ns().expect("it leads");
    assert!(before_ns > 150 * MS, "{before_ns}");
    ends.controller.handle(ends.now_ns, controller_side::Input::GiveUp);
    let unheard_ns = ends.controller.left_ns().expect("it leads");
    assert!(unheard_ns >= before_ns, "its source may not have heard it yet: {unheard_ns}");
    let given_up_ns = ends.now_ns;
    serve(&mut ends, 3, &mut left);
    let left_ns = ends.controller.left_ns().expect("it leads");
    assert!(left_ns < 25 * MS, "{left_ns}");
    let hand_over_ns = ends.controller.hand_over_ns();
    assert!(
        (ends.now_ns..given_up_ns + 25 * MS).contains(&hand_over_ns),
        "not before its windows are nearly over"
    );
    serve(&mut ends, left_ns / MS + 1, &mut left);
    let during = left;
    assert!(during > 0);
    serve(&mut ends, 2 * LEASE_MS, &mut left);
    assert_eq!(left, during, "nothing more is granted, whatever is asked for");
    assert_eq!(ends.controller.granted_bps(SourceId(5)), 0);
}

#[test]
fn a_leader_that_gives_up_takes_back_what_has_not_begun() {
    let mut ends = Ends::new();
    ends.pass(10 * MS);
    ask(&mut ends, 20_000_000);
    // The first takes the link for 16 ms; what is granted behind it has not begun.
    ends.pass(MS);
    let end_ns = ends.controller.hand_over_ns();
    ask_more(&mut ends);
    while ends.controller.hand_over_ns() == end_ns {
        ends.pass(MS / 10);
        assert!(ends.now_ns < end_ns + 20 * MS, "the second is granted ahead");
    }
    ends.controller.handle(ends.now_ns, controller_side::Input::GiveUp);
    ends.pass(MS / 5);
    assert_eq!(ends.controller.hand_over_ns(), end_ns, "the first alone runs to its end");
}

#[test]
fn one_that_knows_nothing_of_windows_hands_over_at_once() {
    let beside = Beside::new();
    assert_eq!(beside.next.hand_over_ns(), 0, "it has not led");
    let mut ends = beside.ends;
    ends.pass(5 * MS);
    assert!(ends.controller.hand_over_ns() <= ends.now_ns, "nothing is granted");
    ends.take_over();
    assert_eq!(ends.controller.hand_over_ns(), 0, "it waits for windows of one before");
}
