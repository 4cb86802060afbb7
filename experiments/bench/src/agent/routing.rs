//! Whether requests of a hundred applications, which share queue pairs, come to whom they belong.
use super::ends::{AgentProcess, Network, Role, TARGET, application, start};
use super::row::{Place, Row, What};
use super::seat::Seat;
use crate::goal::{Goal, Limit};
use crate::{host, output, sys};
use anyhow::{Context as _, Result};
use catchment_conformance::{Strays, connected, exchange, exchange_options};
use serde::{Deserialize, Serialize};
use std::time::Instant;

const APPS: usize = 100;
/// Bytes of a request, and those that one has outstanding.
const BYTES: u64 = 8;
const OUTSTANDING: u32 = 62;

/// What the process of the applications says.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    seconds: f64,
    misrouted: u64,
    lost: u64,
}

/// The process: so many applications, each with a context and a connection of its own, exchange requests.
pub(super) fn role((here, there): (&Seat, &Seat), apps: usize, requests: u64) -> Result<()> {
    sys::settle(host::SOURCE_CORE)?;
    let (options, target) = (exchange_options(), there.open()?);
    let connect = |at| {
        let context = here.of(application(at)).open()?;
        anyhow::Ok(connected((context, &options), (target.clone(), &options)))
    };
    let mut pairs = (0..apps).map(connect).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let Strays { misrouted, lost } = exchange(&mut pairs, requests, |_| {});
    output::json(&Found { seconds: begun.elapsed().as_secs_f64(), misrouted, lost })?;
    // Until it was asked what the agents use for them.
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// Measures so many requests, between agents of two hosts.
pub(super) fn measure(requests: u64) -> Result<(Row, Vec<Goal<Place>>)> {
    let agents = AgentProcess::start_two("drum", &[1.0; APPS], Network(None))?;
    let [here, there] = agents.seats(TARGET);
    let order = Role::Exchange { here, there, apps: APPS, requests };
    let mut process = start("the applications", order, &Network(None).end(false))?;
    let found = process.wait_for(|line| line.starts_with('{'))?;
    let found: Found = serde_json::from_str(&found).context("the applications")?;
    let place = Place {
        provider: "shm",
        op: None,
        bytes: BYTES,
        apps: APPS as u32,
        batch: Some(1),
        outstanding: OUTSTANDING,
    };
    let used = agents.used();
    let row = Row {
        ops_per_s: Some((requests as f64 / found.seconds).round()),
        queue_pairs: Some(used.queue_pairs),
        registrations: Some(used.registrations),
        misrouted: Some(found.misrouted),
        lost: Some(found.lost),
        requests: Some(requests),
        ..Row::of(What::Routing, place, 1)
    };
    let goal = |name, value: u64| Goal::new(name, place, value as f64, Limit::AtMost(0.0));
    let goals = vec![
        goal("requests of 100 applications: misrouted", found.misrouted),
        goal("requests of 100 applications: lost", found.lost),
    ];
    Ok((row, goals))
}
