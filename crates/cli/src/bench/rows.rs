//! The columns of perftest, and the processor time of both sides.
use catchment::perf::{Bandwidth, BlockPlan, Figure, Latency, Row};

pub(super) fn heading(figure: Figure, gbits: bool) -> String {
    let names = columns(figure, gbits);
    joined(&names, &names)
}

pub(super) fn block_heading(figure: Figure, gbits: bool) -> String {
    mechanism("mechanism", "#blocks") + &heading(figure, gbits)
}

pub(super) fn block_line(plan: &BlockPlan, row: &Row, gbits: bool) -> String {
    mechanism(&plan.mechanism, &plan.blocks.to_string()) + &line(row, gbits)
}

fn mechanism(name: &str, blocks: &str) -> String {
    format!("{name:<20} {blocks:>7} ")
}

pub(super) fn line(row: &Row, gbits: bool) -> String {
    let (figure, cells) = match row {
        Row::Bandwidth(row) => (Figure::Bandwidth, bandwidth(row, gbits)),
        Row::Latency(row) => (Figure::Latency, latency(row)),
    };
    joined(&columns(figure, gbits), &cells)
}

fn columns(figure: Figure, gbits: bool) -> Vec<String> {
    let unit = if gbits { "Gb/sec" } else { "MiB/sec" };
    let (peak, average) = (format!("BW peak[{unit}]"), format!("BW average[{unit}]"));
    let of_figure = match figure {
        Figure::Bandwidth => vec![peak.as_str(), &average, "MsgRate[Mpps]"],
        Figure::Latency => vec![
            "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]",
            "99%[usec]", "99.9%[usec]",
        ],
    };
    let before = ["#bytes", "#iterations"];
    let after = ["CPU client[%]", "CPU server[%]"];
    before.into_iter().chain(of_figure).chain(after).map(str::to_owned).collect()
}

fn bandwidth(row: &Bandwidth, gbits: bool) -> Vec<String> {
    let rate = |bytes_per_s: f64| {
        let value = if gbits { bytes_per_s * 8.0 / 1e9 } else { bytes_per_s / f64::from(1 << 20) };
        format!("{value:.2}")
    };
    vec![
        row.bytes.to_string(),
        row.iterations.to_string(),
        row.peak_bytes_per_s.map_or("-".to_owned(), rate),
        rate(row.average_bytes_per_s),
        format!("{:.6}", row.messages_per_s / 1e6),
        percent(row.client_cpu_percent),
        percent(row.server_cpu_percent),
    ]
}

fn latency(row: &Latency) -> Vec<String> {
    let us = |ns: f64| format!("{:.2}", ns / 1e3);
    vec![
        row.bytes.to_string(),
        row.iterations.to_string(),
        us(row.min_ns),
        us(row.max_ns),
        us(row.typical_ns),
        us(row.average_ns),
        us(row.stdev_ns),
        us(row.p99_ns),
        us(row.p999_ns),
        percent(row.client_cpu_percent),
        percent(row.server_cpu_percent),
    ]
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// Cells as wide as the names of their columns, and wide enough for what comes later.
fn joined(names: &[String], cells: &[String]) -> String {
    let mut line = String::new();
    for (name, cell) in names.iter().zip(cells) {
        let width = name.len().max(10);
        line.push_str(&format!("{cell:>width$} "));
    }
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_below_their_headings() {
        let row = Row::Bandwidth(Bandwidth {
            bytes: 65536,
            iterations: 1000,
            peak_bytes_per_s: Some(f64::from(3 << 20)),
            average_bytes_per_s: f64::from(2 << 20),
            messages_per_s: 32.0,
            client_cpu_percent: 12.34,
            server_cpu_percent: 0.0,
        });
        let line = line(&row, false);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["65536", "1000", "3.00", "2.00", "0.000032", "12.3", "0.0"]);
        assert_eq!(heading(Figure::Bandwidth, false).len(), line.len());
        let gbits = super::line(&row, true);
        assert!(gbits.contains(" 0.03 "), "{gbits}");
    }
}
