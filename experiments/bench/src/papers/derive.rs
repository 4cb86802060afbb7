//! Numbers that are made of the rows of one run: what a formula says of others, and slopes.
use super::record::Row;
use crate::mechanism::{Mechanism, Provider};
use serde::Deserialize;
use std::collections::BTreeSet;

/// What is made of the rows of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Derive {
    /// The time of a block with the fewest blocks by what the explaining model says, [`by_formula`].
    Formula,
    /// What a status byte more costs in a READ by what a byte more costs on the way of a block, [`read_by_way`].
    ReadByWay,
}

impl Derive {
    pub(super) fn rows(self, rows: &[Row]) -> Vec<Row> {
        let mut derived = Vec::new();
        for (provider, mechanism) in measured(rows) {
            match self {
                Self::Formula => derived.extend(by_formula(rows, provider, mechanism)),
                Self::ReadByWay => derived.extend(read_by_way(rows, provider, mechanism)),
            }
        }
        derived
    }
}

fn measured(rows: &[Row]) -> BTreeSet<(Provider, Mechanism)> {
    rows.iter().map(|row| (row.cell.provider, row.cell.mechanism)).collect()
}

/// The rows of a mechanism that have this metric and are no point of a distribution.
fn of<'r>(
    rows: &'r [Row],
    provider: Provider,
    mechanism: Mechanism,
    metric: &str,
) -> impl Iterator<Item = &'r Row> {
    rows.iter().filter(move |row| {
        let cell = &row.cell;
        (cell.provider, cell.mechanism) == (provider, mechanism)
            && row.metric == metric
            && cell.x.is_none()
    })
}

/// The model of EXPERIMENTS 2.2, with N blocks and nothing else in the way: status bytes take t_w + t_read / N for a block,
/// windows t_w, and neither can be faster than N blocks in the time until a block can be used again. All of it as measured:
/// t_w is the time of a block with the most blocks, without its part of a READ; t_read is a READ of N status bytes; a block
/// can be used again after its way to the receiver and a READ, or after that way there and back.
fn by_formula(rows: &[Row], provider: Provider, mechanism: Mechanism) -> Vec<Row> {
    let at = |metric, bytes, blocks| {
        let mut all = of(rows, provider, mechanism, metric);
        all.find(|row| (row.cell.bytes, row.cell.blocks) == (bytes, blocks))
    };
    let median = |metric, size: (usize, usize)| {
        at(metric, size.0, size.1).map(|row: &Row| row.summary.median)
    };
    let has_status_bytes = mechanism == Mechanism::SbPaper;
    if !has_status_bytes && !matches!(mechanism, Mechanism::SwPaper | Mechanism::SwFair) {
        return Vec::new();
    }
    let blocks = || of(rows, provider, mechanism, "block_ns").map(|row| row.cell.blocks);
    let (Some(few), Some(many)) = (blocks().min(), blocks().max()) else { return Vec::new() };
    let sizes: BTreeSet<usize> =
        of(rows, provider, mechanism, "block_ns").map(|row| row.cell.bytes).collect();
    let of_size = |bytes: usize| -> Option<Row> {
        let row = at("block_ns", bytes, few).filter(|_| few < many)?;
        let way_ns = median("latency_ns", (bytes, few))?;
        let many_ns = median("block_ns", (bytes, many))?;
        let formula_ns = if has_status_bytes {
            let read_ns = |blocks| median("paper_sync_ns", (bytes, blocks));
            let write_ns = many_ns - read_ns(many)? / many as f64;
            let read_ns = read_ns(few)?;
            (write_ns + read_ns / few as f64).max((way_ns + read_ns) / few as f64)
        } else {
            many_ns.max(2.0 * way_ns / few as f64)
        };
        let values = row.values.iter().map(|ns| ns / formula_ns).collect();
        let metric = ("block_by_formula", "1");
        Some(Row::new(&row.experiment, &row.cell, metric, values, &row.conditions))
    };
    sizes.into_iter().filter_map(of_size).collect()
}

/// Two slopes, each from the least to the most: a READ over its status bytes, and the way of a block over its bytes.
fn read_by_way(rows: &[Row], provider: Provider, mechanism: Mechanism) -> Option<Row> {
    let reads = || of(rows, provider, mechanism, "paper_sync_ns");
    let ways = || of(rows, provider, mechanism, "one_way_ns");
    let by_blocks = |row: &&Row| row.cell.blocks;
    let by_bytes = |row: &&Row| row.cell.bytes;
    let (few, many) = (reads().min_by_key(by_blocks)?, reads().max_by_key(by_blocks)?);
    let (short, long) = (ways().min_by_key(by_bytes)?, ways().max_by_key(by_bytes)?);
    let status_bytes = many.cell.blocks.checked_sub(few.cell.blocks).filter(|more| *more > 0)?;
    let bytes = long.cell.bytes.checked_sub(short.cell.bytes).filter(|more| *more > 0)?;
    let way_ns = (long.summary.median - short.summary.median) / bytes as f64;
    let values = many.values.iter().map(|ns| {
        let read_ns = (ns - few.summary.median) / status_bytes as f64;
        read_ns / way_ns
    });
    let values = values.collect();
    let (metric, conditions) = (("read_by_way", "1"), &many.conditions);
    Some(Row::new(&many.experiment, &many.cell, metric, values, conditions))
}

#[cfg(test)]
mod tests {
    use super::super::record::{Cell, Conditions};
    use super::*;

    fn row(mechanism: Mechanism, size: (usize, usize), metric: &'static str, ns: f64) -> Row {
        let cell = Cell::new(Provider::Roce, mechanism, size.0, size.1);
        Row::one("E0", &cell, (metric, "ns"), ns, &Conditions::default())
    }

    #[test]
    fn status_bytes_wait_for_a_read_in_each_round() {
        let of = |size, metric, ns| row(Mechanism::SbPaper, size, metric, ns);
        let mut rows = vec![
            of((256, 3), "block_ns", 5200.0),
            of((256, 3), "latency_ns", 1000.0),
            of((256, 64), "block_ns", 3600.0),
            of((256, 3), "paper_sync_ns", 5100.0),
            of((256, 64), "paper_sync_ns", 6400.0),
        ];
        let ratio = |rows: &[Row]| Derive::Formula.rows(rows)[0].summary.median;
        // 3,500 for a block and a third of a READ.
        assert_eq!(ratio(&rows), 1.0);
        rows[1] = of((256, 3), "latency_ns", 26_100.0);
        assert_eq!(ratio(&rows), 0.5, "a block cannot be used again sooner");
        assert!(Derive::Formula.rows(&rows[..4]).is_empty(), "a READ was not measured");
    }

    #[test]
    fn a_window_waits_for_the_way_there_and_back() {
        let of = |size, metric, ns| row(Mechanism::SwFair, size, metric, ns);
        let rows = [
            of((256, 3), "block_ns", 800.0),
            of((256, 3), "latency_ns", 1200.0),
            of((256, 64), "block_ns", 100.0),
        ];
        assert_eq!(Derive::Formula.rows(&rows)[0].summary.median, 1.0);
    }

    #[test]
    fn a_read_grows_as_the_way_of_a_block_does() {
        let of = |size, metric, ns| row(Mechanism::SbPaper, size, metric, ns);
        let rows = [
            of((64, 1024), "paper_sync_ns", 20_000.0),
            of((64, 5120), "paper_sync_ns", 24_096.0),
            of((1024, 3), "one_way_ns", 10_000.0),
            of((3072, 3), "one_way_ns", 14_096.0),
        ];
        assert_eq!(Derive::ReadByWay.rows(&rows)[0].summary.median, 0.5);
    }
}
