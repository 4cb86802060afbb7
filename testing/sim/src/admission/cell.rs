//! One method under one load: what is measured, and its row.
use super::outcome::{Judged, Pooled};
use super::packet::{Carrier, Packets, Plan};
use super::row::{Goal, Shown};
use super::trace::{self, Event, FRAME_BYTES, Mix, Offer, SOURCES};
use super::world::{self, Setup, SourceModel};
use catchment_control::admission::{
    ClassId, Config, DeviceId, DeviceSpec, LinkConfig, LinkId, PathId, Pausing, Rules, SourceId,
};
use catchment_probe::random::Random;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const LINK_BPS: u64 = 20_000_000_000;

/// Which links lie between sources and collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Pipes of 20 Gbit/s with one queue, 12 sources for each.
    Pool(u32),
    /// Four sites of 12 sources with 20 Gbit/s each, into 40 Gbit/s.
    TwoHops,
    /// Collectors with 20 Gbit/s each behind 40 Gbit/s, and 24 sources that send to them by turns.
    Collectors {
        count: u32,
        /// Who grants knows the link that they share.
        known: bool,
    },
}

/// What the sites of [`Links::TwoHops`] offer, in percent.
const SITES: [u64; 4] = [45, 25, 20, 10];

impl Links {
    pub(super) fn name(self) -> String {
        match self {
            Self::Pool(1) => "1".to_owned(),
            Self::Pool(pipes) => format!("pool-{pipes}"),
            Self::TwoHops => "2-hop".to_owned(),
            Self::Collectors { count, .. } => format!("{count}-collectors"),
        }
    }

    pub(super) fn capacity_bps(self) -> u64 {
        match self {
            Self::Pool(pipes) => u64::from(pipes) * LINK_BPS,
            Self::TwoHops | Self::Collectors { .. } => 2 * LINK_BPS,
        }
    }

    /// Returns the capacities of the links, and the links of each path.
    fn network(self) -> (Vec<u64>, Vec<Vec<LinkId>>) {
        match self {
            Self::Pool(_) => (vec![self.capacity_bps()], vec![vec![LinkId(0)]]),
            Self::TwoHops => {
                let mut capacities = vec![LINK_BPS; SITES.len()];
                capacities.push(self.capacity_bps());
                (capacities, (0..4).map(|site| vec![LinkId(site), LinkId(4)]).collect())
            }
            Self::Collectors { count, known } => {
                let mut capacities = vec![LINK_BPS; count as usize];
                let shared = known.then_some(LinkId(count as u16));
                capacities.extend(shared.map(|_| self.capacity_bps()));
                let path = |at| [LinkId(at)].into_iter().chain(shared).collect();
                (capacities, (0..count as u16).map(path).collect())
            }
        }
    }

    /// Returns the path and the class of each device.
    fn devices(self) -> Vec<(PathId, ClassId)> {
        let class = |device: u32, group: u32| ClassId(u8::from(!device.is_multiple_of(group)));
        match self {
            Self::Pool(pipes) => {
                let count = SOURCES * pipes;
                (0..count).map(|device| (PathId(0), class(device, count))).collect()
            }
            Self::TwoHops => (0..4 * SOURCES)
                .map(|device| (PathId((device / SOURCES) as u16), class(device, SOURCES)))
                .collect(),
            Self::Collectors { count, .. } => (0..2 * SOURCES)
                .map(|device| (PathId((device % count) as u16), class(device, 2 * SOURCES)))
                .collect(),
        }
    }

    fn trace(self, load: f64, mix: Mix, horizon_ns: u64, seed: u64) -> Vec<Event> {
        let mut random = Random::new(seed);
        let capacity_bps = self.capacity_bps();
        match self {
            Self::Pool(_) | Self::Collectors { .. } => {
                let devices = SOURCES * (capacity_bps / LINK_BPS) as u32;
                let offer = Offer { load, mix, capacity_bps, devices, first: 0, horizon_ns };
                trace::draw(&offer, &mut random)
            }
            Self::TwoHops => {
                let site = |(site, percent): (u32, u64)| {
                    let (load, first) = (load * percent as f64 / 100.0, site * SOURCES);
                    let devices = SOURCES;
                    let offer = Offer { load, mix, capacity_bps, devices, first, horizon_ns };
                    trace::draw(&offer, &mut random)
                };
                let mut events: Vec<Event> = (0..).zip(SITES).flat_map(site).collect();
                events.sort_unstable();
                events
            }
        }
    }
}

/// A method: rules, sources, delays.
#[derive(Clone, Debug)]
pub(super) struct Method {
    /// As EXPERIMENTS names the steps of the ladder; none for the shipped policy.
    pub(super) ladder: Option<&'static str>,
    pub(super) name: &'static str,
    pub(super) calibration: &'static str,
    pub(super) rules: Rules,
    pub(super) by_frame: bool,
    pub(super) outstanding: usize,
    pub(super) host_ns: u64,
    pub(super) rtt_ns: u64,
    pub(super) guard_ns: u64,
    pub(super) nic_bps: u64,
}

/// A method under a load.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) method: Method,
    pub(super) links: Links,
    pub(super) mix: Mix,
    pub(super) load: f64,
    pub(super) seeds: Vec<u64>,
    pub(super) seconds: u64,
    /// How packets go, at level `packet`; nothing at level `chunk`.
    pub(super) carrier: Option<Carrier>,
}

impl Cell {
    pub(super) fn setup(&self) -> Setup {
        let (capacities, paths) = self.links.network();
        let guard_ns = self.method.guard_ns;
        let link = |capacity: u64| LinkConfig { guard_ns, ..LinkConfig::new(capacity) };
        let links = capacities.into_iter().map(link).collect();
        let mut config = Config::new(links, paths, self.method.rules.clone());
        config.ahead_ns = (self.method.rtt_ns / 2).max(1_000_000);
        config.age_max_ns = u64::MAX;
        config.transfers_max = u32::MAX;
        if let Some(quantum_bytes) = self.method.rules.quantum_bytes {
            config.chunk_bytes = quantum_bytes;
        }
        let delay_ns = self.method.rtt_ns / 2;
        let rate_bps = self.method.nic_bps;
        let device = |(device, (path, class)): (u32, (PathId, ClassId))| {
            let spec = DeviceSpec::new(SourceId(device), path, class, rate_bps);
            (DeviceId(device), DeviceSpec { delay_ns, report_delay_ns: delay_ns, ..spec })
        };
        Setup {
            config,
            source: SourceModel {
                by_frame: self.method.by_frame,
                outstanding: self.method.outstanding,
                host_ns: self.method.host_ns,
                delay_ns,
            },
            devices: (0..).zip(self.links.devices()).map(device).collect(),
            periodic: Vec::new(),
            capacities: Vec::new(),
            horizon_ns: self.seconds * SECOND_NS,
            drain_ns: if self.method.rules.pausing == Pausing::Never { 30 } else { 60 } * SECOND_NS,
        }
    }

    /// Runs the cell on traces of its own.
    pub(super) fn run(&self) -> Pooled {
        let horizon_ns = self.seconds * SECOND_NS;
        let draw = |seed: &u64| self.links.trace(self.load, self.mix, horizon_ns, 1000 + seed);
        self.run_on(self.seeds.iter().map(draw))
    }

    /// Runs the cell on these traces.
    pub(super) fn run_on(&self, traces: impl Iterator<Item = Vec<Event>>) -> Pooled {
        let setup = self.setup();
        let mut pooled = Pooled::default();
        for trace in traces {
            let carried = self.carrier.map(|carrier| self.network(carrier));
            let outcome = world::run_over(&setup, &trace, carried);
            pooled.add(&trace, &outcome, setup.horizon_ns / 10);
        }
        pooled
    }

    /// Makes the network that carries the packets.
    ///
    /// # Panics
    /// With other links: level `packet` has one bottleneck, before a collector or several.
    fn network(&self, carrier: Carrier) -> world::Carried {
        let (sources, collectors) = match self.links {
            Links::Pool(1) => (SOURCES, 1),
            Links::Collectors { count, .. } => (2 * SOURCES, count),
            Links::Pool(_) | Links::TwoHops => panic!("level packet has one bottleneck"),
        };
        let plan = Plan {
            sources,
            nic_bps: self.method.nic_bps,
            capacity_bps: self.links.capacity_bps(),
            collectors,
            collector_bps: LINK_BPS,
            rtt_ns: self.method.rtt_ns,
            urgent: 0,
        };
        world::Carried { network: carrier.network(&plan), controlled: carrier.controlled }
    }

    pub(super) fn tolerant(&self) -> impl Fn(u32) -> bool + use<> {
        let devices = self.links.devices();
        move |device| devices.get(device as usize).is_some_and(|(_, class)| class.0 == 1)
    }

    pub(super) fn row(&self, pooled: &Pooled) -> Row {
        let method = &self.method;
        let is_controlled = self.carrier.is_none_or(|carrier| carrier.controlled);
        let pause = match method.rules.pausing {
            _ if !is_controlled => None,
            Pausing::Never => None,
            Pausing::Confirmed => Some("confirmed"),
            Pausing::Predicted => Some("predicted"),
        };
        let packets = pooled.packets.as_ref();
        let control_bytes = pooled.control_bytes as f64;
        Row {
            what: "cell",
            place: "sim",
            method: method.name,
            ladder: method.ladder,
            level: if self.carrier.is_some() { "packet" } else { "chunk" },
            calibration: method.calibration,
            pause,
            nic_bps: method.nic_bps,
            links: self.links.name(),
            capacity_bps: self.links.capacity_bps(),
            rtt_ms: method.rtt_ns as f64 / 1e6,
            mix: self.mix,
            load: self.load,
            seeds: self.seeds.len(),
            seconds: self.seconds,
            judged: Judged::of(pooled, self.tolerant()),
            packets_dropped: packets.map(Packets::dropped_in_all),
            packets_dropped_urgent: packets.map(|packets| packets.dropped[0]),
            packets_missing: packets.and_then(Packets::missing),
            sequence_naks: packets.filter(|one| one.received > 0).map(|one| one.naks),
            operations_failed: packets.map(|packets| packets.failed),
            resent_fraction: packets.map(Packets::resent_fraction),
            over_capacity_bit_s: is_controlled.then_some(pooled.over_capacity_bits),
            pauses: pooled.pauses,
            control_bytes_fraction: control_bytes / pooled.all_bytes as f64,
            messages_per_event: pooled.messages as f64 / pooled.events as f64,
        }
    }
}

/// A cell's row. What only level `packet` knows is null.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Row {
    what: &'static str,
    place: &'static str,
    pub(super) method: &'static str,
    pub(super) ladder: Option<&'static str>,
    pub(super) level: &'static str,
    pub(super) calibration: &'static str,
    pause: Option<&'static str>,
    pub(super) nic_bps: u64,
    pub(super) links: String,
    capacity_bps: u64,
    pub(super) rtt_ms: f64,
    pub(super) mix: Mix,
    pub(super) load: f64,
    seeds: usize,
    seconds: u64,
    #[serde(flatten)]
    pub(super) judged: Judged,
    pub(super) packets_dropped: Option<u64>,
    /// Of these, those of the urgent source.
    pub(super) packets_dropped_urgent: Option<u64>,
    /// Sent and not received, as both ends count. A NAK is for a gap, of as many packets as it may be.
    pub(super) packets_missing: Option<u64>,
    sequence_naks: Option<u64>,
    pub(super) operations_failed: Option<u64>,
    resent_fraction: Option<f64>,
    pub(super) over_capacity_bit_s: Option<f64>,
    pub(super) pauses: u64,
    control_bytes_fraction: f64,
    messages_per_event: f64,
}

impl Row {
    /// Returns whether this is the policy that ships, at the usual round trip, with the usual mix.
    pub(super) fn is_shipped_policy(&self) -> bool {
        self.level == "chunk"
            && self.ladder.is_none()
            && self.rtt_ms < 1.0
            && self.mix == Mix::Events
    }
}

impl Row {
    /// What level `packet` is to show: a controller loses nothing, strict priority does.
    fn packet_goals(&self) -> Vec<Goal> {
        let name = |field: &str| {
            let nic = self.nic_bps / 1_000_000_000;
            let links = if self.links == "1" { "" } else { &format!(" {}", self.links) };
            format!("packet {} {nic} Gbit/s{links} load {}: {field}", self.method, self.load)
        };
        let number = |number: Option<u64>| number.map(|number| number as f64);
        let apart = self.packets_dropped.zip(self.packets_missing);
        let apart = apart.map(|(dropped, missing)| dropped.abs_diff(missing));
        let same = apart.map(|apart| {
            Goal::most(name("packets_dropped beside packets_missing"), Some(apart as f64), 0.0)
        });
        if self.method == "credits" {
            return Vec::from_iter(same);
        }
        if self.over_capacity_bit_s.is_none() {
            let dropped = number(self.packets_dropped);
            if self.method != "spq" || self.load < 0.3 {
                return Vec::from_iter(same);
            }
            let urgent = number(self.packets_dropped_urgent);
            let lost = [
                Goal::least(name("packets_dropped"), dropped, 1.0),
                Goal::most(name("packets_dropped_urgent"), urgent, 0.0),
            ];
            return lost.into_iter().chain(same).collect();
        }
        let all = [
            Goal::most(name("packets_dropped"), number(self.packets_dropped), 0.0),
            Goal::most(name("operations_failed"), number(self.operations_failed), 0.0),
            Goal::most(name("over_capacity_bit_s"), self.over_capacity_bit_s, 0.0),
        ];
        all.into_iter().chain(same).collect()
    }

    fn packets_line(&self) -> String {
        let dropped = (self.packets_dropped, self.packets_dropped_urgent);
        let (Some(dropped), Some(urgent)) = dropped else { return String::new() };
        let others = (self.resent_fraction, self.operations_failed);
        let (Some(resent), Some(failed)) = others else { return String::new() };
        format!(
            ", packets: {dropped} dropped ({urgent} urgent), {resent:.4} sent again, {failed} operations failed"
        )
    }

    /// Returns by how much the on-time shares of two rows differ, the most of all.
    pub(super) fn furthest_from(&self, other: &Self) -> f64 {
        let shares = |row: &Self| {
            [
                row.judged.urgent_on_time,
                row.judged.tolerant_on_time_event,
                row.judged.tolerant_on_time_frame,
            ]
        };
        let pairs = shares(self).into_iter().zip(shares(other));
        pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
    }
}

impl Shown for Row {
    fn line(&self) -> String {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        format!(
            "{:8} {:8} {:6} {:>2} Gbit/s load {:.3}: urgent P95 {:>7} ms on time {:.3}, tolerant on time {:.4} event {:.4} frame, P95 {:>9} ms",
            self.ladder.unwrap_or(if self.over_capacity_bit_s.is_some() { "shipped" } else { "-" }),
            self.method,
            self.calibration,
            self.nic_bps / 1_000_000_000,
            self.load,
            ms(self.judged.urgent_ms_p95),
            self.judged.urgent_on_time,
            self.judged.tolerant_on_time_event,
            self.judged.tolerant_on_time_frame,
            ms(self.judged.tolerant_ms_p95),
        ) + &self.packets_line()
    }

    fn goals(&self) -> Vec<Goal> {
        if self.level == "packet" {
            return self.packet_goals();
        }
        let name = |field: &str| {
            let (nic, pause) = (self.nic_bps / 1_000_000_000, self.pause.unwrap_or("no"));
            let of = format!("{} Gbit/s rtt {} ms {pause} pause", nic, self.rtt_ms);
            format!("cell {} {of} {:?} load {}: {field}", self.method, self.mix, self.load)
        };
        let mut goals = Vec::new();
        if self.pause != Some("predicted") {
            goals.push(Goal::most(name("over_capacity_bit_s"), self.over_capacity_bit_s, 0.0));
        }
        if self.ladder.is_some() {
            return goals;
        }
        let fast = self.nic_bps == LINK_BPS;
        let urgent_ms = match (self.mix, self.rtt_ms as u64, self.pause) {
            (Mix::Bytes, ..) => [40.0, 18.0],
            (Mix::Events, 0, _) => [25.0, 14.0],
            (Mix::Events, 2, _) => [26.0, 16.0],
            (Mix::Events, _, Some("predicted")) => [42.0, 42.0],
            (Mix::Events, ..) => [62.0, 62.0],
        };
        let most_ms = urgent_ms[usize::from(fast)];
        goals.push(Goal::most(name("urgent_ms_p95"), self.judged.urgent_ms_p95, most_ms));
        goals.push(Goal::least(name("urgent_on_time"), Some(self.judged.urgent_on_time), 0.999));
        goals.push(Goal::least(name("jain_devices"), self.judged.jain_devices, 0.999));
        let (missed, told) = (self.judged.missed as f64, Some(self.judged.missed_told as f64));
        goals.push(Goal::least(name("missed_told"), told, missed));
        let control = Some(self.control_bytes_fraction);
        goals.push(Goal::most(name("control_bytes_fraction"), control, 1e-4));
        if self.load == 0.9 {
            let (least, event) =
                (if fast { 0.955 } else { 0.94 }, self.judged.tolerant_on_time_event);
            goals.push(Goal::least(name("tolerant_on_time_event"), Some(event), least));
        }
        goals
    }
}

/// Returns the bytes of a grant of method A3: a frame.
pub(super) const QUANTUM_BYTES: u64 = FRAME_BYTES;
