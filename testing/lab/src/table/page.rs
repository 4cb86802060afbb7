//! The page with the ratios.
use super::perftest::STREAM_WRITES;
use super::profile::{KINDS, Shares};
use super::{LATENCY_ROUNDS, Round, STREAM_BYTES, STREAM_TIME, Sample};

/// Our stack must move at least this many bytes for the work in which the kernel's moves one.
const GOAL: f64 = 2.0;

/// A row of the table: its name, and how to take it from a sample.
type Line = (&'static str, fn(&Sample) -> f64);

const LINES: [Line; 4] = [
    ("goodput of WRITEs of 64 KiB", |s| s.bytes_per_s),
    ("processor time for a byte of it, whole guest", |s| s.cpu_s_per_gb),
    ("bytes for a second of processor time", |s| 1.0 / s.cpu_s_per_gb),
    ("time of a WRITE of 64 bytes", |s| s.latency_ns),
];

/// Returns the page: ratios of ours to the kernel's, with their medians, and where both spend their
/// work. `kernel` is the guest's kernel version.
pub(crate) fn page(rounds: &[Round], [ours, kernels]: &[Shares; 2], kernel: &str) -> String {
    let row = |(name, number): Line| {
        let [own, perftest] = [1, 2].map(|other| shown(&ratios(rounds, number, other)));
        format!("| {name} | {own} | {perftest} |\n")
    };
    let goal = |(by, other)| {
        let (_, bytes_for_work) = LINES[2];
        let ratio = median(&ratios(rounds, bytes_for_work, other));
        let held = if ratio >= GOAL { "held" } else { "**missed**" };
        format!(
            "- At least {GOAL} times the bytes for a second of processor time, the kernel's measured \
             by {by}: {ratio:.2}, {held}.\n"
        )
    };
    let (_, work_for_byte) = LINES[1];
    let work_of_ours = median(&ratios(rounds, work_for_byte, 1));
    let part = |((kind, ours), kernels): ((&&str, &f64), &f64)| {
        format!("| {kind} | {:.2} | {kernels:.2} |\n", ours * work_of_ours)
    };
    let of = |number: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(number).collect();
        all.sort_by(f64::total_cmp);
        median(&all)
    };
    format!(
        include_str!("../../pages/rxe.md"),
        kernel = kernel,
        rounds = rounds.len(),
        bytes = STREAM_BYTES >> 10,
        size = STREAM_BYTES,
        writes = STREAM_WRITES,
        seconds = STREAM_TIME.as_secs(),
        latency = LATENCY_ROUNDS,
        table = LINES.into_iter().map(row).collect::<String>(),
        goals = [("our program", 1), ("perftest", 2)].map(goal).concat(),
        work = KINDS.iter().zip(ours).zip(kernels).map(part).collect::<String>(),
        work_of_ours = work_of_ours,
        needed = (ours[0] + ours[1]) * work_of_ours,
        switches = of(|[ours, ..]| ours.switches),
        kernels_switches = of(|[_, kernels, _]| kernels.switches),
        wake_up = of(|[_, kernels, _]| kernels.wake_up_ns / kernels.latency_ns),
        wake_ups = of(|[ours, ..]| ours.latency_ns / ours.wake_up_ns),
    )
}

/// Returns the ratios of ours to another measurement, round by round, sorted.
fn ratios(rounds: &[Round], number: fn(&Sample) -> f64, other: usize) -> Vec<f64> {
    let ratio = |round: &Round| number(&round[0]) / number(&round[other]);
    let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn shown(sorted: &[f64]) -> String {
    match (sorted.first(), sorted.last()) {
        (Some(least), Some(most)) => format!("{:.2} [{least:.2}, {most:.2}]", median(sorted)),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round_and_the_goal_is_judged() {
        let sample = |bytes_per_s, cpu_s_per_gb| Sample {
            bytes_per_s,
            cpu_s_per_gb,
            latency_ns: 10.0,
            switches: 3.0,
            wake_up_ns: 5.0,
        };
        let round = |ours| [sample(ours, 1.0), sample(1.0, 3.0), sample(2.0, 1.5)];
        let profiles = [[0.2; 5], [0.4, 0.3, 0.1, 0.1, 0.1]];
        let text = page(&[round(2.0), round(8.0), round(4.0)], &profiles, "6.1");
        assert!(text.contains("| ICRC | 0.07 | 0.40 |"), "{text}");
        assert!(text.contains("| 4.00 [2.00, 8.00] | 2.00 [1.00, 4.00] |"), "{text}");
        assert!(text.contains("by our program: 3.00, held"), "{text}");
        assert!(text.contains("by perftest: 1.50, **missed**"), "{text}");
    }
}
