//! `connections`, `background`, `store`: RAW, SHARE and DRUM on modelled NICs, in virtual time.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use super::scenario::Workload;
use super::virtual_stream::conditions;
use crate::mechanism::Mechanism;
use anyhow::{Context as _, Result, bail, ensure};
use catchment_rnic::{
    Background, Came, Connections, Method, Polled, Service, Store, Window, services,
};

/// A variant: the agent with the least chunk and window that its policy allows.
const LEAST: &str = "1 KiB chunks";
/// The operations of clients of a store.
const SEED: u64 = 1;
/// What a connection of the paper's transfers is to write.
const MEGABYTE: f64 = 1_048_576.0;

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    ensure!(!of.part.streams.is_empty(), "connections are in `streams`");
    for (mechanism, bytes, blocks) in of.cells() {
        for &streams in &of.part.streams {
            let cell = of.cell(mechanism, (bytes, blocks));
            let variant = of.part.variant.clone();
            let cell = Cell { streams: Some(streams), variant, ..cell };
            of.progress(&format!("{mechanism}, {streams} connections, {blocks} at once"));
            measure_cell(of, &cell)?;
        }
    }
    Ok(())
}

fn measure_cell(of: &mut Experiment<'_>, cell: &Cell) -> Result<()> {
    let variant = cell.variant.as_deref();
    let (bytes, count) = (u32::try_from(cell.bytes)?, of.effort.count);
    let connections = cell.streams.context("connections")?;
    if let Some(service) = variant.and_then(service) {
        let ops_per_s = services(service, connections, bytes, count);
        return found_speed(of, cell, ops_per_s);
    }
    if !of.part.loads.is_empty() {
        for &polls_per_s in &of.part.loads {
            let polled = Polled { polls_per_s, batch: cell.blocks, count };
            let (ops_per_s, per_poll) = polled.run()?;
            let cell = cell.at(polls_per_s, "1/s");
            found_speed(of, &cell, ops_per_s)?;
            of.found(&cell, &said(), [(("ops_per_poll", "1"), per_poll)]);
        }
        return Ok(());
    }
    let method = method(cell.mechanism)?;
    let window = if variant == Some(LEAST) { Window::Least } else { Window::Default };
    let all = Connections { method, window, connections, batch: cell.blocks, bytes, count };
    let came = if of.workload == Workload::Background {
        Background { all }.run()
    } else if of.workload == Workload::Store {
        let gets = variant.and_then(|mix| mix.split_once('/')).map(|(gets, _)| gets.parse());
        let gets = gets.context("a mix such as 95/5")??;
        Store { method, clients: connections, gets, bytes, count, seed: SEED }.run()
    } else {
        all.run()
    };
    let came = came.with_context(|| format!("{}, {connections} connections", cell.mechanism))?;
    let rows = rows(of.id, cell, &came);
    of.rows.extend(rows);
    Ok(())
}

fn method(mechanism: Mechanism) -> Result<Method> {
    const METHODS: [(Mechanism, Method); 3] = [
        (Mechanism::Raw, Method::Raw),
        (Mechanism::Share, Method::Share),
        (Mechanism::Drum, Method::Drum),
    ];
    match METHODS.iter().find(|(name, _)| *name == mechanism) {
        Some((_, method)) => Ok(*method),
        None => bail!("{mechanism} shares no NIC: raw, share, drum"),
    }
}

fn service(variant: &str) -> Option<Service> {
    match variant {
        "rc" => Some(Service::Rc),
        "uc" => Some(Service::Uc),
        "ud" => Some(Service::Ud),
        _ => None,
    }
}

fn found_speed(of: &mut Experiment<'_>, cell: &Cell, ops_per_s: f64) -> Result<()> {
    let bytes_per_s = ops_per_s * cell.bytes as f64;
    let metrics = [(("ops_per_s", "1/s"), ops_per_s), (("bytes_per_s", "B/s"), bytes_per_s)];
    of.found(cell, &said(), metrics);
    Ok(())
}

fn said() -> Conditions {
    conditions(None, None)
}

fn rows(id: &str, cell: &Cell, came: &Came) -> Vec<Row> {
    let [p10, p50, p80, p90, p99] = came.latency_ns;
    let connections = cell.streams.unwrap_or(1) as f64;
    let metrics = [
        (("ops_per_s", "1/s"), came.ops_per_s),
        (("bytes_per_s", "B/s"), came.bytes_per_s),
        (("latency_ns_mean", "ns"), came.latency_ns_mean),
        (("latency_ns", "ns"), p50),
        (("latency_ns_p80", "ns"), p80),
        (("latency_ns_p99", "ns"), p99),
        (("latency_ns_p90_less_p10", "ns"), p90 - p10),
        (("megabyte_ns", "ns"), 1e9 * connections * MEGABYTE / came.bytes_per_s),
        (("misses_per_op", "1"), came.misses_per_op),
        (("doorbells_per_op", "1"), came.doorbells_per_op),
        (("pipe_busy_fraction", "1"), came.pipe_busy_fraction),
        (("agent_busy_fraction", "1"), came.agent_busy_fraction),
    ];
    let row = |(metric, value)| Row::one(id, cell, metric, value, &said());
    metrics.into_iter().map(row).collect()
}
