//! `grants`: events of cameras through the transmission controller as shipped, as the paper's is read, and without
//! one, in virtual time.
use super::bench::Experiment;
use super::record::{Cell, Row};
use super::virtual_stream::conditions;
use crate::mechanism::Mechanism;
use anyhow::{Result, bail, ensure};
use catchment_sim::admission::{Figures, Knee, Rival, Trial, knees, run_trials};

/// Variants of knees: the usual one, and a short gap between grants.
const GRANTS: &str = "grants";
const SHORT_GAP: &str = "short gap";

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    ensure!(of.effort.milliseconds >= 1000, "grants are measured over a second of events at least");
    if of.part.loads.is_empty() { find_knees(of) } else { measure_loads(of) }
}

fn rival(mechanism: Mechanism, variant: Option<&str>) -> Result<Rival> {
    Ok(match (mechanism, variant) {
        (Mechanism::Spq, _) => Rival::Spq,
        (Mechanism::Tcm, _) => Rival::Tcm,
        (Mechanism::PTcm, Some(SHORT_GAP)) => Rival::PriorityTcmShortGap,
        (Mechanism::PTcm, _) => Rival::PriorityTcm,
        (Mechanism::Deadline, _) => Rival::Deadline,
        (Mechanism::DeadlineFast, _) => Rival::DeadlineFast,
        _ => bail!("no transmission controller does {mechanism}, variant {variant:?}"),
    })
}

fn measure_loads(of: &mut Experiment<'_>) -> Result<()> {
    let seeds = 1..=of.effort.repetitions as u64;
    let (seconds, packets) = (of.effort.milliseconds / 1000, of.part.packets);
    let mut cells = Vec::new();
    let mut trials = Vec::new();
    for (mechanism, bytes, blocks) in of.cells() {
        let rival = rival(mechanism, None)?;
        for &load in &of.part.loads {
            let cell = of.cell(mechanism, (bytes, blocks)).at(load, "1");
            cells.push(Cell { variant: of.part.variant.clone(), ..cell });
            let trial = |seed| Trial { rival, load, seconds, seed, packets };
            trials.extend(seeds.clone().map(trial));
        }
    }
    of.progress(&format!("{} runs of {seconds} s", trials.len()));
    let figures = run_trials(&trials);
    for (cell, figures) in cells.iter().zip(figures.chunks(of.effort.repetitions)) {
        let rows = rows(of.id, cell, figures);
        of.rows.extend(rows);
    }
    Ok(())
}

fn rows(id: &str, cell: &Cell, figures: &[Figures]) -> Vec<Row> {
    type Number = fn(&Figures) -> Option<f64>;
    const METRICS: [((&str, &str), Number); 9] = [
        (("urgent_ms_p95", "ms"), |one| one.urgent_ms_p95),
        (("tolerant_ms_p95", "ms"), |one| one.tolerant_ms_p95),
        (("urgent_on_time", "1"), |one| Some(one.urgent_on_time)),
        (("tolerant_on_time", "1"), |one| Some(one.tolerant_on_time)),
        (("tolerant_frames_on_time", "1"), |one| Some(one.tolerant_frames_on_time)),
        (("tolerant_bits_per_s", "bit/s"), |one| Some(one.tolerant_bits_per_s)),
        (("packets_dropped", "1"), |one| one.packets_dropped.map(|count| count as f64)),
        (("resent_fraction", "1"), |one| one.resent_fraction),
        (("operations_failed", "1"), |one| one.operations_failed.map(|count| count as f64)),
    ];
    let rows = METRICS.iter().filter_map(|(metric, number)| {
        let values: Vec<f64> = figures.iter().filter_map(number).collect();
        let row = (!values.is_empty())
            .then(|| Row::new(id, cell, *metric, values, &conditions(Some(1), None)))?;
        Some(row)
    });
    rows.collect()
}

fn find_knees(of: &mut Experiment<'_>) -> Result<()> {
    let variant = of.part.variant.as_deref();
    let rtt_ns = match variant {
        None | Some(GRANTS | SHORT_GAP) => None,
        Some(text) => Some(milliseconds(text)? * 1_000_000),
    };
    let (mut cells, mut wanted) = (Vec::new(), Vec::new());
    for (mechanism, bytes, blocks) in of.cells() {
        let cell = of.cell(mechanism, (bytes, blocks));
        cells.push(Cell { variant: of.part.variant.clone(), ..cell });
        wanted.push((rival(mechanism, variant)?, rtt_ns));
    }
    of.progress("knees");
    let (seconds, seeds) = (of.effort.milliseconds / 1000, of.effort.repetitions as u64);
    for (cell, knee) in cells.iter().zip(knees(&wanted, seconds, seeds)) {
        let Knee { by_events, by_frames } = knee;
        let knees = [("knee_events", by_events), ("knee_frames", by_frames)];
        for (metric, load) in knees {
            let Some(load) = load else { continue };
            let row = Row::one(of.id, cell, (metric, "1"), load, &conditions(Some(1), None));
            of.rows.push(row);
        }
    }
    Ok(())
}

/// Reads a round trip such as `20 ms`.
fn milliseconds(text: &str) -> Result<u64> {
    match text.strip_suffix(" ms").map(str::parse) {
        Some(Ok(ms)) => Ok(ms),
        Some(Err(_)) | None => {
            bail!("variant {text:?}: {GRANTS:?}, {SHORT_GAP:?}, or a round trip such as \"20 ms\"")
        }
    }
}
