//! Which mechanisms, sizes and numbers of blocks a run measures, and how long.
use crate::host;
use crate::job::{Job, Wait};
use crate::mechanism::{Mechanism, Provider};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const FULL_BYTES: [usize; 10] =
    [40, 64, 256, 1024, 4096, 16_384, 65_536, 921_600, 1 << 20, 8 << 20];
const BYTES: [usize; 5] = [64, 4096, 65_536, 921_600, 8 << 20];
const BLOCKS: [usize; 3] = [3, 16, 64];
const QUICK_BYTES: [usize; 5] = [64, 256, 4096, 65_536, 921_600];
const QUICK_BLOCKS: [usize; 2] = [3, 16];
const MECHANISMS: [Mechanism; 14] = [
    Mechanism::OursCopy,
    Mechanism::OursInPlace,
    Mechanism::Sb,
    Mechanism::SbInPlace,
    Mechanism::SwFair,
    Mechanism::SwFairTail,
    Mechanism::SwFairTailInPlace,
    Mechanism::Memcpy,
    Mechanism::Iceoryx2,
    Mechanism::Iceoryx2Credit,
    Mechanism::Tcp,
    Mechanism::TcpBlocking,
    Mechanism::Unix,
    Mechanism::Ucx,
];
/// Ways to learn of free blocks, compared at [`STATUS_READ_CELLS`] only.
const STATUS_READS: [Mechanism; 3] =
    [Mechanism::StatusReadPrefetched, Mechanism::StatusReadWhenEmpty, Mechanism::Paper];
const STATUS_READ_CELLS: [(usize, usize); 5] = [(64, 3), (256, 3), (256, 16), (256, 64), (1024, 3)];
const LARGE_CELL_BYTES: usize = 64 << 20;
/// A goal is about this cell and memcpy alone.
const MEMCPY_CELL: (usize, usize) = (1 << 20, 3);
/// What is compared over the network.
pub(crate) const OVER_ROCE: [Mechanism; 3] =
    [Mechanism::Sb, Mechanism::SwFair, Mechanism::SwFairTail];
const ROCE_BYTES: [usize; 4] = [64, 4096, 65_536, 921_600];
/// A run without `--full` begins nothing after this, and so ends within 8 minutes on any machine.
const WHOLE: Duration = Duration::from_secs(430);
/// The longest time of one measurement: a row that takes longer is killed and named.
const ROW_LIMIT: Duration = Duration::from_secs(15);
const ROW_LIMIT_FULL: Duration = Duration::from_secs(120);

/// Measure how fast blocks go from one process to another, beside other ways to do it
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer sizes and shorter runs: under two minutes
    #[arg(long)]
    pub(crate) quick: bool,
    /// All sizes, and as long as it takes; otherwise the run ends within 8 minutes
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Seconds that one measurement of a row may take: it is killed then, and named
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Only these: WHAT,BYTES,BLOCKS; an empty field means all. May be repeated
    #[arg(long, value_name = "WHAT,BYTES,BLOCKS")]
    only: Vec<Only>,
    /// How both sides wait [default: spin, or yield on a machine with one core]
    #[arg(long, value_enum)]
    wait: Option<Wait>,
    /// Fresh pairs of processes for each mechanism of a cell
    #[arg(long)]
    runs: Option<usize>,
    /// Run the timed parts at real-time priority, so that other programs of this machine do not
    /// disturb them (needs CAP_SYS_NICE)
    #[arg(long)]
    pub(crate) realtime: bool,
    /// Write all rows as comma-separated values, with the columns of --json
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with all results and whether the goals hold
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Only {
    what: Option<Mechanism>,
    bytes: Option<usize>,
    blocks: Option<usize>,
}

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() > 3 {
            return Err(format!("{text:?} has more than three fields"));
        }
        let field = |i: usize| fields.get(i).copied().filter(|f| !f.is_empty());
        let number = |i| {
            let parse = |f: &str| f.parse().map_err(|_| format!("{f:?} is not a number"));
            field(i).map(parse).transpose()
        };
        Ok(Self {
            what: field(0).map(|name| clap::ValueEnum::from_str(name, false)).transpose()?,
            bytes: number(1)?,
            blocks: number(2)?,
        })
    }
}

impl Only {
    fn admits(&self, what: Mechanism, bytes: usize, blocks: usize) -> bool {
        // ucx has no blocks: asked for by name, it runs whatever their number.
        let any_blocks = self.what == Some(Mechanism::Ucx);
        self.what.is_none_or(|w| w == what)
            && self.bytes.is_none_or(|b| b == bytes)
            && (any_blocks || self.blocks.is_none_or(|b| b == blocks))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) mechanisms: Vec<Mechanism>,
    pub(crate) provider: Provider,
}

impl Options {
    /// Returns how long one measurement may take.
    pub(crate) fn limit(&self) -> Duration {
        let usual = if self.full { ROW_LIMIT_FULL } else { ROW_LIMIT };
        self.limit.map_or(usual, Duration::from_secs)
    }

    /// Returns after which time nothing more is begun.
    pub(crate) fn whole(&self) -> Option<Duration> {
        (!self.full).then_some(WHOLE)
    }

    /// Returns whether everything is asked for, and not only what `--only` names.
    pub(crate) fn is_whole(&self) -> bool {
        self.only.is_empty()
    }

    pub(crate) fn wait(&self) -> Wait {
        let default = if host::cores() >= 2 { Wait::Spin } else { Wait::Yield };
        self.wait.unwrap_or(default)
    }

    pub(crate) fn runs(&self, bytes: usize, blocks: usize) -> usize {
        let usual = match (self.quick, bytes * blocks > LARGE_CELL_BYTES) {
            // The first chooses the rivals, the others judge.
            (true, _) => 2,
            (false, true) => 3,
            (false, false) => 5,
        };
        self.runs.unwrap_or(usual).max(1)
    }

    pub(crate) fn job(&self, what: Mechanism, bytes: usize, blocks: usize) -> Job {
        Job {
            realtime: self.realtime,
            batch_ms: if self.quick { 4 } else { 10 },
            batches: if self.quick { 4 } else { 6 },
            ..Job::new(what, (bytes, blocks), self.wait())
        }
    }

    pub(crate) fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let sizes: &[usize] = match (self.quick, self.full) {
            (true, _) => &QUICK_BYTES,
            // What `--only` names is there in any case.
            (_, true) => &FULL_BYTES,
            _ if self.is_whole() => &BYTES,
            _ => &FULL_BYTES,
        };
        for &bytes in sizes {
            for &blocks in if self.quick { &QUICK_BLOCKS[..] } else { &BLOCKS } {
                let first = blocks == BLOCKS[0];
                let mechanisms = self.mechanisms(bytes, blocks, first);
                if !mechanisms.is_empty() {
                    cells.push(Cell { bytes, blocks, mechanisms, provider: Provider::Shm });
                }
            }
        }
        if self.is_whole() && !self.quick {
            cells.extend(self.cells_of_goals());
        }
        // Where the time is over before the end, the largest are missing.
        cells.sort_by_key(|cell| cell.bytes * cell.blocks);
        if cells.is_empty() {
            let which = if self.quick { " with --quick" } else { "" };
            bail!("--only matches nothing{which}; sizes are {FULL_BYTES:?}, blocks {BLOCKS:?}");
        }
        Ok(cells)
    }

    /// Returns cells that only goals are about: memcpy, and the windows over the network.
    fn cells_of_goals(&self) -> Vec<Cell> {
        let (bytes, blocks) = MEMCPY_CELL;
        let mechanisms = vec![Mechanism::OursCopy, Mechanism::Memcpy];
        let memcpy = Cell { bytes, blocks, mechanisms, provider: Provider::Shm };
        let mut cells = Vec::new();
        cells.extend((!self.full).then_some(memcpy));
        for bytes in ROCE_BYTES {
            cells.extend(BLOCKS.map(|blocks| Cell {
                bytes,
                blocks,
                mechanisms: OVER_ROCE.to_vec(),
                provider: Provider::Roce,
            }));
        }
        cells
    }

    fn mechanisms(&self, bytes: usize, blocks: usize, first: bool) -> Vec<Mechanism> {
        let status_reads =
            STATUS_READS.iter().filter(|_| STATUS_READ_CELLS.contains(&(bytes, blocks)));
        // Others are measured only if they are named.
        let named = self.only.iter().filter_map(|only| only.what.as_ref());
        let others = named.filter(|one| !MECHANISMS.contains(one) && !STATUS_READS.contains(one));
        MECHANISMS
            .iter()
            .chain(status_reads)
            .chain(others)
            .copied()
            .filter(|what| *what != Mechanism::Ucx || first)
            .filter(|what| {
                self.only.is_empty() || self.only.iter().any(|o| o.admits(*what, bytes, blocks))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        let line = ["transfer"].iter().chain(arguments);
        Line::try_parse_from(line).unwrap().options
    }

    #[test]
    fn the_whole_grid_has_every_size_and_number_of_blocks() {
        let cells = options(&[]).cells().unwrap();
        let of = |provider| cells.iter().filter(move |cell| cell.provider == provider).count();
        // One more for memcpy.
        assert_eq!(of(Provider::Shm), BYTES.len() * BLOCKS.len() + 1);
        assert_eq!(of(Provider::Roce), ROCE_BYTES.len() * BLOCKS.len());
        let cells = options(&["--full"]).cells().unwrap();
        let shm = cells.iter().filter(|cell| cell.provider == Provider::Shm);
        assert_eq!(shm.count(), FULL_BYTES.len() * BLOCKS.len());
        let with_status_reads = cells.iter().filter(|c| c.mechanisms.contains(&Mechanism::Paper));
        assert_eq!(with_status_reads.count(), STATUS_READ_CELLS.len());
    }

    #[test]
    fn filters_leave_what_they_name() {
        let cells = options(&["--only", "tcp,64,3", "--only", ",4096,16"]).cells().unwrap();
        let mechanisms = vec![Mechanism::Tcp];
        let tcp = Cell { bytes: 64, blocks: 3, mechanisms, provider: Provider::Shm };
        assert_eq!(cells[0], tcp);
        assert_eq!((cells[1].bytes, cells[1].blocks), (4096, 16));
        assert!(cells[1].mechanisms.contains(&Mechanism::OursCopy));
        assert_eq!(cells.len(), 2);
        let window = options(&["--only", "sw-fair-tail,64,3"]).cells().unwrap();
        assert_eq!(window[0].mechanisms, [Mechanism::SwFairTail]);
    }

    #[test]
    fn wrong_filters_are_named() {
        assert!("tcp,x,3".parse::<Only>().unwrap_err().contains("\"x\""));
        assert!("a,1,2,3".parse::<Only>().unwrap_err().contains("three"));
        let nothing = options(&["--only", "tcp,65,3"]).cells().unwrap_err();
        assert!(nothing.to_string().contains("65536"), "{nothing}");
    }
}
