//! Hosts that stop sending to another, while messages are lost or late.
use super::network::MS;
use catchment_control::drum::{Application, Destination, Host, HostConfig, Input, Output};

const STEP: u64 = MS / 10;

/// Two hosts: the first sends to both, the second to itself.
struct Pair {
    hosts: [Host; 2],
    now: u64,
    under_way: Vec<(usize, Vec<u8>)>,
    /// Whether what the first sends is lost; it is kept.
    loses: bool,
    lost: Vec<Vec<u8>>,
}

fn application(destinations: &[u32]) -> Application {
    let to = |host: &u32| Destination { host: *host, application: 0, completions: 1.0 };
    let destinations = destinations.iter().map(to).collect();
    Application { application: 0, weight: 1.0, limit: None, destinations }
}

impl Pair {
    fn new() -> Self {
        let host = |host: u32| {
            let config = HostConfig {
                host,
                incarnation: 1,
                alpha: 1.0,
                beta: 0.01,
                send_capacity: 100.0,
                completion_capacity: 8.0,
                round_ns: MS,
                lease_ns: 10_000 * MS,
                restarted: false,
            };
            Host::new(config, 0).expect("good values")
        };
        let mut hosts = [host(0), host(1)];
        hosts[0].handle(0, Input::Join(application(&[0, 1]))).expect("good values");
        hosts[1].handle(0, Input::Join(application(&[1]))).expect("good values");
        Self { hosts, now: 0, under_way: Vec::new(), loses: false, lost: Vec::new() }
    }

    fn run(&mut self, until: u64) {
        while self.now < until {
            for (to, bytes) in std::mem::take(&mut self.under_way) {
                let from = 1 - to as u32;
                let packet = Input::Packet { from, bytes: &bytes };
                self.hosts[to].handle(self.now, packet).expect("packets never fail");
            }
            for at in 0..2 {
                loop {
                    match self.hosts[at].poll(self.now) {
                        Output::Timeout(due) if due > self.now => break,
                        Output::Timeout(_) => {
                            self.hosts[at].handle(self.now, Input::Tick).expect("ticks never fail");
                        }
                        Output::Rates => {}
                        Output::Send { bytes, .. } if at == 0 && self.loses => {
                            self.lost.push(bytes)
                        }
                        Output::Send { to, bytes } => self.under_way.push((to as usize, bytes)),
                    }
                }
            }
            self.now += STEP;
        }
    }

    /// What the second host gives to its own application, in Mops.
    fn rate(&self) -> f64 {
        self.hosts[1].rates()[0].1
    }
}

#[test]
fn who_left_is_forgotten_although_the_message_that_said_so_was_lost() {
    let mut pair = Pair::new();
    pair.run(50 * MS);
    assert!(pair.rate() < 7.0, "{}", pair.rate());
    pair.loses = true;
    pair.hosts[0].handle(pair.now, Input::Join(application(&[0]))).expect("good values");
    pair.run(55 * MS);
    assert!(!pair.lost.is_empty());
    pair.loses = false;
    pair.run(100 * MS);
    assert!(pair.rate() > 7.9, "{}", pair.rate());
}

#[test]
fn offers_from_before_a_host_left_bring_nothing_back() {
    let mut pair = Pair::new();
    pair.run(MS / 2);
    pair.loses = true;
    pair.run(20 * MS);
    let late = std::mem::take(&mut pair.lost);
    pair.loses = false;
    pair.run(50 * MS);
    pair.hosts[0].handle(pair.now, Input::Join(application(&[0]))).expect("good values");
    pair.run(100 * MS);
    let before = pair.rate();
    assert!(before > 7.9 && !late.is_empty(), "{before}");
    pair.under_way.extend(late.into_iter().map(|bytes| (1, bytes)));
    pair.run(150 * MS);
    assert_eq!(pair.rate(), before);
    assert!(pair.hosts[1].is_still());
}
