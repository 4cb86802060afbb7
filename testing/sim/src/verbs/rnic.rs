//! A NIC in virtual time: one pipe for the requests of a host, a cache of connections, a link.
//!
//! A model: it says what follows from the causes that the DRUM paper names, and nothing about any device.
//! [`Model::paper`] has all of its constants, each with its source.
//!
//! The pipe takes requests in the order in which their doorbells are rung, those of a doorbell together. The
//! first one of a doorbell takes longer than those behind it, and it needs the state of its connection: one that
//! is not in the cache is fetched, and the one that was not used for longest makes room. What arrives needs the
//! state of its connection too, and takes its time on the link. Datagrams need no state.
use std::collections::VecDeque;
use std::time::Duration;

/// The constants of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// States of connections that it keeps.
    pub states: usize,
    /// Fetching one that it does not have.
    pub miss: Duration,
    /// A request alone, or the first one of a doorbell, in the pipe.
    pub alone: Duration,
    /// Each one behind it.
    pub linked: Duration,
    /// The link's time for a byte, in picoseconds.
    pub ps_per_byte: u64,
    /// From the end of the pipe to the peer.
    pub reaches: Duration,
    /// From the peer to the completion.
    pub returns: Duration,
}

impl Model {
    /// Returns the model of the DRUM paper's NIC.
    ///
    /// | constant | value | source |
    /// |---|---|---|
    /// | states | 20 | the paper's cache, Figure 2c: RC and UC drop beyond 20 connections |
    /// | miss | 1 us | the plan of experiments; not in the paper |
    /// | alone | 355 ns | at most: 20 connections of RAW, a request each, take 7.1 us (Figure 10) |
    /// | linked | 100 ns | [`Times::usual`](super::Times::usual) |
    /// | link | 200 ps a byte | the paper's 40 Gbit/s |
    /// | reaches, returns | 3,305 ns each | what is left of 7.1 us (Figure 10), beside the pipe and a post of 135 ns |
    #[must_use]
    pub fn paper() -> Self {
        Self {
            states: 20,
            miss: Duration::from_micros(1),
            alone: Duration::from_nanos(355),
            linked: Duration::from_nanos(100),
            ps_per_byte: 200,
            reaches: Duration::from_nanos(3305),
            returns: Duration::from_nanos(3305),
        }
    }

    fn on_link(&self, bytes: u64) -> Duration {
        // Rounded up: nothing is faster than the link.
        Duration::from_nanos(bytes.saturating_mul(self.ps_per_byte).div_ceil(1000))
    }
}

/// What a NIC did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Did {
    /// Requests of its host.
    pub requests: u64,
    /// Doorbells.
    pub doorbells: u64,
    /// States that were fetched, for requests of its host and for what arrived.
    pub misses: u64,
    /// Time that its pipe was at work.
    pub busy: Duration,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Rnic {
    model: Model,
    /// The states that it has, the one used last at the end.
    states: VecDeque<u32>,
    free: Duration,
    receives: Duration,
    did: Did,
}

impl Rnic {
    /// Creates a NIC that has no state yet.
    #[must_use]
    pub fn new(model: Model) -> Self {
        let states = VecDeque::with_capacity(model.states + 1);
        Self { model, states, free: Duration::ZERO, receives: Duration::ZERO, did: Did::default() }
    }

    /// Returns its constants.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns what it did so far.
    #[must_use]
    pub fn did(&self) -> Did {
        self.did
    }

    /// Takes a request of a connection, or a datagram, into the pipe: behind the one before it under the same
    /// doorbell, or not. Returns when it leaves the pipe.
    pub fn send(
        &mut self,
        now: Duration,
        connection: Option<u32>,
        linked: bool,
        bytes: u64,
    ) -> Duration {
        let start = self.free.max(now);
        let own = if linked { self.model.linked } else { self.model.alone };
        let takes = self.fetch(connection) + own.max(self.model.on_link(bytes));
        self.did.requests += 1;
        self.did.doorbells += u64::from(!linked);
        self.did.busy += takes;
        self.free = start + takes;
        self.free
    }

    /// Takes what arrives for a connection, and answers it with so many bytes. Returns when that is done.
    pub fn receive(
        &mut self,
        now: Duration,
        connection: Option<u32>,
        (taken, answered): (u64, u64),
    ) -> Duration {
        let fetched = self.fetch(connection);
        // The bytes came while those before them were on the link.
        let came = now.max(self.receives + self.model.on_link(taken)) + fetched;
        self.receives = came;
        if answered == 0 {
            return came;
        }
        self.free = self.free.max(came) + self.model.on_link(answered);
        self.free
    }

    /// Returns how long it takes until the state of a connection is there.
    fn fetch(&mut self, connection: Option<u32>) -> Duration {
        let Some(connection) = connection else { return Duration::ZERO };
        let known = self.states.iter().rposition(|state| *state == connection);
        if let Some(at) = known {
            self.states.remove(at);
        } else {
            self.did.misses += 1;
            if self.states.len() >= self.model.states {
                self.states.pop_front();
            }
        }
        self.states.push_back(connection);
        if known.is_some() { Duration::ZERO } else { self.model.miss }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests a second of so many connections that have one outstanding each, after all were served often.
    fn requests_per_s(connections: u32, state: impl Fn(u32) -> Option<u32>) -> f64 {
        let mut nic = Rnic::new(Model::paper());
        let model = nic.model();
        let mut posted = vec![Duration::ZERO; connections as usize];
        let rounds = 200;
        for _ in 0..rounds {
            for (connection, at) in (0..).zip(&mut posted) {
                *at = nic.send(*at, state(connection), false, 32) + model.reaches + model.returns;
            }
        }
        let last = posted.iter().max().map_or(1.0, Duration::as_secs_f64);
        f64::from(rounds * connections) / last
    }

    /// S5.23: beyond the cache, connections are slower; datagrams are not.
    #[test]
    fn s5_23_connections_beyond_the_cache_are_slow_and_datagrams_are_not() {
        let connected = |connections| requests_per_s(connections, Some);
        assert!(connected(100) < 0.6 * connected(20), "{} {}", connected(100), connected(20));
        let datagrams = |connections| requests_per_s(connections, |_| None);
        let ratio = datagrams(100) / datagrams(20);
        assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn the_state_that_was_not_used_for_longest_goes() {
        let model = Model { states: 2, ..Model::paper() };
        let mut nic = Rnic::new(model);
        for connection in [1, 2, 1, 3, 1, 2] {
            nic.send(Duration::ZERO, Some(connection), false, 0);
        }
        // 1, 2 and 3 once, and 2 again, which made room for 3.
        assert_eq!(nic.did().misses, 4);
    }

    #[test]
    fn requests_of_a_doorbell_share_it_and_the_link_bounds_bytes() {
        let mut nic = Rnic::new(Model::paper());
        let model = nic.model();
        assert_eq!(nic.send(Duration::ZERO, None, false, 32), model.alone);
        assert_eq!(nic.send(Duration::ZERO, None, true, 32), model.alone + model.linked);
        let before = model.alone + model.linked;
        // 40 Gbit/s.
        let megabyte = Duration::from_nanos((1u64 << 20).div_ceil(5));
        assert_eq!(nic.send(Duration::ZERO, None, false, 1 << 20), before + megabyte);
        assert_eq!(nic.did().doorbells, 2);
    }
}
