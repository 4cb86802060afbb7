//! Rows and goals of `control`.
use crate::bound::Goal;
use serde::Serialize;

/// The time that a source may wait for each of those that share its link, itself among them.
const TURN_MS: f64 = 2000.0;

/// A measurement; what does not apply to it is null.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) what: &'static str,
    /// `most`, or `half` of what was granted at most; of rows `bare` also `paper-rate`.
    pub(super) offered: Option<&'static str>,
    pub(super) records_per_datagram: Option<usize>,
    pub(super) devices: Option<u64>,
    pub(super) sources: Option<usize>,
    pub(super) grants_per_s: Option<f64>,
    /// Processor time of the controller's process, all that it does included.
    pub(super) cpu_us_per_grant: Option<f64>,
    /// Datagrams of sources, most of which renew all rates of one.
    pub(super) renewals_per_s: Option<f64>,
    /// How many cores the controller had: below 1 it waited, or others had them.
    pub(super) service_cores: Option<f64>,
    /// From asking until the datagram with the grant has come; in rows `bare` a datagram there and back.
    pub(super) answer_us_p50: Option<f64>,
    pub(super) answer_us_p99: Option<f64>,
    /// From asking until a device may send: the window leaves room for what datagrams are held up.
    pub(super) begins_us_p50: Option<f64>,
    pub(super) provider: Option<&'static str>,
    pub(super) rate_asked_bps: Option<u64>,
    pub(super) frame_bytes: Option<u64>,
    pub(super) capacity_bps: Option<u64>,
    /// Of the capacity, what all sources together moved.
    pub(super) used_fraction: Option<f64>,
    /// What they moved in the fullest second, beyond the capacity and a percent of it.
    pub(super) beyond_bytes_max: Option<f64>,
    /// The longest time in which no frame of one of them was handed out.
    pub(super) silent_ms_max: Option<f64>,
    pub(super) transfers: Option<u64>,
    pub(super) rate_error_p50: Option<f64>,
    pub(super) rate_error_p95: Option<f64>,
    pub(super) rate_over_max: Option<f64>,
    pub(super) rss_bytes: Option<u64>,
    pub(super) bytes_per_idle_source: Option<f64>,
    pub(super) case: Option<&'static str>,
    pub(super) first_grant_ms: Option<f64>,
    pub(super) full_capacity_ms: Option<f64>,
    pub(super) urgent_on_time: Option<f64>,
    pub(super) frames_lost: Option<u64>,
    /// By the router, while a controller or a source is missed; and while all is as usual.
    pub(super) packets_dropped: Option<u64>,
    pub(super) packets_dropped_between: Option<u64>,
    /// The most by which all windows in force together were beyond the link.
    pub(super) granted_over_bps: Option<u64>,
}

impl Row {
    /// Returns the name of a row of `pacing` that has a rate asked for.
    pub(super) fn paced_name(&self) -> String {
        format!(
            "{}, {}, {} MiB, {} Mbit/s",
            self.case.unwrap_or("-"),
            self.provider.unwrap_or("-"),
            self.frame_bytes.unwrap_or(0) >> 20,
            self.rate_asked_bps.unwrap_or(0) / 1_000_000,
        )
    }

    /// Returns the name of a row of `pacing` whose sources share a link.
    pub(super) fn shared_name(&self) -> String {
        format!(
            "{} sources, {}, {} KiB, {} Mbit/s",
            self.sources.unwrap_or(0),
            self.provider.unwrap_or("-"),
            self.frame_bytes.unwrap_or(0) >> 10,
            self.capacity_bps.unwrap_or(0) / 1_000_000,
        )
    }

    pub(super) fn line(&self) -> String {
        if let Some(used) = self.used_fraction {
            return format!(
                "{} {}: {used:.4} used, at most {} bytes beyond 1.01 of a second; a source had nothing for {:.0} ms at most",
                self.what,
                self.shared_name(),
                self.beyond_bytes_max.unwrap_or(f64::NAN),
                self.silent_ms_max.unwrap_or(f64::NAN),
            );
        }
        if let Some(error) = self.rate_error_p95 {
            return format!(
                "{} {}: rates of {} transfers within {:.2} % (p50) and {:.2} % (p95), at most {:.2} % too fast",
                self.what,
                self.paced_name(),
                self.transfers.unwrap_or(0),
                self.rate_error_p50.unwrap_or(f64::NAN) * 100.0,
                error * 100.0,
                self.rate_over_max.unwrap_or(f64::NAN) * 100.0,
            );
        }
        if let Some(case) = self.case {
            let urgent = |part| format!("; {part:.4} of urgent frames in time");
            return format!(
                "{} {case}: first grant after {:.0} ms at worst, all after {:.0} ms{}, {} lost",
                self.what,
                self.first_grant_ms.unwrap_or(f64::NAN),
                self.full_capacity_ms.unwrap_or(f64::NAN),
                self.urgent_on_time.map_or(String::new(), urgent),
                self.frames_lost.unwrap_or(0),
            );
        }
        let float = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value}"));
        let count = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        format!(
            "{:<10} {:>4} {:>7} {:>7} {:>7} {:>11} {:>8} {:>6} {:>9} {:>9} {:>11} {:>8}",
            self.what,
            self.offered.unwrap_or("-"),
            count(self.records_per_datagram.map(|records| records as u64)),
            count(self.devices),
            count(self.sources.map(|sources| sources as u64)),
            float(self.grants_per_s),
            float(self.cpu_us_per_grant),
            float(self.service_cores),
            float(self.answer_us_p50),
            float(self.answer_us_p99),
            count(self.rss_bytes),
            float(self.bytes_per_idle_source),
        )
    }
}

/// Returns the row of sockets without a controller.
fn bare<'a>(rows: &'a [Row], offered: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.what == "bare" && row.offered == Some(offered))
}

/// Returns what of the processor time of a grant is not the controller's own.
pub(super) fn bare_takes(rows: &[Row], offered: &str) -> String {
    let takes_us = bare(rows, offered).and_then(|row| row.cpu_us_per_grant);
    takes_us.map_or_else(
        || "what sockets take alone was not measured".to_owned(),
        |us| {
            format!(
                "two datagrams each way take {us} us of it without a controller (bare, {offered})"
            )
        },
    )
}

/// Returns how long an answer takes where nothing is done for it.
pub(super) fn bare_answers(rows: &[Row], offered: &str) -> String {
    let took_us = bare(rows, offered).and_then(|row| row.answer_us_p50.zip(row.answer_us_p99));
    took_us.map_or_else(
        || "what sockets take alone was not measured".to_owned(),
        |(p50, p99)| {
            format!("without a controller {p50} us at p50, {p99} us at p99 (bare, {offered})")
        },
    )
}

/// Returns which end of the sockets was the slower one.
pub(super) fn slower(rows: &[Row], row: Option<&Row>) -> String {
    let cores = row.and_then(|row| row.service_cores).unwrap_or(0.0);
    let bare = bare(rows, "most").and_then(|row| row.grants_per_s).unwrap_or(f64::NAN);
    let who = if cores < 0.9 { "the sources, one thread, are slower" } else { "it had no more" };
    format!(
        "the controller used {cores} of a core: {who}; without one {bare} a second go there and back (bare, most)"
    )
}

pub(super) const HEAD: &str = "what    offered records devices sources    grants/s us/grant  cores       p50       p99   rss bytes B/source";

/// Returns the goals of sources that share a bottleneck: they never move more than it carries in a second, by more than a
/// percent and a chunk, and use almost all of it; and each has its turn.
pub(super) fn shared_goals(rows: &[Row]) -> impl Iterator<Item = Goal> + '_ {
    rows.iter().filter(|row| row.used_fraction.is_some()).flat_map(|row| {
        let name = |field: &str| format!("pacing, {}: {field}", row.shared_name());
        let chunk = row.frame_bytes.unwrap_or(0) as f64;
        let turns_ms = row.sources.unwrap_or(0) as f64 * TURN_MS;
        let cause = || {
            let silent_ms = row.silent_ms_max.unwrap_or(f64::NAN);
            format!(
                "frames count when they are handed out, in the order of their source: one had none for {silent_ms} ms, then those that had waited"
            )
        };
        [
            Goal::most(name("beyond_bytes_max"), row.beyond_bytes_max, chunk).because(cause),
            Goal::least(name("used_fraction"), row.used_fraction, 0.95).because(cause),
            Goal::most(name("silent_ms_max"), row.silent_ms_max, turns_ms),
            Goal::most(name("frames_lost"), row.frames_lost.map(|lost| lost as f64), 0.0),
        ]
    })
}
