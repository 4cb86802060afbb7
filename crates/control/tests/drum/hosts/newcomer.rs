//! Two hosts, of which one takes in little, and an application that begins to ask for more than next to nothing: as the
//! agents of two hosts tell of one that connects, and then sends.
use super::network::MS;
use catchment_control::drum::{Application, Destination, Host, HostConfig, Input, Output};

/// In Mops: what who has nothing to send asks for, and what the second host takes in.
const IDLE: f64 = 1.0 / 64.0;
const TAKES_IN: f64 = 6.0;
const STEP: u64 = MS / 100;
const DELAY: u64 = MS / 10;

/// Numbers of applications: two of the first host that send to targets of the second, and one there with its own.
const THREE: u32 = 0;
const ONE: u32 = 1;
const TWO: u32 = 2;
const TARGETS: u32 = 10;

struct Two {
    hosts: [Host; 2],
    now: u64,
    /// When it arrives, at which host.
    under_way: Vec<(u64, usize, Vec<u8>)>,
    due: [u64; 2],
}

fn application(number: u32, weight: f64, limit: Option<f64>, to: (u32, u32)) -> Application {
    let destinations = vec![Destination { host: to.0, application: to.1, completions: 1.0 }];
    Application { application: number, weight, limit, destinations }
}

impl Two {
    fn new() -> Self {
        let host = |host: u32, completion_capacity: f64| {
            let config = HostConfig {
                host,
                incarnation: 1,
                alpha: 1.0,
                beta: 1e-6,
                send_capacity: 100.0,
                completion_capacity,
                round_ns: MS,
                lease_ns: 2_000 * MS,
                restarted: false,
            };
            Host::new(config, 0).expect("good values")
        };
        let hosts = [host(1, 100.0), host(2, TAKES_IN)];
        let mut two = Self { hosts, now: 0, under_way: Vec::new(), due: [0; 2] };
        two.join(0, application(THREE, 3.0, None, (2, TARGETS + THREE)));
        two.join(0, application(ONE, 1.0, Some(IDLE), (2, TARGETS + ONE)));
        two.join(1, application(TWO, 2.0, None, (2, TARGETS + TWO)));
        // Targets complete here what they send there.
        two.join(1, application(TARGETS + THREE, 1.0, Some(IDLE), (1, THREE)));
        two.join(1, application(TARGETS + ONE, 1.0, Some(IDLE), (1, ONE)));
        two.join(1, application(TARGETS + TWO, 1.0, Some(IDLE), (2, TWO)));
        two
    }

    fn join(&mut self, at: usize, application: Application) {
        self.hosts[at].handle(self.now, Input::Join(application)).expect("good values");
        self.due[at] = self.now;
    }

    fn run(&mut self, until: u64) {
        while self.now < until {
            let now = self.now;
            let arrived: Vec<_> = self.under_way.extract_if(.., |one| one.0 <= now).collect();
            for (_, to, bytes) in arrived {
                let packet = Input::Packet { from: 2 - to as u32, bytes: &bytes };
                self.hosts[to].handle(now, packet).expect("packets never fail");
                self.drain(to);
            }
            for at in 0..2 {
                if self.due[at] <= now {
                    self.hosts[at].handle(now, Input::Tick).expect("ticks never fail");
                    self.drain(at);
                }
            }
            self.now += STEP;
        }
    }

    fn drain(&mut self, at: usize) {
        loop {
            match self.hosts[at].poll(self.now) {
                Output::Timeout(due) => return self.due[at] = due,
                Output::Rates => {}
                Output::Send { to, bytes } => {
                    self.under_way.push((self.now + DELAY, to as usize - 1, bytes));
                }
            }
        }
    }

    fn rate(&self, at: usize, application: u32) -> f64 {
        let rates = self.hosts[at].rates();
        rates.iter().find(|one| one.0 == application).map_or(0.0, |one| one.1)
    }

    /// What rates are worth less than their optimum, as a fraction of each.
    fn loss(&self) -> f64 {
        let rates = [self.rate(0, THREE), self.rate(0, ONE), self.rate(1, TWO)];
        let whole = (TAKES_IN - IDLE) / 6.0;
        let lost = rates.iter().zip([3.0, 1.0, 2.0]).map(|(rate, w)| w * (w * whole / rate).ln());
        1.0 - (-lost.sum::<f64>() / 6.0).exp()
    }

    fn rounds(&self) -> u64 {
        self.hosts.iter().map(|host| host.counts().rounds).max().unwrap_or(0)
    }
}

#[test]
fn who_asks_for_more_begins_at_what_others_pay() {
    let mut two = Two::new();
    two.run(60 * MS);
    assert!((two.rate(0, ONE) - IDLE).abs() < 1e-6, "{}", two.rate(0, ONE));
    let others = [two.rate(0, THREE), two.rate(1, TWO)];
    assert!((others[0] - 3.58).abs() < 0.02 && (others[1] - 2.39).abs() < 0.02, "{others:?}");
    let before = two.rounds();
    two.join(0, application(ONE, 1.0, None, (2, TARGETS + ONE)));
    while two.rounds() < before + 6 {
        two.run(two.now + STEP);
    }
    // Near the optimum, and from now on.
    for _ in 0..30 {
        assert!(two.loss() < 0.005, "{} ms: {}", two.now / MS, two.loss());
        two.run(two.now + MS);
    }
    assert!((two.rate(0, ONE) - (TAKES_IN - IDLE) / 6.0).abs() < 1e-3, "{}", two.rate(0, ONE));
}

#[test]
fn whenever_it_asks_for_more_the_optimum_comes() {
    // It joins before the others have agreed, while they do, and after that.
    for joined in [5 * MS, 60 * MS, 60 * MS + 130_000, 61 * MS + 570_000] {
        for waited in (0..60).map(|at| at * MS / 4) {
            let mut two = Two::new();
            two.hosts[0].handle(0, Input::Leave(ONE)).expect("good values");
            two.hosts[1].handle(0, Input::Leave(TARGETS + ONE)).expect("good values");
            two.run(joined);
            two.join(0, application(ONE, 1.0, Some(IDLE), (2, TARGETS + ONE)));
            two.join(1, application(TARGETS + ONE, 1.0, Some(IDLE), (1, ONE)));
            two.run(joined + waited);
            two.join(0, application(ONE, 1.0, None, (2, TARGETS + ONE)));
            two.run(two.now + 100 * MS);
            assert!(two.loss() < 0.005, "joined {joined}, waited {waited}: {}", two.loss());
        }
    }
}
