//! The same over a line towards the service: values of 1 MB, and short requests beside a client that writes values of
//! half a second of the line (64 MB at 1 Gbit/s) to a service of its own on the same host.
//!
//! Both services have a tunnel each; where there are agents, their tunnels are two applications of equal weight.
use super::rivals::{Load, Rival, Setting};
use super::row::{Found, Row};
use super::service::{Service, Writer};
use super::{COMMANDS, Cell, Options, QUEUE_US, REDIS_PORT, rivals, turns};
use crate::hop::{Hop, Line};
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};

const BULK_PORT: u16 = REDIS_PORT + 1;
/// The speed at which counts and lengths are as they stand here: slower lines have fewer and shorter ones.
const FULL_MBPS: u32 = 1000;
/// Bytes of the writer's values there.
const WRITER_BYTES: u32 = 64 << 20;
/// As many as keep the line busy with values of 1 MB, few enough for a median of one request to say something.
const CLIENTS: u32 = 4;
const LONG_VALUE_BYTES: u32 = 1 << 20;
/// What a measurement beside the writer takes at least: the line carries two of its values meanwhile.
const BESIDE: Duration = Duration::from_millis(1200);

/// Measures run by run, the rivals in turn.
pub(super) fn measure(
    options: &Options,
    runs: usize,
    requests: u32,
    version: &str,
) -> Result<Vec<Row>> {
    let part = f64::from(options.line_mbps) / f64::from(FULL_MBPS);
    let bps = u64::from(options.line_mbps) * 1_000_000;
    let line = Line { bps, queue_bytes: (bps as f64 / 8.0 * QUEUE_US / 1e6) as u64 };
    let writer_bytes = (f64::from(WRITER_BYTES) * part) as u32;
    let star = line.join()?;
    let hop = Hop::of_star(&star).context("a source")?;
    let services =
        [Service::start(hop, "redis", REDIS_PORT)?, Service::start(hop, "bulk", BULK_PORT)?];
    let setting = Setting { hop, services: &services, line: Some(line) };
    let rivals = rivals(setting, &options.modes)?;
    let load = |command, value_bytes, requests| Load {
        command,
        clients: CLIENTS,
        pipeline: 1,
        value_bytes,
        requests,
    };
    let count = (f64::from(requests) / 100.0 * part).max(1.0) as u32;
    let mut long = Cell::new(load("SET", LONG_VALUE_BYTES, count), None, &rivals);
    let mut beside = COMMANDS.map(|command| {
        let writer = format!("a writer of {writer_bytes} bytes");
        let load = load(command, options.value_bytes, requests / 40);
        Cell::new(load, Some(writer), &rivals)
    });
    for run in 0..runs {
        for (at, rival) in turns(run, &rivals) {
            let context = || format!("{:?} over a shaped line", rival.what);
            long.found[at].push(rival.measure(setting, long.load).with_context(context)?);
            let loads = beside.each_ref().map(|cell| cell.load);
            let found = beside_writer(rival, setting, loads, writer_bytes);
            for (cell, found) in beside.iter_mut().zip(found.with_context(context)?) {
                cell.found[at].push(found);
            }
        }
    }
    let cells = std::iter::once(&long).chain(&beside);
    Ok(cells.flat_map(|cell| cell.rows(&rivals, Some(line.bps), version)).collect())
}

/// Measures all loads of one rival beside its writer.
fn beside_writer(
    rival: &Rival,
    setting: Setting<'_>,
    loads: [Load; 3],
    writer_bytes: u32,
) -> Result<Vec<Found>> {
    let bulk = &setting.services[1];
    let _writer = Writer::start(setting.hop, rival.at[1], bulk, writer_bytes)?;
    let once = |load| {
        let (begun, before) = (Instant::now(), bulk.bytes_in(setting.hop)?);
        let found = rival.measure(setting, load)?;
        let (bytes, took) = (bulk.bytes_in(setting.hop)? - before, begun.elapsed());
        let found = Found {
            // It would be the writer's too.
            cpu_s_per_mreq: None,
            background_bytes_per_s: Some(bytes as f64 / took.as_secs_f64()),
            ..found
        };
        anyhow::Ok((found, took))
    };
    // Long enough to be beside the writer for some of its values, whatever a request takes.
    let measure = |mut load: Load| loop {
        let (found, took) = once(load)?;
        if took >= BESIDE {
            break Ok(found);
        }
        let more = 1.5 * BESIDE.as_secs_f64() / took.as_secs_f64();
        load.requests = (f64::from(load.requests) * more.max(2.0)) as u32;
    };
    loads.into_iter().map(measure).collect()
}
