//! What must hold, as data: which number of the rows, and where it must lie.
use super::record::{Axis, Row};
use crate::mechanism::{Mechanism, Provider};
use crate::stats;
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A claim, registered before the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
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
    /// Where on the axis the values fall below `level`.
    Crossing,
    /// The largest of a value by the one before it: not above 1 where values never rise.
    LargestStep,
    /// The smallest of a value by the one before it: not below 1 where values never fall.
    SmallestStep,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) measured: Option<f64>,
    /// Bootstrap 95 % interval, where one number was taken.
    pub(crate) ci_low: Option<f64>,
    pub(crate) ci_high: Option<f64>,
    /// `None` where nothing is claimed, or measured.
    pub(crate) held: Option<bool>,
    /// A row that it rests on was disturbed by other programs.
    pub(crate) disturbed: bool,
    /// Why it was not measured.
    #[serde(skip)]
    pub(crate) missing: Option<String>,
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

    pub(crate) fn judge(&self, provider: Provider, rows: &[Row]) -> Verdict {
        let over = self.minus.or(self.over).unwrap_or(self.mechanism);
        let over_metric = self.over_metric.as_ref().unwrap_or(&self.metric);
        let divides = self.over.is_some() || self.over_metric.is_some() || self.minus.is_some();
        let tops = self.select(rows, provider, self.mechanism, &self.metric);
        let mut points = Vec::new();
        for top in tops {
            let below = divides.then(|| {
                let variant = self.over_variant.as_ref().or(self.variant.as_ref());
                let mut beside = top.cell.clone();
                if self.over_variant.is_some() {
                    beside.variant.clone_from(&self.over_variant);
                }
                let of = self.select_of(rows, (provider, over), over_metric, variant);
                of.into_iter().find(|row| row.cell.is_beside(&beside))
            });
            match below {
                None => points.push(Point::of(self.along, top)),
                Some(Some(below)) if self.minus.is_some() => {
                    points.push(Point::difference(self.along, top, below));
                }
                Some(Some(below)) => points.push(Point::ratio(self.along, top, below)),
                Some(None) => {}
            }
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        match self.take.of(&points, self.level) {
            Ok((measured, interval)) => Verdict {
                measured: Some(measured),
                ci_low: interval.map(|(low, _)| low),
                ci_high: interval.map(|(_, high)| high),
                held: (!self.report).then(|| self.holds(measured)),
                disturbed: points.iter().any(|point| point.disturbed),
                missing: None,
            },
            Err(reason) => Verdict { missing: Some(reason), ..Verdict::default() },
        }
    }

    fn select<'a>(
        &self,
        rows: &'a [Row],
        provider: Provider,
        mechanism: Mechanism,
        metric: &str,
    ) -> Vec<&'a Row> {
        self.select_of(rows, (provider, mechanism), metric, self.variant.as_ref())
    }

    fn select_of<'a>(
        &self,
        rows: &'a [Row],
        (provider, mechanism): (Provider, Mechanism),
        metric: &str,
        variant: Option<&String>,
    ) -> Vec<&'a Row> {
        let fits = |row: &&Row| {
            row.cell.provider == provider
                && row.cell.mechanism == mechanism
                && row.metric == metric
                && (variant.is_none() || variant == row.cell.variant.as_ref())
                && self
                    .at
                    .iter()
                    .all(|(axis, span)| axis.of(row).is_some_and(|value| span.has(value)))
        };
        rows.iter().filter(fits).collect()
    }

    fn holds(&self, measured: f64) -> bool {
        self.at_least.is_none_or(|least| measured >= least)
            && self.at_most.is_none_or(|most| measured <= most)
            && self.near.is_none_or(|near| (measured / near.value - 1.0).abs() <= near.within)
    }
}

/// A number of a row, or of two rows, and where on the axis.
#[derive(Debug, Clone)]
struct Point {
    x: f64,
    y: f64,
    interval: (f64, f64),
    disturbed: bool,
}

impl Point {
    fn of(along: Axis, row: &Row) -> Self {
        Self {
            x: along.of(row).unwrap_or(0.0),
            y: row.summary.median,
            interval: (row.summary.ci_low, row.summary.ci_high),
            disturbed: row.conditions.disturbed,
        }
    }

    fn difference(along: Axis, top: &Row, below: &Row) -> Self {
        let pairs = top.values.iter().zip(&below.values);
        let values: Vec<f64> = pairs.map(|(top, below)| top - below).collect();
        let summary = stats::Summary::of(&values);
        Self {
            x: along.of(top).unwrap_or(0.0),
            y: summary.median,
            interval: (summary.ci_low, summary.ci_high),
            disturbed: top.conditions.disturbed || below.conditions.disturbed,
        }
    }

    fn ratio(along: Axis, top: &Row, below: &Row) -> Self {
        let ratio = stats::ratio(&top.values, &below.values);
        Self {
            x: along.of(top).unwrap_or(0.0),
            y: ratio.median,
            interval: (ratio.ci_low, ratio.ci_high),
            disturbed: top.conditions.disturbed || below.conditions.disturbed,
        }
    }
}

type Taken = (f64, Option<(f64, f64)>);

impl Take {
    fn of(self, points: &[Point], level: Option<f64>) -> Result<Taken, String> {
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
            | Self::Spread
            | Self::Deviation => 1,
        };
        if points.len() < needed {
            return Err("not measured in this run".to_owned());
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
            Self::LargestStep => most(&mut steps()),
            Self::SmallestStep => least(&mut steps()),
            Self::Crossing => crossing(points, level.unwrap_or(1.0))
                .ok_or_else(|| "the values never fall below the level".to_owned())?,
        };
        Ok((taken, None))
    }
}

/// Where the values fall from the level or above to below it, between two points on a log axis.
fn crossing(points: &[Point], level: f64) -> Option<f64> {
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
