//! Hosts by themselves: what is in force fits every capacity at every moment, and ends near the optimum.
mod any_input;
mod carried;
mod corpus;
mod leaving;
mod network;
mod newcomer;
mod two;

use crate::family::Family;
use catchment_control::drum::{Application, Host, HostConfig, Input, Problem};
use network::{MS, Network, application, config};

fn problem(alpha: f64, seed: u64) -> Problem {
    Family::new(6, 5, alpha, 2, seed).draw()
}

/// S5.17: each host knows its own applications, and what messages told it.
#[test]
fn hosts_by_themselves_find_the_optimum_and_stay_there() {
    for (alpha, most) in [(0.5, 10), (1.0, 10), (2.0, 10), (5.0, 15)] {
        let problem = problem(alpha, 3);
        let mut network = Network::new(&problem, 1, 0.0);
        network.run((most - 1) * MS);
        let rounds = network.hosts.iter().map(|host| host.counts().rounds).max().unwrap();
        assert!(rounds <= most, "alpha {alpha}: {rounds}");
        for ms in most..40 {
            let fraction = network.fraction();
            assert!(fraction > 0.995, "alpha {alpha}, {ms} ms: {fraction}");
            network.run(ms * MS);
        }
    }
}

/// S5.20.
#[test]
fn first_rates_are_there_after_the_first_exchange() {
    let problem = problem(1.0, 5);
    let mut network = Network::new(&problem, 1, 0.0);
    // A receiver waits a round time for whoever else begins.
    network.run(2 * MS);
    assert!(network.rates().iter().all(|rate| *rate > 0.0), "{:?}", network.rates());
    // Not far from what hosts alone would give.
    assert!(network.fraction() > 0.5, "{}", network.fraction());
}

#[test]
fn nothing_that_messages_do_exceeds_a_capacity() {
    for seed in 1..=3 {
        let problem = problem(1.0, seed);
        let mut network = Network::new(&problem, seed, 0.1);
        network.run(30 * MS);
        network.crash(2, 2);
        network.run(60 * MS);
        network.crash(2, 3);
        network.run(200 * MS);
        let fraction = network.fraction();
        assert!(fraction > 0.99, "seed {seed}: {fraction}");
    }
}

#[test]
fn what_a_former_life_granted_is_not_granted_again_before_its_lease_is_over() {
    for seed in 1..=3 {
        // Most of the traffic goes to the first host.
        let hot = Some((0.9, 1));
        let problem = Family { hot, ..Family::new(6, 5, 1.0, 2, seed) }.draw();
        let mut network = Network::new(&problem, seed, 0.0);
        network.run(50 * MS);
        // Who does not hear of the new life goes on by what the former one granted.
        network.apart = Some((0, 1));
        network.crash(0, 2);
        network.run(150 * MS);
        network.apart = None;
        network.run(300 * MS);
        // Where most goes to one host, rounds are many.
        assert!(network.fraction() > 0.95, "seed {seed}: {}", network.fraction());
    }
}

/// S5.20: a message that does not come in time is replaced by the last one.
#[test]
fn with_a_third_of_messages_lost_a_host_falls_back_and_comes_back() {
    let problem = problem(2.0, 6);
    let mut network = Network::new(&problem, 3, 0.0);
    network.run(30 * MS);
    network.loss = 0.4;
    network.wake();
    network.run(150 * MS);
    let fell_back = |network: &Network<'_>| {
        network.hosts.iter().map(|host| host.counts().fell_back).sum::<u64>()
    };
    assert!(fell_back(&network) > 0);
    network.loss = 0.0;
    network.wake();
    network.run(300 * MS);
    assert!(!network.hosts.iter().any(Host::has_fallen_back));
    assert!(network.fraction() > 0.999, "{}", network.fraction());
}

#[test]
fn hosts_that_are_still_only_renew_their_leases() {
    let problem = problem(1.0, 4);
    let mut network = Network::new(&problem, 1, 0.0);
    network.run(500 * MS);
    assert!(network.hosts.iter().all(Host::is_still));
    let rounds = |network: &Network<'_>| -> Vec<u64> {
        network.hosts.iter().map(|host| host.counts().rounds).collect()
    };
    let (before, bytes) = (rounds(&network), network.bytes);
    network.run(600 * MS);
    assert_eq!(rounds(&network), before);
    // Headers, ten times in 100 ms, both ways, between 30 pairs at most.
    assert!(network.bytes - bytes <= 11 * 30 * 2 * 40, "{}", network.bytes - bytes);
    // A change wakes them.
    let other = Application { weight: 20.0, ..application(&problem, 0, 0) };
    network.change(0, Input::Join(other));
    network.run(601 * MS);
    assert!(rounds(&network)[0] > before[0]);
}

#[test]
fn a_host_that_is_cut_off_loses_its_grants_and_gets_them_back() {
    let problem = problem(1.0, 7);
    let mut network = Network::new(&problem, 1, 0.0);
    network.run(50 * MS);
    let before = network.rates();
    network.cut = Some(1);
    // Longer than a lease of 40 ms: who sends to it rests, and others take what is free.
    network.run(250 * MS);
    let (cut, apart) = (network.rates(), |host: usize| host == 1);
    for (at, rate) in cut.iter().enumerate() {
        let from = at / problem.applications;
        let edges = problem.edges.from.iter().zip(&problem.edges.to);
        let mut ends = edges.filter(|edge| *edge.0 as usize == at).map(|edge| *edge.1 as usize);
        let crosses = ends.any(|to| apart(to / problem.applications) != apart(from));
        assert_eq!(*rate == 0.0, crosses, "application {at}: {rate}");
    }
    assert!(cut.iter().zip(&before).any(|(now, before)| *now > 1.2 * before));
    network.cut = None;
    network.run(400 * MS);
    assert!(network.fraction() > 0.999, "{}", network.fraction());
}

#[test]
fn what_a_host_that_is_gone_had_goes_to_others_at_once() {
    let problem = problem(1.0, 8);
    let mut network = Network::new(&problem, 1, 0.0);
    network.run(50 * MS);
    let before = network.rates();
    network.dead = Some(2);
    for host in [0, 1, 3, 4, 5] {
        network.change(host, Input::Gone(2));
    }
    // Much less than a lease.
    network.run(60 * MS);
    let after = network.rates();
    assert!(after.iter().zip(&before).any(|(after, before)| *after > 1.2 * before));
}

#[test]
fn a_capacity_that_falls_is_kept_as_soon_as_others_heard() {
    let problem = problem(1.0, 9);
    let mut lower = problem.clone();
    lower.completion_capacity[0] *= 0.5;
    let mut network = Network::new(&problem, 1, 0.0);
    network.run(50 * MS);
    let (send, completion) = (problem.send_capacity[0], lower.completion_capacity[0]);
    network.change(0, Input::Capacities { send, completion });
    network.run(54 * MS);
    network.problem = &lower;
    network.run(100 * MS);
    assert!(network.fraction() > 0.999, "{}", network.fraction());
}

#[test]
fn values_that_are_not_possible_are_refused_by_name() {
    let problem = problem(1.0, 1);
    let good = config(&problem, 0, 1);
    for (what, bad) in [
        ("alpha", HostConfig { alpha: f64::NAN, ..good }),
        ("beta", HostConfig { beta: -1.0, ..good }),
        ("send capacity", HostConfig { send_capacity: f64::INFINITY, ..good }),
        ("completion capacity", HostConfig { completion_capacity: 0.0, ..good }),
        ("lease", HostConfig { lease_ns: good.round_ns, ..good }),
        ("incarnation", HostConfig { incarnation: 0, ..good }),
    ] {
        assert_eq!(Host::new(bad, 0).unwrap_err().what, what);
    }
    let mut host = Host::new(good, 0).unwrap();
    let mut join = |application| host.handle(0, Input::Join(application)).unwrap_err().what;
    let good = application(&problem, 0, 0);
    assert_eq!(join(Application { weight: f64::NAN, ..good.clone() }), "weight");
    assert_eq!(join(Application { limit: Some(0.0), ..good.clone() }), "limit");
    let twice = [good.destinations.clone(), good.destinations.clone()].concat();
    assert_eq!(join(Application { destinations: twice, ..good }), "destination given twice");
}
