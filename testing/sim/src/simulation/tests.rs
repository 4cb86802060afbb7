use super::*;
use crate::{Chance, Delay, Fate, Loss};
use std::cell::RefCell;
use std::rc::Rc;

/// Sends a number, waits for the echo, sends the next.
struct Player {
    /// Serves left; 0 for the side that only answers.
    serves: u64,
    serve_at: Option<Duration>,
    heard: Vec<(Duration, u64)>,
}

impl Player {
    fn new(serves: u64) -> Self {
        Self { serves, serve_at: (serves > 0).then_some(Duration::ZERO), heard: Vec::new() }
    }
}

fn ball(number: u64) -> Frame {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(100, 0);
    Frame::new(bytes)
}

impl Node for Player {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        let number = u64::from_le_bytes(frame.bytes()[..8].try_into().unwrap());
        self.heard.push((context.now, number));
        if self.serve_at.is_none() && self.serves == 0 {
            context.send(0, frame);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        context.send(0, ball(self.serves));
        self.serves -= 1;
        self.serve_at = Some(context.now + Duration::from_millis(1));
        if self.serves == 0 {
            self.serve_at = Some(Duration::MAX);
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        self.serve_at.filter(|at| *at < Duration::MAX)
    }
}

fn link(loss: Loss) -> LinkConfig {
    LinkConfig {
        rate_bps: Some(8_000_000),
        delay: Duration::from_micros(50),
        loss,
        reorder: Delay { chance: Chance::of(0.2), most: Duration::from_millis(3) },
        ..LinkConfig::default()
    }
}

fn table(seed: u64, loss: Loss) -> (Simulation<Player>, NodeId, NodeId) {
    let mut simulation = Simulation::new(seed);
    let one = simulation.add(Player::new(20));
    let two = simulation.add(Player::new(0));
    simulation.connect(one, two, link(loss));
    simulation.connect(two, one, link(Loss::None));
    (simulation, one, two)
}

const LONG: Duration = Duration::from_secs(9);

#[test]
fn time_moves_from_event_to_event() {
    let (mut simulation, one, two) = table(1, Loss::None);
    assert_eq!(simulation.run(LONG, |_| false), Stop::Idle);
    assert_eq!(simulation.node(one).heard.len(), 20);
    assert_eq!(simulation.node(two).heard.len(), 20);
    let times: Vec<_> = simulation.node(two).heard.iter().map(|(at, _)| *at).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(simulation.now < Duration::from_millis(30));
}

#[test]
fn a_run_ends_at_its_time_or_when_the_caller_is_content() {
    let (mut simulation, one, _) = table(1, Loss::None);
    let until = Duration::from_micros(500);
    assert_eq!(simulation.run(until, |_| false), Stop::TimeUp);
    assert_eq!(simulation.now, until);
    let done = simulation.run(LONG, |s| s.node(one).heard.len() == 3);
    assert_eq!(done, Stop::Done);
    assert_eq!(simulation.node(one).heard.len(), 3);
}

#[test]
fn a_run_follows_from_its_seed() {
    let fingerprint = |seed| {
        let (mut simulation, ..) = table(seed, Loss::Random(Chance::of(0.3)));
        let print = Rc::new(RefCell::new(Fingerprint::default()));
        simulation.observe(Box::new(Rc::clone(&print)));
        simulation.run(LONG, |_| false);
        print.borrow().value()
    };
    // The constant shows that the run is the same on every machine.
    assert_eq!(fingerprint(5), FINGERPRINT_OF_SEED_5);
    assert_ne!(fingerprint(5), fingerprint(6));
}

const FINGERPRINT_OF_SEED_5: u32 = 1_135_846_107;

/// A hash that differs if two runs differ in one event or one byte.
#[derive(Debug, Clone, Default)]
struct Fingerprint {
    hasher: crc32fast::Hasher,
}

impl Fingerprint {
    fn value(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}

impl Observer for Fingerprint {
    fn event(&mut self, event: &Event<'_>) {
        self.hasher.update(&event.at.as_nanos().to_le_bytes());
        self.hasher.update(&[code(event.kind)]);
        self.hasher.update(event.frame.bytes());
    }
}

fn code(kind: EventKind) -> u8 {
    match kind {
        EventKind::Arrived => 0,
        EventKind::Offered(Fate::Lost) => 1,
        EventKind::Offered(Fate::QueueFull) => 2,
        EventKind::Offered(Fate::TooLong) => 3,
        EventKind::Offered(Fate::Carried { held_back, doubled, corrupted, marked }) => {
            let delayed = u8::from(held_back) << 2 | u8::from(doubled) << 1;
            8 | u8::from(marked) << 4 | delayed | u8::from(corrupted)
        }
    }
}

#[derive(Default)]
struct Log(Vec<(Duration, EventKind)>);

impl Observer for Log {
    fn event(&mut self, event: &Event<'_>) {
        assert_eq!(event.frame.len(), 100);
        self.0.push((event.at, event.kind));
    }
}

#[test]
fn every_frame_offered_and_arrived_is_observed() {
    let (mut simulation, one, _) = table(1, Loss::Chosen(vec![2, 3]));
    let log = Rc::new(RefCell::new(Log::default()));
    simulation.observe(Box::new(Rc::clone(&log)));
    simulation.run(LONG, |_| false);
    let log = &log.borrow().0;
    let count = |kind| log.iter().filter(|(_, seen)| *seen == kind).count();
    assert_eq!(count(EventKind::Offered(Fate::Lost)), 2);
    assert_eq!(count(EventKind::Arrived), 18 + 18);
    assert_eq!(simulation.node(one).heard.len(), 18);
    assert!(log.is_sorted_by_key(|(at, _)| *at));
}

/// Always wants to be woken at once.
struct Restless;

impl Node for Restless {
    fn receive(&mut self, _: Frame, _: &mut Context<'_>) {}
    fn wake(&mut self, _: &mut Context<'_>) {}
    fn wake_at(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

#[test]
fn a_node_that_spins_is_found() {
    let mut simulation = Simulation::new(0);
    simulation.add(Restless);
    assert_eq!(simulation.run(LONG, |_| false), Stop::Livelock);
}

#[test]
fn a_frame_for_a_port_that_is_not_there_is_gone() {
    let mut simulation = Simulation::new(0);
    let id = simulation.add(Player::new(0));
    simulation.call(id, |_, context| {
        assert_eq!(context.backlog_bytes(0), 0);
        assert_eq!(context.drained_to(0, 0), Duration::ZERO);
        context.send(0, ball(1));
    });
    assert_eq!(simulation.run(LONG, |_| false), Stop::Idle);
}
