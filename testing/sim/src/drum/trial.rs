//! One world after another: a cold start, then changes, each until rates have settled.
use super::population::{Population, Reference};
use super::row::Row;
use super::world::{LATE_NS, Traffic, Wire, World};
use crate::Random;
use catchment_control::drum::{Host, Input};
use std::time::Instant;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) hosts: usize,
    pub(super) apps_per_host: u32,
    pub(super) active: usize,
    pub(super) alpha: f64,
    pub(super) wire: Wire,
    pub(super) seed: u64,
    /// Round times that each change is watched for.
    pub(super) watched: u64,
}

/// Round times that hosts get to become still, at most. They were 60 until a row of the second at rest, with 30 % lost, had
/// rounds of hosts that had not come to rest by then.
const SETTLING: u64 = 300;
const LEASE_NS: u64 = 2_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Part of the applications that a change touches, and of the hosts that are cut off.
const PART: f64 = 0.1;

struct Phase {
    begins: u64,
    rounds: Vec<u64>,
    fell_back: u64,
    carried: u64,
    over: f64,
    wall: Instant,
}

impl Trial {
    /// Returns a row for each change.
    pub(super) fn run(&self) -> Result<Vec<Row>, String> {
        let text = |error: catchment_control::drum::HostError| error.to_string();
        let mut random = Random::new(self.seed);
        let population =
            Population::new(self.hosts, self.apps_per_host, self.active, self.alpha, random.fork());
        let mut world = World::new(population, self.wire, LEASE_NS, random.fork()).map_err(text)?;
        let mut rows = vec![self.watch(&mut world, "cold")?];
        self.settle(&mut world)?;
        let replaced = world.population.replace(PART);
        for (host, old) in replaced.left {
            world.change(host, Input::Leave(old)).map_err(text)?;
        }
        for (host, new) in replaced.changed {
            world.change(host, Input::Join(new)).map_err(text)?;
        }
        rows.push(self.watch(&mut world, "replaced")?);
        self.settle(&mut world)?;
        let lost = random.below(self.hosts as u64) as u32;
        let changes = world.population.lose(lost);
        world.kill(lost);
        for (host, new) in changes {
            world.change(host, Input::Join(new)).map_err(text)?;
        }
        rows.push(self.watch(&mut world, "lost")?);
        self.settle(&mut world)?;
        let cut = (PART * self.hosts as f64) as usize;
        world.side.iter_mut().take(cut).for_each(|side| *side = true);
        for (host, new) in world.population.weigh(PART) {
            if host != lost {
                world.change(host, Input::Join(new)).map_err(text)?;
            }
        }
        rows.push(self.watch(&mut world, "cut")?);
        world.side.fill(false);
        rows.push(self.watch(&mut world, "joined")?);
        let settled_after = self.settle(&mut world)?;
        rows.push(Row { settled_after, ..self.watch_still(&mut world)? });
        Ok(rows)
    }

    fn begin(&self, world: &mut World) -> Phase {
        world.traffic = Traffic::default();
        Phase {
            begins: world.now,
            rounds: world.rounds(),
            fell_back: world.fell_back(),
            carried: world.carried(),
            over: world.over,
            wall: now(),
        }
    }

    /// Watches rates in force come near the optimum.
    fn watch(&self, world: &mut World, change: &'static str) -> Result<Row, String> {
        let reference = world.population.solve()?;
        let phase = self.begin(world);
        let mut samples = Vec::new();
        for number in 1..=self.watched {
            let until = phase.begins + number * world.round_ns();
            world.run(until).map_err(|error| error.to_string())?;
            samples.push((rounds_since(world, &phase), self.fraction(world, &reference)));
        }
        let mut row = self.finish(world, &phase, change);
        row.fraction_alone = reference.alone;
        let enough = samples.iter().rposition(|sample| sample.1 < 0.995).map_or(0, |last| last + 1);
        if let Some(sample) = samples.get(enough) {
            row.rounds_to_995 = Some(sample.0);
            row.virtual_us_to_995 =
                Some((enough as u64 + 1) as f64 * world.round_ns() as f64 / 1e3);
        }
        let after = samples.iter().find(|sample| sample.0 >= 10);
        row.fraction_after_10_rounds = after.map(|sample| sample.1).filter(|part| part.is_finite());
        let finite = samples.iter().map(|sample| sample.1).skip_while(|part| !part.is_finite());
        row.fraction_least = finite.min_by(f64::total_cmp);
        row.fraction_last = samples.last().map(|sample| sample.1);
        Ok(row)
    }

    /// Lets hosts become still; returns how many round times that took, if they are.
    fn settle(&self, world: &mut World) -> Result<Option<u64>, String> {
        for passed in 0..SETTLING {
            let alone = |host: &Host| host.is_still() || host.rates().is_empty();
            if world.hosts.iter().all(alone) {
                return Ok(Some(passed));
            }
            world.run(world.now + world.round_ns()).map_err(|error| error.to_string())?;
        }
        Ok(None)
    }

    /// A second in which nothing changes.
    fn watch_still(&self, world: &mut World) -> Result<Row, String> {
        // What is under way arrives first.
        let late = if self.wire.late > 0.0 { LATE_NS } else { 0 };
        let arrived = world.now + late + 10 * world.round_ns();
        world.run(arrived).map_err(|error| error.to_string())?;
        let reference = world.population.solve()?;
        let phase = self.begin(world);
        world.run(phase.begins + SECOND_NS).map_err(|error| error.to_string())?;
        let mut row = self.finish(world, &phase, "still");
        row.fraction_alone = reference.alone;
        row.fraction_last = Some(self.fraction(world, &reference));
        row.fraction_least = row.fraction_last;
        Ok(row)
    }

    fn fraction(&self, world: &World, reference: &Reference) -> f64 {
        let worth = world.population.worth(|host, application| world.rate(host, application));
        if worth.is_finite() { reference.fraction(self.alpha, worth) } else { f64::NEG_INFINITY }
    }

    fn finish(&self, world: &World, phase: &Phase, change: &'static str) -> Row {
        let done: u64 =
            world.rounds().iter().zip(&phase.rounds).map(|(now, before)| now - before).sum();
        let seconds = (world.now - phase.begins) as f64 / SECOND_NS as f64;
        let Traffic { messages, bytes } = world.traffic;
        Row {
            what: "sim",
            hosts: self.hosts,
            apps_per_host: self.apps_per_host,
            active: self.active,
            edges: world.population.edges(),
            alpha: self.alpha,
            rtt_us: self.wire.rtt_ns as f64 / 1e3,
            jitter_us: self.wire.jitter_ns as f64 / 1e3,
            loss: self.wire.loss,
            late: self.wire.late,
            double: self.wire.double,
            carries: self.wire.carries,
            carried: world.carried() - phase.carried,
            change,
            seed: self.seed,
            over_capacity_unit_s: world.over - phase.over,
            rounds: rounds_since(world, phase),
            messages_per_host_round: (done > 0).then(|| messages as f64 / done as f64),
            bytes_per_host_s: bytes as f64 / self.hosts as f64 / seconds,
            fell_back: world.fell_back() - phase.fell_back,
            trace_hash: format!("{:016x}", world.trace),
            wall_s: phase.wall.elapsed().as_secs_f64(),
            ..Row::default()
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "how long a run takes is real time")]
fn now() -> Instant {
    Instant::now()
}

/// Rounds of the host that made most.
fn rounds_since(world: &World, phase: &Phase) -> u64 {
    let rounds = world.rounds().into_iter().zip(&phase.rounds);
    rounds.map(|(now, before)| now - before).max().unwrap_or(0)
}
