//! The same over a line of 1 Gbit/s towards the service: values of 1 MB, and short requests beside a client that writes
//! values of 64 MB to a service of its own on the same host.
//!
//! Both services have a tunnel each; where there are agents, their tunnels are two applications of equal weight.
use super::rivals::{Load, Rival, Setting};
use super::row::{Found, Row};
use super::service::{Service, Writer};
use super::{COMMANDS, Cell, REDIS_PORT, rivals};
use crate::hop::{Hop, Line};
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};

const BULK_PORT: u16 = REDIS_PORT + 1;
/// Its queue empties within 8 ms: less than Linux keeps for an interface by default, 1,000 packets (34 ms), so TCP
/// is held up less than it often is.
const LINE: Line = Line { bps: 1_000_000_000, queue_bytes: 1_000_000 };
/// As many as keep the line busy with values of 1 MB, few enough for a median of one request to say something.
const CLIENTS: u32 = 4;
const LONG_VALUE_BYTES: u32 = 1 << 20;
/// What a measurement beside the writer takes at least: the line carries two of its values meanwhile.
const BESIDE: Duration = Duration::from_millis(1200);

/// Measures run by run, the rivals in turn.
pub(super) fn measure(
    runs: usize,
    requests: u32,
    value_bytes: u32,
    version: &str,
) -> Result<Vec<Row>> {
    let star = LINE.join()?;
    let hop = Hop::of_star(&star).context("a source")?;
    let services =
        [Service::start(hop, "redis", REDIS_PORT)?, Service::start(hop, "bulk", BULK_PORT)?];
    let setting = Setting { hop, services: &services, line: Some(LINE) };
    let rivals = rivals(setting)?;
    let load = |command, value_bytes, requests| Load {
        command,
        clients: CLIENTS,
        pipeline: 1,
        value_bytes,
        requests,
    };
    let mut long = Cell::new(load("SET", LONG_VALUE_BYTES, requests / 100), None);
    let mut beside = COMMANDS.map(|command| {
        let writer = format!("a writer of {} bytes", Writer::BYTES);
        Cell::new(load(command, value_bytes, requests / 40), Some(writer))
    });
    for run in 0..runs {
        for turn in 0..rivals.len() {
            let at = (run + turn) % rivals.len();
            let rival = &rivals[at];
            let context = || format!("{:?} over a shaped line", rival.what);
            long.found[at].push(rival.measure(setting, long.load).with_context(context)?);
            let found = beside_writer(rival, setting, beside.each_ref().map(|cell| cell.load));
            for (cell, found) in beside.iter_mut().zip(found.with_context(context)?) {
                cell.found[at].push(found);
            }
        }
    }
    let cells = std::iter::once(&long).chain(&beside);
    Ok(cells.flat_map(|cell| cell.rows(&rivals, Some(LINE.bps), version)).collect())
}

/// Measures all loads of one rival beside its writer.
fn beside_writer(rival: &Rival, setting: Setting<'_>, loads: [Load; 3]) -> Result<Vec<Found>> {
    let bulk = &setting.services[1];
    let _writer = Writer::start(setting.hop, rival.at[1], bulk)?;
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
