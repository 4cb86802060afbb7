//! The page with the ratios.
use super::perftest::STREAM_WRITES;
use super::profile::{KINDS, Shares};
use super::{LATENCY_ROUNDS, Round, STREAM_BYTES, STREAM_TIME, Sample};

/// Our stack must move at least so many bytes for the work for which the kernel's moves one.
const GOAL: f64 = 2.0;

/// A line of the table: its name, the number, and whether more of it is better.
type Line = (&'static str, fn(&Sample) -> f64);

const LINES: [Line; 4] = [
    ("goodput of WRITEs of 64 KiB", |s| s.bytes_per_s),
    ("processor time for a byte of it, whole guest", |s| s.cpu_s_per_gb),
    ("bytes for a second of processor time", |s| 1.0 / s.cpu_s_per_gb),
    ("time of a WRITE of 64 bytes", |s| s.latency_ns),
];

/// Ratios of ours to the kernel's, round by round, and their medians; where the work of both goes,
/// ours first. `kernel` is the guest's.
pub(crate) fn page(rounds: &[Round], profiles: &[Shares; 2], kernel: &str) -> String {
    let mut text = head(rounds.len(), kernel);
    text.push_str(
        "| ours / the kernel's | by our program | the kernel's by perftest |\n|---|---|---|\n",
    );
    for (name, number) in LINES {
        let [own, perftest] = [1, 2].map(|other| ratios(rounds, number, other));
        text.push_str(&format!("| {name} | {} | {} |\n", shown(&own), shown(&perftest)));
    }
    text.push_str("\n## Goal\n\n");
    for (by, other) in [("our program", 1), ("perftest", 2)] {
        let (_, bytes_for_work) = LINES[2];
        let ratio = median(&ratios(rounds, bytes_for_work, other));
        let held = if ratio >= GOAL { "held" } else { "**missed**" };
        text.push_str(&format!(
            "- At least {GOAL} times the bytes for a second of processor time, the kernel's measured \
             by {by}: {ratio:.2}, {held}.\n"
        ));
    }
    text.push_str(&parts(rounds, profiles));
    text.push_str(&small(rounds));
    text
}

fn small(rounds: &[Round]) -> String {
    let of = |number: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(number).collect();
        all.sort_by(f64::total_cmp);
        median(&all)
    };
    let wake_up = of(|[_, kernels, _]| kernels.wake_up_ns / kernels.latency_ns);
    let ours = of(|[ours, ..]| ours.latency_ns / ours.wake_up_ns);
    format!(
        "\n\
## What a WRITE of 64 bytes waits for

- Switches of threads for a WRITE, at both ends: ours {:.1}, the kernel's {:.1}. The kernel's goes from the
  call that posts it to the memory of the peer in that call. Ours wakes the engine of the peer, which
  shares two processors with two programs that look at their memory, and yield.
- To wake a thread that sleeps takes {wake_up:.2} of the time of a whole WRITE of the kernel's, in the same
  guest. A WRITE of ours takes as long as {ours:.1} such wake-ups.
",
        of(|[ours, ..]| ours.switches),
        of(|[_, kernels, _]| kernels.switches),
    )
}

/// Where the work goes, in parts of what the kernel's takes for a byte.
fn parts(rounds: &[Round], [ours, kernels]: &[Shares; 2]) -> String {
    let (_, work_for_byte) = LINES[1];
    let ratio = median(&ratios(rounds, work_for_byte, 1));
    let mut text = "\n\
## Where the work of a stream goes

By perf, of the whole guest but for idle time, while our program measures. All numbers are processor
time for a byte; what the kernel's takes in all is 1.

| | ours | the kernel's |
|---|---|---|
"
    .to_owned();
    for ((kind, ours), kernels) in KINDS.iter().zip(ours).zip(kernels) {
        text.push_str(&format!("| {kind} | {:.2} | {kernels:.2} |\n", ours * ratio));
    }
    text.push_str(&format!("| all | {ratio:.2} | 1.00 |\n\n"));
    let [icrc, copies] = [ours[0], ours[1]].map(|share| share * ratio);
    text.push_str(&format!(
        "Half of the kernel's work would be 0.50. The ICRC of both ends and the copies, which no stack in \
         software leaves out, take {:.2} of ours.\n",
        icrc + copies
    ));
    text
}

fn head(rounds: usize, kernel: &str) -> String {
    format!(
        "\
# RoCE in user space and in the kernel

Written by `cargo xtask lab table --markdown docs/results/rxe.md`. Do not edit.

How it is measured:

- In one guest of the lab (emulated, two processors, Linux {kernel}), in turn, {rounds} rounds: medians,
  in brackets the least and the most. An emulated processor says nothing about times, so there are
  only ratios.
- Ours: two processes with the provider `roce`, each in a network namespace, at a virtual cable.
  The kernel's: the devices `rxv0` and `rxv1` (`rdma_rxe`) at another one. Both have MTU 9000, path MTU
  4096, IPv4.
- By our program: the engine of `catchment bench`, the same for both. {bytes} KiB WRITEs for {seconds} s,
  64 outstanding, posted 16 at a time, asleep on a completion channel; then {latency} WRITEs of 64 bytes to
  and fro, each side looking at its memory and yielding between two looks.
- perftest: `ib_write_bw -s {size} -n {writes}` and `ib_write_lat -s 64 -n {latency}`. Its
  WRITEs know no completion channel: it polls all the time, which is in its processor time.
- Processor time: of the whole guest by `/proc/stat`, both ends, kernel and interrupts: what the
  kernel does for a packet belongs to no process.

",
        bytes = STREAM_BYTES >> 10,
        size = STREAM_BYTES,
        writes = STREAM_WRITES,
        seconds = STREAM_TIME.as_secs(),
        latency = LATENCY_ROUNDS,
    )
}

/// Ours to another way, round by round, in order of size.
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
