//! How long an application waits for a region: of a memfd of its own, which its agent maps and registers, and of a slice of
//! a memory chunk, which is registered already.
use super::ends::{AgentProcess, application};
use crate::goal::{Goal, Limit};
use crate::stats::{decimals, percentile};
use anyhow::{Context as _, Result, ensure};
use catchment_agent::{AgentOptions, AgentProvider, status};
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::{Access, Context, Mr, Pd, Provider as _, VerbsError};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a region, and how many are there at once.
const SIZES: [(usize, usize); 3] = [(4096, 256), (1 << 20, 64), (64 << 20, 4)];

/// What a region is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Of {
    /// A memfd of the application, as before there were chunks.
    Memfd,
    /// A slice that nobody used before; the first one asks for the chunk.
    Fresh,
    /// A slice that a region of the application used before.
    Again,
}

const ALL: [Of; 3] = [Of::Memfd, Of::Fresh, Of::Again];

/// Where it was measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Place {
    provider: &'static str,
    bytes: usize,
    of: Of,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} {} bytes, {:?}", self.provider, self.bytes, self.of)
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Row {
    what: &'static str,
    #[serde(flatten)]
    place: Place,
    /// Until the region is there, every page of it touched.
    made_us_p50: f64,
    made_us_p99: f64,
    /// Until it is gone.
    ended_us_p50: f64,
    /// At the device, for each region.
    registrations: f64,
    regions: usize,
}

impl Row {
    pub(super) fn line(&self) -> String {
        let Self { place, made_us_p50, made_us_p99, ended_us_p50, registrations, .. } = self;
        format!(
            "region    {place}: made {made_us_p50:.1} us, p99 {made_us_p99:.1}; ended {ended_us_p50:.1} us; {registrations} registrations"
        )
    }
}

/// Times of the regions of one kind, in microseconds.
#[derive(Default)]
struct Times {
    made: Vec<f64>,
    ended: Vec<f64>,
    registrations: u64,
}

fn timed<T>(times: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    times.push(begun.elapsed().as_nanos() as f64 / 1e3);
    done
}

/// An agent over a device, and the rights of regions that may be slices there.
struct Side {
    agent: AgentProcess,
    provider: &'static str,
    access: Access,
}

impl Side {
    fn open(&self) -> Result<Arc<dyn Context>> {
        let (agent, application) = (self.agent.name().to_owned(), application(0));
        Ok(AgentProvider::new(AgentOptions { agent, application }).open(self.agent.name())?)
    }

    fn registrations(&self) -> Result<u64> {
        let all = status(self.agent.name())?;
        Ok(all.first().context("the application's account")?.registrations)
    }

    /// Makes regions of one kind, and ends them.
    fn measure(
        &self,
        count: usize,
        times: &mut Times,
        mut make: impl FnMut() -> Result<Arc<dyn Mr>, VerbsError>,
    ) -> Result<()> {
        let before = self.registrations()?;
        let made = (0..count).map(|_| timed(&mut times.made, &mut make));
        let regions = made.collect::<Result<Vec<_>, VerbsError>>()?;
        times.registrations += self.registrations()? - before;
        for region in regions {
            timed(&mut times.ended, || drop(region));
        }
        Ok(())
    }

    /// One turn of a size, by an application of its own.
    fn turn(&self, (bytes, count): (usize, usize), times: &mut [Times; 3]) -> Result<()> {
        let context = self.open()?;
        let pd: Arc<dyn Pd> = context.alloc_pd()?;
        let [memfd, fresh, again] = times;
        let of_memfd = || pd.reg_mr(Region::alloc(bytes, RegionOptions::default())?, self.access);
        self.measure(count, memfd, of_memfd)?;
        for slices in [fresh, again] {
            self.measure(count, slices, || pd.alloc_mr(bytes, self.access))?;
        }
        Ok(())
    }
}

/// Measures all, in turn, so many times. Nobody may have rights to slices from afar over shared memory.
pub(super) fn measure(runs: usize) -> Result<(Vec<Row>, Vec<Goal<Place>>)> {
    let local = Access::LOCAL_WRITE;
    let sides = [
        Side { agent: AgentProcess::start_at(None)?, provider: "shm", access: local },
        Side {
            agent: AgentProcess::start_at(Some([127, 0, 0, 1].into()))?,
            provider: "roce",
            access: local | Access::REMOTE,
        },
    ];
    let mut rows = Vec::new();
    for side in &sides {
        for size in SIZES {
            let mut times: [Times; 3] = Default::default();
            for _ in 0..runs {
                side.turn(size, &mut times).with_context(|| format!("{} bytes", size.0))?;
            }
            rows.extend(ALL.iter().zip(&times).map(|(of, times)| row(side, size.0, *of, times)));
        }
    }
    ensure!(!rows.is_empty(), "nothing was measured");
    let goals = rows.chunks(ALL.len()).flat_map(goals).collect();
    Ok((rows, goals))
}

fn row(side: &Side, bytes: usize, of: Of, times: &Times) -> Row {
    let tenths = |times: &[f64], part| decimals(percentile(times, part), 1);
    Row {
        what: "region",
        place: Place { provider: side.provider, bytes, of },
        made_us_p50: tenths(&times.made, 0.5),
        made_us_p99: tenths(&times.made, 0.99),
        ended_us_p50: tenths(&times.ended, 0.5),
        registrations: decimals(times.registrations as f64 / times.made.len() as f64, 3),
        regions: times.made.len(),
    }
}

/// What was to hold before it was measured: of the rows of one size.
fn goals(rows: &[Row]) -> Vec<Goal<Place>> {
    let [memfd, slices @ ..] = rows else { return Vec::new() };
    let of = |row: &Row| {
        let most = if row.place.of == Of::Again || row.place.bytes == 4096 { 0.5 } else { 1.0 };
        let part = row.made_us_p50 / memfd.made_us_p50;
        [
            Goal::new("a region's time by that of a memfd", row.place, part, Limit::AtMost(most)),
            Goal::new("registrations", row.place, row.registrations, Limit::AtMost(0.0)),
        ]
    };
    slices.iter().flat_map(of).collect()
}
