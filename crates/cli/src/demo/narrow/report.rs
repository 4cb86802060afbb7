//! What is said at the end.
use super::CAPACITY_BPS;
use super::frames::Frames;
use super::phase::Outcome;
use crate::args::DemoArgs;
use crate::failure::{Code, Failure};
use crate::output::table::Table;
use crate::output::{self, units};
use anyhow::anyhow;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct NarrowSummary {
    /// `netns`, or `relay` where there may be no network namespaces.
    place: &'static str,
    cameras: u8,
    seconds: f64,
    capacity_bps: u64,
    without_controller: Outcome,
    with_controller: Outcome,
    /// Of the urgent camera: the 95th percentile with a controller as a part of that without.
    urgent_p95_ratio: Option<f64>,
}

pub(super) fn summary(
    args: &DemoArgs,
    (place, cameras): (&'static str, u8),
    without_controller: Outcome,
    with_controller: Outcome,
) -> NarrowSummary {
    let p95 = |outcome: &Outcome| outcome.urgent.latency_ms_p95;
    let ratio = p95(&with_controller)
        .zip(p95(&without_controller))
        .map(|(with, without)| (with / without * 1e3).round() / 1e3)
        .filter(|ratio| ratio.is_finite());
    NarrowSummary {
        place,
        cameras,
        seconds: args.seconds.as_secs_f64(),
        capacity_bps: CAPACITY_BPS,
        without_controller,
        with_controller,
        urgent_p95_ratio: ratio,
    }
}

pub(super) fn print(args: &DemoArgs, summary: &NarrowSummary) -> Result<(), Failure> {
    if args.json { output::print_json(summary) } else { output::print(&text(summary)) }
}

fn text(summary: &NarrowSummary) -> String {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let on_time = |frames: &Frames| format!("{} of {}", frames.on_time, frames.frames);
    let mut table = Table::new(&["", "as they like", "with a controller"], 1);
    let mut row = |what: &str, of: &dyn Fn(&Outcome) -> String| {
        let both = [of(&summary.without_controller), of(&summary.with_controller)];
        table.row([vec![what.to_owned()], both.to_vec()].concat());
    };
    row("urgent camera, median", &|outcome| ms(outcome.urgent.latency_ms_p50));
    row("urgent camera, P95", &|outcome| ms(outcome.urgent.latency_ms_p95));
    row("  on time (100 ms)", &|outcome| on_time(&outcome.urgent));
    row("other cameras, P95", &|outcome| ms(outcome.others.latency_ms_p95));
    row("  on time (1 s)", &|outcome| on_time(&outcome.others));
    row("packets dropped at the link", &|outcome| units::count(outcome.packets_dropped));
    row("frames lost", &|outcome| units::count(outcome.frames_lost));
    let mut text = table.text();
    if let Some(waiting) = &summary.with_controller.waiting {
        text += &format!("`catchment explain stream` said meanwhile: {waiting}\n");
    }
    text += &match summary.urgent_p95_ratio {
        Some(ratio) => {
            format!("The urgent camera's P95 with a controller is {ratio:.3} of that without.\n")
        }
        None => "The urgent camera has sent too little to compare.\n".to_owned(),
    };
    text
}

/// Fails if a frame was lost.
pub(super) fn check(summary: &NarrowSummary) -> Result<(), Failure> {
    for outcome in [&summary.without_controller, &summary.with_controller] {
        let there = (outcome.urgent.frames + outcome.others.frames) as u64;
        if outcome.frames_lost > 0 || there != outcome.frames_sent {
            let error = anyhow!(
                "of {} frames sent {there} are there, {} lost",
                outcome.frames_sent,
                outcome.frames_lost
            );
            return Err(Failure::new(Code::Failed, error));
        }
    }
    Ok(())
}
