//! How rows are shown.
use super::{LossOptions, Row};
use std::fmt::Write as _;

pub(super) const HEAD: &str = "recovery          Gbit/s  rtt ms   mtu  burst   loss  goodput    goal  \
                               again  spurious  timeouts";

pub(super) fn json(row: &Row) -> String {
    serde_json::to_string(row).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}

pub(super) fn line(row: &Row) -> String {
    let goal = row.goal.map_or_else(|| "-".to_owned(), |goal| format!("{goal:.3}"));
    let mark = if row.is_missed() { "missed" } else { "" };
    let mark = row.broken.as_deref().unwrap_or(mark);
    let mut line = format!("{:<16}  {:>6}", row.recovery, row.rate_bps / 1_000_000_000);
    let _ = write!(line, "  {:>6}  {:>4}  {:>5}", row.rtt_ms, row.path_mtu, row.burst);
    let _ = write!(line, "  {:>5}  {:>7.4}  {goal:>6}", row.loss, row.goodput_fraction);
    let (again, spurious) = (row.retransmitted_fraction, row.spurious_fraction);
    let _ = write!(line, "  {again:>5.3}  {spurious:>8.4}  {:>8}  {mark}", row.timeouts);
    line.trim_end().to_owned()
}

pub(super) fn verdict(rows: &[Row]) -> String {
    let with_goal = rows.iter().filter(|row| row.goal.is_some()).count();
    let missed = rows.iter().filter(|row| row.is_missed()).count();
    format!("{} of {with_goal} goals reached", with_goal - missed)
}

pub(super) fn page(rows: &[Row], options: &LossOptions) -> String {
    let LossOptions { seconds, seed, .. } = options;
    let mut page = String::from(INTRODUCTION);
    let command = format!("cargo xtask bench loss --seconds {seconds} --seed {seed}");
    let _ = write!(page, "\n`{command}`: {}.\n\n", verdict(rows));
    let losses = losses(rows);
    page.push_str("| recovery | Gbit/s | rtt ms | path MTU | burst |");
    for loss in &losses {
        let _ = write!(page, " {} % |", loss * 100.0);
    }
    let _ = writeln!(page, "\n|---|---|---|---|---|{}", "---|".repeat(losses.len()));
    for rows in rows.chunk_by(same_link) {
        page.push_str(&page_line(rows));
    }
    page
}

fn same_link(one: &Row, two: &Row) -> bool {
    let link = |row: &Row| (row.recovery, row.rate_bps, row.rtt_ms, row.path_mtu, row.burst);
    link(one) == link(two)
}

fn losses(rows: &[Row]) -> Vec<f64> {
    let mut losses: Vec<f64> = rows.iter().map(|row| row.loss).collect();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    losses
}

fn page_line(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut line = format!("| {} | {}", first.recovery, first.rate_bps / 1_000_000_000);
    let _ = write!(line, " | {} | {} | {} |", first.rtt_ms, first.path_mtu, first.burst);
    for row in rows {
        let mark = match &row.broken {
            Some(_) => " (broke)",
            None if row.is_missed() => " (missed)",
            None => "",
        };
        let _ = write!(line, " {:.3}{mark} |", row.goodput_fraction);
    }
    line.push('\n');
    line
}

const INTRODUCTION: &str = "\
# RoCE on links that lose packets

Written by `cargo xtask bench loss --markdown docs/results/loss.md`. Time is virtual and chance comes
from a seed: the figures are the same on every machine, and change only when the code does.

One queue pair with default settings posts WRITEs of 256 KiB without a pause, cut into WRITE ONLY
packets of one path MTU, over IPv6. The link loses packets in both directions, each with the same
probability, in bursts of the given length; it never reorders. The queue of the sender never
overflows. After 20 round trips of warm-up, the payload that the responder puts in place in the span
is divided by what the link carries of it when nothing is lost:

    payload bits / (span * rate * path MTU / (path MTU + 80))

80 bytes are IPv6, UDP, BTH, RETH and ICRC. Nobody can reach more than 1 - p at a loss of p. Goals, for
selective repeat: 0.95 at up to 1 % loss, 0.98 (1 - p) at 5 %.
";
