//! One cell of the table: a link, a queue pair at each end, a long transfer.
use crate::roce::{Host, HostConfig, Space, Writer, address, connected};
use crate::{BurstLength, LinkConfig, Loss, NodeId, Random, Simulation, Stop};
use catchment_roce::wire::PathMtu;
use catchment_roce::{Config, Recovery, Service};
use serde::Serialize;
use std::time::Duration;

/// The parameters of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cell {
    /// How losses are recovered.
    pub(crate) recovery: Recovery,
    /// Rate of the link in both directions.
    pub(crate) rate_bps: u64,
    /// Round trip of an idle link, without serialization.
    pub(crate) rtt_ms: u64,
    pub(crate) path_mtu: PathMtu,
    /// Packets lost in a row.
    pub(crate) burst: u32,
    /// Fraction of packets lost, in each direction.
    pub(crate) loss: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) recovery: &'static str,
    pub(crate) rate_bps: u64,
    pub(crate) rtt_ms: u64,
    /// Payload bytes of a full packet.
    pub(crate) path_mtu: usize,
    pub(crate) burst: u32,
    pub(crate) loss: f64,
    pub(crate) goodput_fraction: f64,
    /// The goal, for selective repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<f64>,
    /// Retransmitted packets as a fraction of those sent, over the whole run.
    pub(crate) retransmitted_fraction: f64,
    /// Packets retransmitted although they had arrived, as a fraction of those sent.
    pub(crate) spurious_fraction: f64,
    /// Retransmission timeouts over the whole run.
    pub(crate) timeouts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken: Option<String>,
}

/// Bytes of a packet of a train of WRITEs besides its payload.
const OVERHEAD_BYTES: usize = 40 + 8 + 12 + 16 + 4;
/// Transmit ring of the network card.
const UPLINK_BYTES: usize = 64 << 10;
/// Retransmission timeout of the product's queue pairs, while nothing was measured: code 14.
const TIMEOUT: Duration = Duration::from_millis(67);
/// Round trips before the span begins.
const WARM_UP_RTTS: u32 = 20;

impl Cell {
    /// Returns a path that holds more than a window of 4 MiB, between two of ours.
    pub(crate) fn long(rate_bps: u64, rtt_ms: u64) -> Self {
        let (recovery, path_mtu) = (Recovery::SelectiveRepeat, PathMtu::Mtu1024);
        Self { recovery, rate_bps, rtt_ms, path_mtu, burst: 1, loss: 0.0 }
    }

    pub(crate) fn recovery_name(&self) -> &'static str {
        match self.recovery {
            Recovery::SelectiveRepeat => "selective-repeat",
            Recovery::GoBackN => "go-back-n",
        }
    }

    pub(crate) fn goal(&self) -> Option<f64> {
        match self.recovery {
            Recovery::GoBackN => None,
            Recovery::SelectiveRepeat if self.loss <= 0.01 => Some(0.95),
            Recovery::SelectiveRepeat => {
                Some((0.98 * (1.0 - self.loss) * 10_000.0).round() / 10_000.0)
            }
        }
    }

    /// Measures `span` of virtual time after the warm-up.
    ///
    /// # Panics
    /// When a wrong byte arrives or time stands still.
    pub(crate) fn run(&self, span: Duration, seed: u64) -> Row {
        let mut transfer = Transfer::new(self, seed);
        let warm_up = WARM_UP_RTTS * Duration::from_millis(self.rtt_ms);
        let before = transfer.bytes_at(warm_up);
        let after = transfer.bytes_at(warm_up + span);
        transfer.verify();
        let mtu = self.path_mtu.bytes();
        let share = mtu as f64 / (mtu + OVERHEAD_BYTES) as f64;
        let possible = span.as_secs_f64() * self.rate_bps as f64 * share;
        transfer.row(self, (after - before) as f64 * 8.0 / possible)
    }

    fn link(&self) -> LinkConfig {
        LinkConfig {
            rate_bps: Some(self.rate_bps),
            delay: Duration::from_millis(self.rtt_ms) / 2,
            mtu: Some(self.path_mtu.bytes() + 100),
            loss: Loss::Bursts { fraction: self.loss, length: BurstLength::Fixed(self.burst) },
            ..LinkConfig::default()
        }
    }
}

struct Transfer {
    simulation: Simulation<Host<Writer>>,
    from: NodeId,
    to: NodeId,
}

impl Transfer {
    fn new(cell: &Cell, seed: u64) -> Self {
        let (mut near, mut far) = (Space::default(), Space::default());
        let writer = Writer::new(&mut near, &mut far, &mut Random::new(seed));
        let mut simulation = Simulation::new(seed);
        let from = simulation.add(host(cell, 0, near, writer));
        let to = simulation.add(host(cell, 1, far, Writer::idle()));
        simulation.connect(from, to, cell.link());
        simulation.connect(to, from, cell.link());
        simulation.call(from, Host::pump);
        Self { simulation, from, to }
    }

    /// Returns the payload bytes in place at a time.
    fn bytes_at(&mut self, at: Duration) -> u64 {
        let stop = self.simulation.run(at, |_| false);
        assert_ne!(stop, Stop::Livelock, "time stands still");
        self.simulation.node(self.to).qps.get(0).counters().bytes_received
    }

    /// Checks that what was written is what was sent.
    fn verify(&self) {
        let sender = self.simulation.node(self.from);
        let wrong = sender.program.wrong_byte(&sender.space, &self.simulation.node(self.to).space);
        assert_eq!(wrong, None, "a wrong byte was written");
    }

    fn row(&self, cell: &Cell, goodput_fraction: f64) -> Row {
        let sender = self.simulation.node(self.from);
        let counters = sender.qps.get(0).counters();
        let sent = (counters.packets_sent as f64).max(1.0);
        let round = |value: f64| (value * 10_000.0).round() / 10_000.0;
        Row {
            goodput_fraction: round(goodput_fraction),
            retransmitted_fraction: round(counters.retransmitted as f64 / sent),
            spurious_fraction: round(counters.spurious as f64 / sent),
            timeouts: counters.timeouts,
            broken: sender.program.broken.map(|status| status.to_string()),
            ..Row::new(cell)
        }
    }
}

impl Row {
    pub(crate) fn new(cell: &Cell) -> Self {
        Self {
            recovery: cell.recovery_name(),
            rate_bps: cell.rate_bps,
            rtt_ms: cell.rtt_ms,
            path_mtu: cell.path_mtu.bytes(),
            burst: cell.burst,
            loss: cell.loss,
            goodput_fraction: 0.0,
            goal: cell.goal(),
            retransmitted_fraction: 0.0,
            spurious_fraction: 0.0,
            timeouts: 0,
            broken: None,
        }
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.goal.is_some_and(|goal| self.goodput_fraction < goal)
    }
}

fn host(cell: &Cell, number: usize, space: Space, writer: Writer) -> Host<Writer> {
    let config = HostConfig {
        address: address(number),
        poll_interval: Duration::ZERO,
        uplink_bytes: UPLINK_BYTES,
        ecn: false,
        dscp: 0,
    };
    let mut host = Host::new(config, space, writer);
    let [ours, theirs] = [number, 1 - number].map(|number| 100 + number as u32);
    let config = Config::new(ours, Service::Rc);
    let qp = connected(config, theirs, cell.recovery, cell.path_mtu, TIMEOUT);
    host.attach(qp, address(1 - number));
    host
}
