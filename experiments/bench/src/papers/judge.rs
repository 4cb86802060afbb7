//! What the rows of a run say of a claim.
use super::claim::{Claim, Point, Take, Verdict};
use super::reason::reason;
use super::record::Row;
use crate::mechanism::{Mechanism, Provider};

impl Claim {
    /// Judges the claim by these rows: the number that it is about, and whether that is within its bounds.
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
            Ok((measured, interval)) => {
                let held = (!self.report).then(|| self.holds(measured));
                Verdict {
                    measured: Some(measured),
                    ci_low: interval.map(|(low, _)| low),
                    ci_high: interval.map(|(_, high)| high),
                    held,
                    disturbed: is_disturbed(&points),
                    unit: Some(self.unit(&points).to_owned()),
                    why_not: (held == Some(false)).then(|| reason(self, &points, rows)),
                }
            }
            Err(reason) => Verdict::missing(reason),
        }
    }

    /// Returns the unit of what is taken of these points.
    fn unit(&self, points: &[Point<'_>]) -> &'static str {
        let divides = self.over.is_some() || self.over_metric.is_some();
        match self.take {
            Take::Spread | Take::Deviation | Take::LargestStep | Take::SmallestStep => "1",
            Take::Crossing => self.along.unit(),
            _ if divides => "1",
            Take::Only | Take::Least | Take::Most | Take::Median | Take::Furthest => {
                points.first().map_or("1", |point| point.top.unit)
            }
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
                    .all(|(axis, span)| axis.of(&row.cell).is_some_and(|value| span.has(value)))
        };
        rows.iter().filter(fits).collect()
    }
}

/// True if a row was, false if all were looked after and none was.
fn is_disturbed(points: &[Point<'_>]) -> Option<bool> {
    let rows = points.iter().flat_map(|point| [Some(point.top), point.below]).flatten();
    let mut known = Some(false);
    for row in rows {
        match row.conditions.disturbed {
            Some(true) => return Some(true),
            Some(false) => {}
            None => known = None,
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::super::record::Cell;
    use super::super::virtual_stream::conditions;
    use super::*;

    /// A rival that is faster over another provider is no rival.
    #[test]
    fn h10_no_ratio_is_of_two_providers() {
        let claim: Claim = toml::from_str(
            r#"
            id = "E0.1"
            registered = { commit = "0", date = "2026-11-30" }
            claim = "ahead"
            providers = ["shm", "roce"]
            metric = "blocks_per_s"
            mechanism = "sb"
            over = "sw-fair"
            at_least = 1
            "#,
        )
        .unwrap();
        let row = |provider, mechanism, value| {
            let cell = Cell::new(provider, mechanism, 64, 3);
            Row::new("E0", &cell, ("blocks_per_s", "/s"), vec![value], &conditions(None, None))
        };
        let mut rows = vec![
            row(Provider::Shm, Mechanism::Sb, 6.0),
            row(Provider::Roce, Mechanism::SwFair, 12.0),
        ];
        for provider in [Provider::Shm, Provider::Roce] {
            let verdict = claim.judge(provider, &rows);
            assert_eq!((verdict.measured, verdict.held), (None, None), "{provider}");
        }
        rows.push(row(Provider::Shm, Mechanism::SwFair, 3.0));
        let verdict = claim.judge(Provider::Shm, &rows);
        assert_eq!((verdict.measured, verdict.held), (Some(2.0), Some(true)));
    }
}
