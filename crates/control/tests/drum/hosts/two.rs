//! Two hosts, numbered 1 and 2, and what passes between them: in order, now soon and now late, as timers are. Offers to
//! applications that do not exist are left out, as agents do.
use crate::family::Chance;
use catchment_control::drum::{Application, Destination, Host, Input, Message, Output};
use std::collections::{BTreeMap, BTreeSet};

/// What happens to one of them at a time.
pub(super) enum Event {
    Join(Application),
    Leave(u32),
    Packet(Vec<u8>),
    Timer,
}

pub(super) struct Two {
    pub(super) hosts: [Host; 2],
    pub(super) now: u64,
    /// By time, and in the order that they were thought of.
    events: BTreeMap<(u64, u64), (usize, Event)>,
    number: u64,
    applications: [BTreeSet<u32>; 2],
    /// When the next timer of each goes off, and when the last packet to each arrives.
    timers: [u64; 2],
    arrived: [u64; 2],
    /// The least and the most that something takes, in ns.
    delays: (u64, u64),
    chance: Chance,
}

/// Draws a whole number from `low` to `high`, as often in one decade as in another.
pub(super) fn span(chance: &mut Chance, low: u64, high: u64) -> u64 {
    (low as f64 * (high as f64 / low as f64).powf(chance.draw())) as u64
}

/// An application of weight 1 that sends to another one.
pub(super) fn application(number: u32, limit: Option<f64>, (host, to): (u32, u32)) -> Application {
    let destinations = vec![Destination { host, application: to, completions: 1.0 }];
    Application { application: number, weight: 1.0, limit, destinations }
}

impl Two {
    pub(super) fn new(hosts: [Host; 2], delays: (u64, u64), chance: Chance) -> Self {
        Self {
            hosts,
            now: 0,
            events: BTreeMap::new(),
            number: 0,
            applications: [BTreeSet::new(), BTreeSet::new()],
            timers: [u64::MAX; 2],
            arrived: [0; 2],
            delays,
            chance,
        }
    }

    /// Has something happen at a time, to the first or the second.
    pub(super) fn plan(&mut self, when: u64, at: usize, event: Event) {
        self.number += 1;
        self.events.insert((when, self.number), (at, event));
    }

    /// Has an application come, or be another one, now.
    pub(super) fn join(&mut self, at: usize, application: Application) {
        self.plan(self.now, at, Event::Join(application));
        self.run(self.now);
    }

    /// Runs until a time, with what happens then.
    pub(super) fn run(&mut self, until: u64) {
        while let Some(((when, _), _)) = self.events.first_key_value()
            && *when <= until
        {
            let ((when, _), (at, event)) = self.events.pop_first().expect("was there");
            self.now = when;
            self.happen(at, event);
        }
        self.now = until;
    }

    fn happen(&mut self, at: usize, event: Event) {
        match event {
            Event::Packet(bytes) => self.arrive(at, &bytes),
            Event::Timer => {}
            Event::Join(application) => {
                self.applications[at].insert(application.application);
                self.handle(at, Input::Join(application));
            }
            Event::Leave(number) => {
                self.applications[at].remove(&number);
                self.handle(at, Input::Leave(number));
            }
        }
        self.handle(at, Input::Tick);
        self.drain(at);
    }

    fn handle(&mut self, at: usize, input: Input<'_>) {
        self.hosts[at].handle(self.now, input).expect("good values");
    }

    fn arrive(&mut self, at: usize, bytes: &[u8]) {
        let mut message = Message::decode(bytes).expect("as a host sent it");
        if let Message::Offers(_, offers) = &mut message {
            offers.retain(|offer| self.applications[at].contains(&offer.to));
        }
        let from = 2 - at as u32;
        self.handle(at, Input::Packet { from, bytes: &message.encode() });
    }

    fn drain(&mut self, at: usize) {
        self.timers[at] = u64::MAX;
        loop {
            match self.hosts[at].poll(self.now) {
                Output::Rates => {}
                Output::Send { to, bytes } => {
                    let to = to as usize - 1;
                    let when = (self.now + self.delay()).max(self.arrived[to]);
                    self.arrived[to] = when;
                    self.plan(when, to, Event::Packet(bytes));
                }
                Output::Timeout(due) => {
                    if due < self.timers[at] {
                        self.timers[at] = due;
                        let late = self.delay() - self.delays.0;
                        self.plan(due.saturating_add(late), at, Event::Timer);
                    }
                    return;
                }
            }
        }
    }

    fn delay(&mut self) -> u64 {
        span(&mut self.chance, self.delays.0, self.delays.1)
    }

    pub(super) fn rate(&self, at: usize, application: u32) -> f64 {
        let rates = self.hosts[at].rates();
        rates.iter().find(|one| one.0 == application).map_or(0.0, |one| one.1)
    }

    pub(super) fn rounds(&self) -> u64 {
        self.hosts.iter().map(|host| host.counts().rounds).max().unwrap_or(0)
    }
}
