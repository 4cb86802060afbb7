//! Formatting of rows.
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

const INTRODUCTION: &str = include_str!("../../pages/loss.md");
