//! Pictures of rows: medians with their intervals, an axis each with its unit, and the paper's
//! number where it has one.
use super::claim::Span;
use super::record::{Axis, Row};
use crate::mechanism::{Mechanism, Provider};
use anyhow::{Context, Result, anyhow};
use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::annotations::{ReferenceLine, TextAnnotation};
use kuva::plot::{LegendPosition, LinePlot, ScatterPlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot as Drawing;
use kuva::render::render::render_multiple;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plot {
    /// Becomes part of the file's name.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) metric: String,
    /// What stands at the axis, unit included.
    pub(crate) y: String,
    /// From the metric's unit to the axis'.
    #[serde(default = "one")]
    pub(crate) scale: f64,
    #[serde(default)]
    pub(crate) along: Axis,
    /// What stands at the other axis, unit included.
    #[serde(default = "block_size")]
    pub(crate) x: String,
    #[serde(default)]
    pub(crate) log: Log,
    /// Only rows of this variant.
    pub(crate) variant: Option<String>,
    /// Only rows whose value on an axis is here.
    #[serde(default)]
    pub(crate) at: BTreeMap<Axis, Span>,
    /// An axis along which each value has a line of its own.
    pub(crate) each: Option<Each>,
    /// Only these; all of them if empty.
    #[serde(default)]
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Numbers of the paper, in the unit of the axis.
    #[serde(default)]
    pub(crate) paper: Vec<PaperPoint>,
}

/// Lines of one mechanism that differ on an axis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Each {
    pub(crate) axis: Axis,
    /// What stands before the value in the legend.
    pub(crate) says: String,
}

impl Each {
    fn label(&self, row: &Row) -> Option<String> {
        Some(format!(", {} {}", self.says, self.axis.of(&row.cell)?))
    }
}

fn one() -> f64 {
    1.0
}

fn block_size() -> String {
    "payload of a block in bytes".to_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Log {
    #[default]
    Both,
    X,
    Y,
    Neither,
}

/// A number of the paper: a point, or a level where `x` is missing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperPoint {
    pub(crate) x: Option<f64>,
    pub(crate) y: f64,
    pub(crate) says: String,
}

/// Colours that people with any colour vision can tell apart (Okabe and Ito, and two dark ones more).
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
    "#882255", "#806000",
];
const PAPER_COLOUR: &str = "#666666";
/// Pixels of the PNG for each unit of the SVG.
const PNG_SCALE: f32 = 1.5;

/// A line of a picture.
pub(crate) struct Series {
    pub(crate) label: String,
    /// Where, the value, and its interval from and to.
    pub(crate) points: Vec<(f64, f64, f64, f64)>,
}

impl Plot {
    /// Draws it from the rows of one provider into `folder`, as SVG and as PNG; says the files' stem,
    /// or nothing where no row fits.
    pub(crate) fn draw(
        &self,
        id: &str,
        provider: Provider,
        rows: &[Row],
        folder: &Path,
    ) -> Result<Option<String>> {
        let series = self.series(provider, rows);
        if series.is_empty() {
            return Ok(None);
        }
        let stem = format!("{}-{}-{provider}", id.to_lowercase(), self.name);
        let title = format!("{} ({provider})", self.title);
        let [svg, png] = self.draw_series(&title, &series, &[])?;
        write(&folder.join(format!("{stem}.svg")), &svg)?;
        write(&folder.join(format!("{stem}.png")), &png)?;
        Ok(Some(stem))
    }

    /// Draws lines, as SVG and as PNG. Where there are names, they stand at 0, 1, 2 and so on of the axis in place of numbers.
    pub(crate) fn draw_series(
        &self,
        title: &str,
        series: &[Series],
        names: &[String],
    ) -> Result<[Vec<u8>; 2]> {
        let drawings = self.drawings(series);
        let mut layout = self.layout(&drawings).with_title(title);
        if !names.is_empty() {
            // Room for the names at both ends.
            let most = names.len() as f64 - 0.5;
            layout = layout.with_x_axis_min(-0.5).with_x_axis_max(most).with_x_tick_step(0.5);
            let names = names.to_vec();
            layout = layout.with_x_tick_format(TickFormat::Custom(Arc::new(move |value| {
                let is_name = value >= 0.0 && value.fract() == 0.0;
                let name = names.get(value as usize).filter(|_| is_name);
                name.cloned().unwrap_or_default()
            })));
        }
        let scene = render_multiple(drawings, layout);
        let png = PngBackend::new().with_scale(PNG_SCALE).render_scene(&scene);
        let png = png.map_err(|error| anyhow!("drawing {title}: {error}"))?;
        Ok([SvgBackend.render_scene(&scene).into_bytes(), png])
    }

    fn series(&self, provider: Provider, rows: &[Row]) -> Vec<Series> {
        let mut series: Vec<Series> = Vec::new();
        let fits = |row: &&Row| {
            row.cell.provider == provider
                && row.metric == self.metric
                && (self.variant.is_none() || self.variant == row.cell.variant)
                && (self.mechanisms.is_empty() || self.mechanisms.contains(&row.cell.mechanism))
                && self
                    .at
                    .iter()
                    .all(|(axis, span)| axis.of(&row.cell).is_some_and(|value| span.has(value)))
        };
        for row in rows.iter().filter(fits) {
            let Some(x) = self.along.of(&row.cell) else { continue };
            let variant = row.cell.variant.as_ref().filter(|_| self.variant.is_none());
            let variant = variant.map_or(String::new(), |variant| format!(", {variant}"));
            let each = self.each.as_ref().and_then(|each| each.label(row)).unwrap_or_default();
            let label = format!("{}{variant}{each}", row.cell.mechanism.label());
            let [y, low, high] = [row.summary.median, row.summary.ci_low, row.summary.ci_high]
                .map(|value| value * self.scale);
            let point = (x, y, low, high);
            match series.iter_mut().find(|one| one.label == label) {
                Some(one) => one.points.push(point),
                None => series.push(Series { label, points: vec![point] }),
            }
        }
        for one in &mut series {
            one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        series
    }

    fn drawings(&self, series: &[Series]) -> Vec<Drawing> {
        let lines = series.iter().zip(COLOURS.iter().cycle());
        let lines = lines.flat_map(|(one, colour)| {
            let data = one.points.iter().map(|&(x, y, ..)| (x, y));
            let data: Vec<(f64, f64)> = data.collect();
            let line =
                LinePlot::new().with_data(data.clone()).with_color(*colour).with_stroke_width(1.5);
            let intervals = one.points.iter().map(|&(_, y, low, high)| (y - low, high - y));
            let marks = ScatterPlot::new()
                .with_data(data)
                .with_y_err_asymmetric(intervals)
                .with_color(*colour)
                .with_size(3.0)
                .with_legend(one.label.clone());
            [Drawing::from(line), Drawing::from(marks)]
        });
        let mut drawings: Vec<Drawing> = lines.collect();
        let points: Vec<(f64, f64)> =
            self.paper.iter().filter_map(|point| Some((point.x?, point.y))).collect();
        if !points.is_empty() {
            let marks = ScatterPlot::new()
                .with_data(points)
                .with_color(PAPER_COLOUR)
                .with_size(6.0)
                .with_marker(kuva::plot::MarkerShape::Cross)
                .with_legend("the paper's number");
            drawings.push(marks.into());
        }
        drawings
    }

    fn layout(&self, drawings: &[Drawing]) -> Layout {
        let mut layout = Layout::auto_from_plots(drawings)
            .with_width(860.0)
            .with_height(480.0)
            .with_x_label(self.x.clone())
            .with_y_label(self.y.clone())
            .with_legend_position(LegendPosition::OutsideRightTop);
        if matches!(self.log, Log::Both | Log::X) {
            layout = layout.with_log_x();
        }
        if matches!(self.log, Log::Both | Log::Y) {
            layout = layout.with_log_y();
        }
        for axis in [Layout::with_x_tick_format, Layout::with_y_tick_format] {
            layout = axis(layout, TickFormat::Custom(Arc::new(tick)));
        }
        for level in self.paper.iter().filter(|point| point.x.is_none()) {
            let line = ReferenceLine::horizontal(level.y)
                .with_color(PAPER_COLOUR)
                .with_label(format!("paper: {}", level.says));
            layout = layout.with_reference_line(line);
        }
        for point in &self.paper {
            if let Some(x) = point.x {
                let says = format!("paper: {}", point.says);
                layout = layout.with_annotation(TextAnnotation::new(says, x, point.y));
            }
        }
        layout
    }
}

fn tick(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{} G", rounded(value / 1e9)),
        v if v >= 1e6 => format!("{} M", rounded(value / 1e6)),
        v if v >= 1e3 => format!("{} k", rounded(value / 1e3)),
        // Less is what is left of 0 where ticks are added up.
        v if (1e-12..1e-3).contains(&v) => format!("{value:.1e}").replace(".0e", "e"),
        _ => rounded(value),
    }
}

/// Without digits that only say how numbers are stored.
fn rounded(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}
