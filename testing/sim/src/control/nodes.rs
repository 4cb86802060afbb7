//! Processes: a source or a controller, its clock, and whether it runs.
use super::clock::Clock;
use super::scenario::{LEASE_NS, Scenario};
use catchment_control::admission::controller_side::{ControllerSide, Input};
use catchment_control::admission::source_side::{self, GoOn, SourceSide};
use catchment_control::admission::{
    ClassId, Config, DeviceSpec, Late, LinkConfig, LinkId, PathId, Rules, SourceId,
};
use std::collections::{BTreeMap, VecDeque};

/// What a process is handed, when it runs.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Datagram(Vec<u8>),
    /// A chunk has left.
    Sent {
        device: u32,
        number: u64,
    },
    /// The session is there.
    Registered {
        source: u32,
        term: u32,
        root: [u8; 32],
        round_trip_ns: u64,
        go_on: Option<GoOn>,
    },
    Ask {
        device: u32,
        number: u64,
        bytes: u64,
        age_ns: u64,
        class: u8,
    },
    /// More goes with a transfer that waits.
    Join {
        device: u32,
        number: u64,
        bytes: u64,
    },
    /// The rest of what was dropped when a part of it was sent.
    Finish {
        device: u32,
        number: u64,
        bytes: u64,
        age_ns: u64,
        class: u8,
    },
    /// A device wants a rate.
    Periodic {
        device: u32,
        bytes: u64,
        period_ns: u64,
    },
}

/// A transfer of a process, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) bytes: u64,
    pub(super) sent: u64,
    pub(super) missed: bool,
    pub(super) over: bool,
    /// It is the rest of one of which a part was sent: it must not be dropped.
    pub(super) finishes: bool,
    /// When it was asked for, in the source's clock, and how old it was.
    pub(super) asked_ns: u64,
    pub(super) age_ns: u64,
}

#[derive(Debug)]
pub(super) struct SourceNode {
    pub(super) side: SourceSide,
    pub(super) clock: Clock,
    /// The number of this process; another process has another.
    pub(super) process: u32,
    /// The controller that it registered with.
    pub(super) controller: Option<usize>,
    pub(super) frozen_until_ns: u64,
    pub(super) inbox: VecDeque<Message>,
    /// Only the wake-up of this number counts.
    pub(super) wake: u64,
    pub(super) wake_ns: Option<u64>,
    pub(super) registering: bool,
    pub(super) number: u64,
    /// By device and number.
    pub(super) fates: BTreeMap<(u32, u64), Fate>,
    /// When the line is free, by transfer.
    pub(super) line_ns: BTreeMap<(u32, u64), u64>,
}

/// Nothing passes this way, until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) slot: usize,
    pub(super) up: bool,
    pub(super) down: bool,
    pub(super) until_ns: u64,
}

#[derive(Debug)]
pub(super) struct ControllerNode {
    pub(super) side: ControllerSide,
    pub(super) clock: Clock,
    pub(super) alive: bool,
    pub(super) frozen_until_ns: u64,
    pub(super) inbox: VecDeque<(usize, Vec<u8>)>,
    pub(super) wake: u64,
    pub(super) wake_ns: Option<u64>,
    pub(super) term: u32,
}

pub(super) fn source(scenario: &Scenario, clock: Clock, now_ns: u64, process: u32) -> SourceNode {
    let config = source_side::Config {
        lease_ns: LEASE_NS,
        chunk_bytes: scenario.chunk_bytes,
        fallback: scenario.fallback,
    };
    SourceNode {
        side: SourceSide::new(clock.local_ns(now_ns), config),
        clock,
        process,
        controller: None,
        frozen_until_ns: 0,
        inbox: VecDeque::new(),
        wake: 0,
        wake_ns: None,
        registering: false,
        number: 0,
        fates: BTreeMap::new(),
        line_ns: BTreeMap::new(),
    }
}

pub(super) fn controller(
    scenario: &Scenario,
    clock: Clock,
    now_ns: u64,
    term: u32,
    left_ns: Option<u64>,
) -> ControllerNode {
    let link = |bps: &u64| LinkConfig { guard_ns: scenario.spread_ns, ..LinkConfig::new(*bps) };
    let links = scenario.links_bps.iter().map(link).collect();
    let path = |links: &Vec<u16>| links.iter().map(|link| LinkId(*link)).collect();
    let paths = scenario.paths.iter().map(path).collect();
    let mut config = Config::new(links, paths, Rules::deadline());
    config.lease_ns = LEASE_NS;
    config.chunk_bytes = scenario.chunk_bytes;
    config.recovering = term > 1;
    if scenario.drops_late {
        config.classes[1].late = Late::Drop;
    }
    let local_ns = clock.local_ns(now_ns);
    let new = |term| ControllerSide::new(local_ns, term, config);
    let right = "the configurations of this module are right";
    let side = if left_ns.is_some() {
        let mut side = new(0).expect(right);
        side.handle(local_ns, Input::Lead { term, left_ns });
        side
    } else {
        new(term).expect(right)
    };
    ControllerNode {
        side,
        clock,
        alive: true,
        frozen_until_ns: 0,
        inbox: VecDeque::new(),
        wake: 0,
        wake_ns: None,
        term,
    }
}

pub(super) fn specs(scenario: &Scenario, slot: usize) -> Vec<DeviceSpec> {
    let source = &scenario.sources[slot];
    let spec = |(path, class): &(u16, u8)| {
        DeviceSpec::new(SourceId(0), PathId(*path), ClassId(*class), source.rate_bps)
    };
    source.devices.iter().map(spec).collect()
}
