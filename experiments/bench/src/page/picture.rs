//! Pictures of rows that lie beside a page.
use crate::kept::Row;
use crate::papers::{Plot, Series};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What `page.toml` says of a picture: `plot` is as in a scenario, its metric being the field that is drawn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    /// The field along which it is drawn: numbers, or the names that `names` has, in this order.
    along: String,
    #[serde(default)]
    names: Vec<String>,
    lines: Vec<Line>,
    plot: Plot,
}

/// Rows that make a line: those that have these values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    label: String,
    /// A value, or a list of those that are right; an empty one for rows that have none.
    at: Map<String, Value>,
}

impl Picture {
    /// Returns the stem of its files, and what stands beside it.
    pub(super) fn name(&self) -> (&str, &str) {
        (&self.plot.name, &self.plot.title)
    }

    /// Draws it, as SVG and as PNG.
    ///
    /// # Errors
    /// A line has no row, or a row of it lacks a number.
    pub(super) fn draw(&self, rows: &[Row]) -> Result<[Vec<u8>; 2]> {
        let series = self.lines.iter().map(|line| self.series(line, rows));
        let series: Vec<Series> = series.collect::<Result<_>>().context(self.plot.name.clone())?;
        self.plot.draw_series(&self.plot.title, &series, &self.names)
    }

    fn series(&self, line: &Line, rows: &[Row]) -> Result<Series> {
        let mut points = Vec::new();
        for row in rows.iter().filter(|row| row.what() != "goal" && row.fits(&line.at)) {
            let x = row.get(&self.along);
            let x = match self.names.iter().position(|name| x.as_str() == Some(name)) {
                Some(place) => Some(place as f64),
                None => x.as_f64(),
            };
            let y = row.get(&self.plot.metric).as_f64();
            let (x, y) =
                x.zip(y).with_context(|| format!("{}: a row without a number", line.label))?;
            let y = y * self.plot.scale;
            points.push((x, y, y, y));
        }
        ensure!(!points.is_empty(), "{}: no row has these values", line.label);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Series { label: line.label.clone(), points })
    }
}
