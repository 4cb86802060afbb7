//! Two hosts, and an application that begins to ask for more than next to nothing: as the agents of two hosts tell of one
//! that connects, and then sends.
use super::network::MS;
use super::two::{Event, Two, application, span};
use crate::family::Chance;
use catchment_control::drum::{Application, Host, HostConfig};

const US: u64 = 1_000;

/// In Mops: what who has nothing to send asks for.
const IDLE: f64 = 1.0 / 64.0;

fn host(host: u32, (send_capacity, completion_capacity): (f64, f64)) -> Host {
    let config = HostConfig {
        host,
        incarnation: 1,
        alpha: 1.0,
        beta: 1e-6,
        send_capacity,
        completion_capacity,
        round_ns: MS,
        lease_ns: 2_000 * MS,
        restarted: false,
    };
    Host::new(config, 0).expect("good values")
}

/// Three applications that send to targets of the second host, which takes in little: two of the first host, and one there
/// with its own.
mod three {
    use super::*;

    /// In Mops: what the second host takes in.
    const TAKES_IN: f64 = 6.0;
    const STEP: u64 = MS / 100;

    const THREE: u32 = 0;
    const ONE: u32 = 1;
    const TWO: u32 = 2;
    const TARGETS: u32 = 10;

    fn weighs(weight: f64, application: Application) -> Application {
        Application { weight, ..application }
    }

    fn begin() -> Two {
        let hosts = [host(1, (100.0, 100.0)), host(2, (100.0, TAKES_IN))];
        let mut two = Two::new(hosts, (MS / 10, MS / 10), Chance::new(1));
        two.join(0, weighs(3.0, application(THREE, None, (2, TARGETS + THREE))));
        two.join(0, application(ONE, Some(IDLE), (2, TARGETS + ONE)));
        two.join(1, weighs(2.0, application(TWO, None, (2, TARGETS + TWO))));
        // Targets complete here what they send there.
        for (target, back) in [(THREE, (1, THREE)), (ONE, (1, ONE)), (TWO, (2, TWO))] {
            two.join(1, application(TARGETS + target, Some(IDLE), back));
        }
        two
    }

    /// What rates are worth less than their optimum, as a fraction of each.
    fn loss(two: &Two) -> f64 {
        let rates = [two.rate(0, THREE), two.rate(0, ONE), two.rate(1, TWO)];
        let whole = (TAKES_IN - IDLE) / 6.0;
        let lost = rates.iter().zip([3.0, 1.0, 2.0]).map(|(rate, w)| w * (w * whole / rate).ln());
        1.0 - (-lost.sum::<f64>() / 6.0).exp()
    }

    #[test]
    fn who_asks_for_more_begins_at_what_others_pay() {
        let mut two = begin();
        two.run(60 * MS);
        assert!((two.rate(0, ONE) - IDLE).abs() < 1e-6, "{}", two.rate(0, ONE));
        let others = [two.rate(0, THREE), two.rate(1, TWO)];
        assert!((others[0] - 3.58).abs() < 0.02 && (others[1] - 2.39).abs() < 0.02, "{others:?}");
        let before = two.rounds();
        two.join(0, application(ONE, None, (2, TARGETS + ONE)));
        while two.rounds() < before + 6 {
            two.run(two.now + STEP);
        }
        // Near the optimum, and from now on.
        for _ in 0..30 {
            assert!(loss(&two) < 0.005, "{} ms: {}", two.now / MS, loss(&two));
            two.run(two.now + MS);
        }
        assert!((two.rate(0, ONE) - (TAKES_IN - IDLE) / 6.0).abs() < 1e-3, "{}", two.rate(0, ONE));
    }

    #[test]
    fn whenever_it_asks_for_more_the_optimum_comes() {
        // It joins before the others have agreed, while they do, and after that.
        for joined in [5 * MS, 60 * MS, 60 * MS + 130_000, 61 * MS + 570_000] {
            for waited in (0..60).map(|at| at * MS / 4) {
                let mut two = begin();
                two.plan(0, 0, Event::Leave(ONE));
                two.plan(0, 1, Event::Leave(TARGETS + ONE));
                two.run(joined);
                two.join(0, application(ONE, Some(IDLE), (2, TARGETS + ONE)));
                two.join(1, application(TARGETS + ONE, Some(IDLE), (1, ONE)));
                two.run(joined + waited);
                two.join(0, application(ONE, None, (2, TARGETS + ONE)));
                two.run(two.now + 100 * MS);
                let loss = loss(&two);
                assert!(loss < 0.005, "joined {joined}, waited {waited}: {loss}");
            }
        }
    }
}

/// One application of the first host that sends to one of the second, as connections come and go.
mod one {
    use super::*;

    /// The most that passes between two things that an agent tells.
    const LONG: u64 = 20 * MS;

    /// What agents tell of, in order; the time at which the next can come.
    struct Story {
        two: Two,
        chance: Chance,
        at: u64,
    }

    impl Story {
        fn begin(seed: u64) -> (Self, f64) {
            let mut chance = Chance::new(seed);
            // Up to 1 TB/s, in 64 bytes: more than any device can do.
            let capacity = 10_f64.powf(chance.between(1.0, 4.2));
            let slowest = 20 * US * span(&mut chance, 2, 100);
            let hosts = [1, 2].map(|number| host(number, (capacity, capacity)));
            let two = Two::new(hosts, (20 * US, slowest), Chance::new(!seed));
            (Self { two, chance, at: 0 }, capacity)
        }

        fn pause(&mut self, longest: u64) -> u64 {
            self.at + span(&mut self.chance, 20 * US, longest)
        }

        /// Both do this, each when it comes to it.
        fn both(&mut self, first: Event, second: Event) {
            let times = [self.pause(LONG), self.pause(LONG)];
            self.two.plan(times[0], 0, first);
            self.two.plan(times[1], 1, second);
            self.at = times[0].max(times[1]);
        }

        fn ask(&mut self, at: usize, limit: Option<f64>, number: u32, to: u32) {
            let host = 2 - at as u32;
            self.two.plan(self.at, at, Event::Join(application(number, limit, (host, to))));
        }

        /// An application of each host, and a connection between them.
        fn connect(&mut self, here: u32, there: u32) {
            let idle = |number, to| Event::Join(application(number, Some(IDLE), to));
            // While nobody knows where a queue pair leads, it leads home.
            self.both(idle(here, (1, here)), idle(there, (2, there)));
            self.both(idle(here, (2, there)), idle(there, (1, here)));
            self.at = self.pause(LONG);
        }

        /// One of them asks for more, and for less again.
        fn ask_for_a_while(&mut self, at: usize, number: u32, to: u32) {
            self.ask(at, None, number, to);
            self.at = self.pause(50 * MS);
            let again = IDLE * span(&mut self.chance, 1, 1000) as f64;
            self.ask(at, Some(again), number, to);
            self.at = self.pause(LONG);
        }

        /// Connects some time after the other, each time with another target; the last one asks for all that there is.
        /// Returns it.
        fn tell(&mut self) -> u32 {
            let connections = 1 + self.chance.below(3) as u32;
            for here in 1..=connections {
                let mut there = here;
                self.connect(here, there);
                for _ in 0..self.chance.below(4) {
                    match self.chance.below(3) {
                        0 => self.ask_for_a_while(0, here, there),
                        1 => self.ask_for_a_while(1, there, here),
                        _ => {
                            self.two.plan(self.at, 1, Event::Leave(there));
                            there += 100;
                            self.connect(here, there);
                        }
                    }
                }
                self.ask(0, None, here, there);
                if here < connections {
                    self.at = self.pause(100 * MS);
                    self.both(Event::Leave(here), Event::Leave(there));
                }
            }
            connections
        }
    }

    /// A receiver that had followed three changes in a row took the next as a step: the offer had jumped to a thousand times
    /// what it was, its penalty had not, and the price became so high that the rate came to rest at a millionth. So it did
    /// where a sender that returned from its own shares offered for a round as if nothing had changed: the last seeds.
    #[test]
    fn who_asks_for_all_gets_it_whatever_came_before() {
        for seed in (0..400).chain([6175, 8580, 10_009, 17_562, 19_399]) {
            let (mut story, capacity) = Story::begin(seed);
            let last = story.tell();
            story.two.run(story.at + 300 * MS);
            let rate = story.two.rate(0, last);
            assert!(rate > 0.99 * (capacity - IDLE), "seed {seed}: {rate} of {capacity}");
            let still = story.two.hosts.iter().all(Host::is_still);
            assert!(still, "seed {seed}: rounds go on");
        }
    }
}
