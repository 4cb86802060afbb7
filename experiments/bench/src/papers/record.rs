//! One schema for everything that is measured: a row is one metric of one mechanism in one cell.
use crate::host::Environment;
use crate::job::{Network, Outcome, Wait, WarmUp};
use crate::mechanism::{Mechanism, Provider};
use crate::stats::Summary;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) provider: Provider,
    pub(crate) mechanism: Mechanism,
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    /// Devices that send at once.
    pub(crate) streams: Option<usize>,
    /// Threads that process blocks at the receiver.
    pub(crate) workers: Option<usize>,
    /// How long processing takes, or what else is varied.
    pub(crate) variant: Option<String>,
    pub(crate) x: Option<f64>,
    pub(crate) x_unit: Option<&'static str>,
}

impl Cell {
    pub(crate) fn new(
        provider: Provider,
        mechanism: Mechanism,
        bytes: usize,
        blocks: usize,
    ) -> Self {
        Self {
            provider,
            mechanism,
            bytes,
            blocks,
            streams: None,
            workers: None,
            variant: None,
            x: None,
            x_unit: None,
        }
    }

    pub(crate) fn at(&self, x: f64, unit: &'static str) -> Self {
        Self { x: Some(x), x_unit: Some(unit), ..self.clone() }
    }

    /// Returns whether the two differ in the mechanism at most.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let mechanism = self.mechanism;
        *self == Self { mechanism, ..other.clone() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Axis {
    #[default]
    Bytes,
    Blocks,
    Streams,
    Workers,
    X,
}

impl Axis {
    pub(crate) fn of(self, cell: &Cell) -> Option<f64> {
        match self {
            Self::Bytes => Some(cell.bytes as f64),
            Self::Blocks => Some(cell.blocks as f64),
            Self::Streams => cell.streams.map(|n| n as f64),
            Self::Workers => cell.workers.map(|n| n as f64),
            Self::X => cell.x,
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        if self == Self::Bytes { "B" } else { "1" }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Conditions {
    pub(crate) wait: String,
    /// Whether blocks were reused, and so may be in a cache.
    pub(crate) caches: &'static str,
    pub(crate) realtime: bool,
    pub(crate) restarts: usize,
    /// Measurements thrown away because a role did not have its core.
    pub(crate) repeated: usize,
    /// Operations of a process that did not count, at its beginning: the least of all; empty where nobody counted.
    pub(crate) dropped_operations: Option<u64>,
    /// Their part of all operations.
    pub(crate) dropped_part: Option<f64>,
    /// Whether measurements had to be kept in which a role did not have its core; empty where nobody
    /// looked.
    pub(crate) disturbed: Option<bool>,
    /// Smallest part of its core that a spinning role had; empty where nobody looked.
    pub(crate) core_share_min: Option<f64>,
    /// Blocks whose every byte was compared.
    pub(crate) verified_blocks: u64,
    /// What the sources offered; empty where they sent as fast as they could.
    pub(crate) offered_bytes_per_s: Option<f64>,
    /// What arrived.
    pub(crate) achieved_bytes_per_s: Option<f64>,
    /// Packets that were lost; empty where there are none.
    pub(crate) lost_packets: Option<u64>,
    /// Packets that were sent again; empty where there are none.
    pub(crate) retransmissions: Option<u64>,
    pub(crate) failed_operations: u64,
    /// What all chance came from; empty where there is no chance but the machine's.
    pub(crate) seed: Option<u64>,
}

impl Conditions {
    /// What the processes of a cell say of it.
    pub(crate) fn of(wait: Wait, realtime: bool, outcomes: &[Outcome]) -> Self {
        Self {
            wait: format!("{wait:?}").to_lowercase(),
            caches: "the same blocks again and again",
            realtime,
            restarts: outcomes.len(),
            repeated: outcomes.iter().map(|one| one.repeated).sum(),
            disturbed: Outcome::disturbed(outcomes),
            core_share_min: Outcome::core_share_min(outcomes),
            dropped_operations: Outcome::warm_up(outcomes).map(|warm_up| warm_up.dropped),
            dropped_part: Outcome::warm_up(outcomes).map(WarmUp::part),
            verified_blocks: outcomes.iter().map(|one| one.verified_blocks).sum(),
            ..Self::default()
        }
        .with(Outcome::network(outcomes))
    }

    /// With what became of packets, where there are any.
    pub(crate) fn with(self, network: Option<Network>) -> Self {
        Self {
            lost_packets: network.map(|network| network.lost),
            retransmissions: network.map(|network| network.sent_again),
            ..self
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) experiment: String,
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    #[serde(flatten)]
    pub(crate) summary: Summary,
    #[serde(flatten)]
    pub(crate) conditions: Conditions,
    /// In the order in which they were measured: what has the same place in two rows was measured
    /// one after the other.
    #[serde(skip)]
    pub(crate) values: Vec<f64>,
    /// Whether values with the same place in two rows were measured one after the other.
    #[serde(skip)]
    pub(crate) in_turn: bool,
}

impl Row {
    pub(crate) fn one(
        experiment: &str,
        cell: &Cell,
        metric: (&'static str, &'static str),
        value: f64,
        conditions: &Conditions,
    ) -> Self {
        Self::new(experiment, cell, metric, vec![value], conditions)
    }

    pub(crate) fn new(
        experiment: &str,
        cell: &Cell,
        (metric, unit): (&'static str, &'static str),
        values: Vec<f64>,
        conditions: &Conditions,
    ) -> Self {
        Self {
            experiment: experiment.to_owned(),
            cell: cell.clone(),
            metric,
            unit,
            summary: Summary::of(&values),
            conditions: conditions.clone(),
            values,
            in_turn: true,
        }
    }

    /// Returns the same, of a mechanism that was measured apart from the others.
    pub(crate) fn apart(self) -> Self {
        Self { in_turn: false, ..self }
    }
}

/// A row as it is written: with the machine.
#[derive(Serialize)]
pub(crate) struct Written<'a> {
    #[serde(flatten)]
    row: &'a Row,
    #[serde(flatten)]
    environment: &'a Environment,
}

impl<'a> Written<'a> {
    pub(crate) fn new(row: &'a Row, environment: &'a Environment) -> Self {
        Written { row, environment }
    }
}
