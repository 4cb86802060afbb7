//! What must hold, as data: which number of the rows, and where it must lie.
use super::record::{Axis, Row};
use crate::mechanism::{Mechanism, Provider};
use crate::stats;
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When a claim was written down.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registered {
    pub(crate) commit: String,
    pub(crate) date: String,
}

/// What a claim was before it was changed, and why it is another one now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changed {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) was: String,
    pub(crate) why: String,
}

/// A claim, registered before the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The experiment and a number, never that of another claim.
    pub(crate) id: String,
    pub(crate) registered: Registered,
    /// What it was before; the newest last.
    #[serde(default)]
    pub(crate) changed: Vec<Changed>,
    pub(crate) claim: String,
    /// The experiment that it belongs to, where that is not the scenario's.
    pub(crate) experiment: Option<String>,
    /// Where it is claimed; each is judged by itself.
    pub(crate) providers: Vec<Provider>,
    /// What the paper says, as it says it.
    pub(crate) paper: Option<String>,
    pub(crate) metric: String,
    pub(crate) mechanism: Mechanism,
    /// Divide by the same number of this mechanism, measured in turn with it.
    pub(crate) over: Option<Mechanism>,
    /// Divide by the row of this variant, and not by that of the same one.
    pub(crate) over_variant: Option<String>,
    /// Take the same number of this mechanism off, measured in turn with it.
    pub(crate) minus: Option<Mechanism>,
    /// Divide by another number, of `over` or of the same mechanism.
    pub(crate) over_metric: Option<String>,
    pub(crate) variant: Option<String>,
    /// Only rows whose value on an axis is here.
    #[serde(default)]
    pub(crate) at: BTreeMap<Axis, Span>,
    /// The axis along which several rows lie.
    #[serde(default)]
    pub(crate) along: Axis,
    #[serde(default)]
    pub(crate) take: Take,
    pub(crate) level: Option<f64>,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
    /// As near as this to a value, relative.
    pub(crate) near: Option<Near>,
    /// Nothing is claimed: the number is reported.
    #[serde(default)]
    pub(crate) report: bool,
    /// What a reader must know who compares.
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Near {
    pub(crate) value: f64,
    pub(crate) within: f64,
}

/// A number, or from and to, both included.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Span {
    One(f64),
    Range([f64; 2]),
}

impl Span {
    pub(crate) fn has(self, value: f64) -> bool {
        match self {
            Self::One(one) => value == one,
            Self::Range([from, to]) => (from..=to).contains(&value),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Take {
    /// There is exactly one row.
    #[default]
    Only,
    Least,
    Most,
    Median,
    /// The largest by the smallest.
    Spread,
    /// The furthest from the median, relative.
    Deviation,
    /// The one furthest from 1, as a ratio.
    Furthest,
    /// Where on the axis the values fall below `level`.
    Crossing,
    /// The largest of a value by the one before it: not above 1 where values never rise.
    LargestStep,
    /// The smallest of a value by the one before it: not below 1 where values never fall.
    SmallestStep,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) measured: Option<f64>,
    /// Bootstrap 95 % interval, where one number was taken.
    pub(crate) ci_low: Option<f64>,
    pub(crate) ci_high: Option<f64>,
    /// `None` where nothing is claimed, or measured.
    pub(crate) held: Option<bool>,
    /// Whether a row that it rests on was disturbed by other programs; `None` where nobody looked.
    pub(crate) disturbed: Option<bool>,
    /// Of `measured`.
    pub(crate) unit: Option<String>,
    /// What the rows say where it was not held, or that it was not measured.
    pub(crate) why_not: Option<String>,
}

impl Claim {
    /// Finds what cannot be meant.
    pub(crate) fn check(&self) -> Result<()> {
        let bounds = [self.at_least.is_some(), self.at_most.is_some(), self.near.is_some()];
        match (self.report, bounds.contains(&true)) {
            (true, true) => bail!("`report` claims nothing, so it has no bounds"),
            (false, false) => bail!("needs at_least, at_most or near, or report = true"),
            _ => {}
        }
        let has_both = self.minus.is_some() && self.over.is_some();
        ensure!(!has_both, "`minus` and `over` are two things to do with one number");
        let crosses = self.take == Take::Crossing;
        ensure!(crosses == self.level.is_some(), "`level` belongs to take = \"crossing\"");
        Ok(())
    }

    pub(crate) fn bounds(&self) -> String {
        let mut words = Vec::new();
        if let Some(least) = self.at_least {
            words.push(format!("at least {}", number(least)));
        }
        if let Some(most) = self.at_most {
            words.push(format!("at most {}", number(most)));
        }
        if let Some(Near { value, within }) = self.near {
            words.push(match within {
                w if w < 0.001 => format!("exactly {}", number(value)),
                w => format!("{} within {:.0} %", number(value), w * 100.0),
            });
        }
        if words.is_empty() {
            return "reported".to_owned();
        }
        words.join(", ")
    }

    pub(super) fn holds(&self, measured: f64) -> bool {
        self.at_least.is_none_or(|least| measured >= least)
            && self.at_most.is_none_or(|most| measured <= most)
            && self.near.is_none_or(|near| (measured / near.value - 1.0).abs() <= near.within)
    }
}

impl Verdict {
    /// Returns that of a claim that this run says nothing about.
    pub(crate) fn missing(reason: String) -> Self {
        Self { why_not: Some(reason), ..Self::default() }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.measured.is_none()
    }
}

pub(crate) const NOT_MEASURED: &str = "not measured";

/// A number of a row, or of two rows, and where on the axis.
#[derive(Debug, Clone)]
pub(super) struct Point<'a> {
    pub(super) x: f64,
    pub(super) y: f64,
    interval: (f64, f64),
    pub(super) top: &'a Row,
    pub(super) below: Option<&'a Row>,
}

impl<'a> Point<'a> {
    pub(super) fn of(along: Axis, row: &'a Row) -> Self {
        Self {
            x: along.of(&row.cell).unwrap_or(0.0),
            y: row.summary.median,
            interval: (row.summary.ci_low, row.summary.ci_high),
            top: row,
            below: None,
        }
    }

    pub(super) fn difference(along: Axis, top: &'a Row, below: &'a Row) -> Self {
        let pairs = top.values.iter().zip(&below.values);
        let values: Vec<f64> = pairs.map(|(top, below)| top - below).collect();
        let summary = stats::Summary::of(&values);
        Self {
            y: summary.median,
            interval: (summary.ci_low, summary.ci_high),
            below: Some(below),
            ..Self::of(along, top)
        }
    }

    pub(super) fn ratio(along: Axis, top: &'a Row, below: &'a Row) -> Self {
        let ratio = if top.in_turn && below.in_turn {
            stats::ratio(&top.values, &below.values)
        } else {
            stats::ratio_of_medians(&top.summary, &below.summary)
        };
        Self {
            y: ratio.median,
            interval: (ratio.ci_low, ratio.ci_high),
            below: Some(below),
            ..Self::of(along, top)
        }
    }
}

type Taken = (f64, Option<(f64, f64)>);

impl Take {
    pub(super) fn of(self, points: &[Point<'_>], level: Option<f64>) -> Result<Taken, String> {
        let values = || points.iter().map(|point| point.y);
        let steps = || points.windows(2).map(|two| two[1].y / two[0].y);
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
        let needed = match self {
            Self::LargestStep | Self::SmallestStep | Self::Crossing => 2,
            Self::Only
            | Self::Least
            | Self::Most
            | Self::Median
            | Self::Furthest
            | Self::Spread
            | Self::Deviation => 1,
        };
        if points.len() < needed {
            return Err(NOT_MEASURED.to_owned());
        }
        let taken = match self {
            Self::Only => {
                let [point] = points else {
                    return Err(format!("{} rows where one was meant", points.len()));
                };
                return Ok((point.y, Some(point.interval)));
            }
            Self::Least => least(&mut values()),
            Self::Most => most(&mut values()),
            Self::Median => stats::percentile(&values().collect::<Vec<_>>(), 0.5),
            Self::Spread => most(&mut values()) / least(&mut values()),
            Self::Deviation => {
                let median = stats::percentile(&values().collect::<Vec<_>>(), 0.5);
                most(&mut values().map(|value| (value / median - 1.0).abs()))
            }
            Self::Furthest => {
                let from_one = |value: &f64| value.ln().abs();
                let furthest = values().max_by(|a, b| from_one(a).total_cmp(&from_one(b)));
                furthest.unwrap_or(1.0)
            }
            Self::LargestStep => most(&mut steps()),
            Self::SmallestStep => least(&mut steps()),
            Self::Crossing => crossing(points, level.unwrap_or(1.0))
                .ok_or_else(|| "the values never fall below the level".to_owned())?,
        };
        Ok((taken, None))
    }
}

/// Where the values fall from the level or above to below it, between two points on a log axis.
fn crossing(points: &[Point<'_>], level: f64) -> Option<f64> {
    points.windows(2).find_map(|two| {
        let [a, b] = two else { return None };
        if a.y < level || b.y >= level {
            return None;
        }
        let part = (a.y.ln() - level.ln()) / (a.y.ln() - b.y.ln());
        Some((a.x.ln() + part * (b.x.ln() - a.x.ln())).exp())
    })
}

/// A number with as many digits as say something.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value == value.round() && size < 1e7 {
        return format!("{value:.0}");
    }
    match size {
        s if s >= 1e7 => format!("{value:.3e}"),
        s if s >= 1000.0 => format!("{value:.0}"),
        s if s >= 100.0 => format!("{value:.1}"),
        s if s >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.3e}"),
    }
}
