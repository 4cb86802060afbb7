//! The command: which rows to measure, and how they are shown.
use super::cell::{Cell, LINK_BPS, Links, Method};
use super::outcome::Pooled;
use super::replay::Trace;
use super::row::{Goal, Report, RunRow};
use super::trace::Mix;
use super::{added, fair, knee, ladder, many, packets, speed, step};
use crate::parallel;
use catchment_control::admission::Pausing;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// A method under a load
    Cell,
    /// The same with packets of the shipped queue pairs, on links that drop
    Packet,
    /// Several collectors behind one link, by credits of each and by a controller, with packets
    Collectors,
    /// The largest load with both classes on time
    Knee,
    /// What the controller adds to the time of a lone stream
    Added,
    /// Others beside a device that floods
    Fair,
    /// A link that carries less, then more
    Step,
    /// What the controller costs
    Speed,
    /// A hundred thousand cameras, of a thousand sources and of as many
    Many,
}

/// Options of `bench admission`.
#[derive(Debug, Clone, clap::Args)]
pub struct AdmissionOptions {
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Only rows of this kind
    #[arg(long)]
    what: Option<What>,
    /// Only this method: fifo, priority, credits, deadline, plain, spq, dcqcn or selective-repeat
    #[arg(long)]
    method: Option<String>,
    /// Only this step of the ladder, such as A3b
    #[arg(long)]
    ladder: Option<String>,
    /// The first of the seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shorter runs: 3 seeds of 800 s instead of 4 of 3,000 s
    #[arg(long)]
    quick: bool,
    /// The events of a file (docs/spec/event-trace.md) instead of drawn ones: a cell for each method
    #[arg(long)]
    trace: Option<PathBuf>,
}

impl AdmissionOptions {
    fn wants(&self, what: What, method: &Method) -> bool {
        let named = |wanted: &Option<String>, name| wanted.as_ref().is_none_or(|want| want == name);
        self.what.is_none_or(|wanted| wanted == what)
            && named(&self.method, method.name)
            && named(&self.ladder, method.ladder.unwrap_or("shipped"))
    }

    fn cell(&self, method: Method) -> Cell {
        let count = if self.quick { 3 } else { 4 };
        let seeds = (self.seed..self.seed + count).collect();
        let seconds = if self.quick { 800 } else { 3000 };
        let (links, mix) = (Links::Pool(1), Mix::Events);
        Cell { method, links, mix, load: 0.0, seeds, seconds, carrier: None }
    }
}

/// Measures, and prints a line for each row.
///
/// # Errors
/// When the trace cannot be read.
pub fn run(options: &AdmissionOptions) -> Result<(), String> {
    let rates = [LINK_BPS / 2, LINK_BPS];
    let ours = rates.map(ladder::credits).into_iter().chain(rates.map(ladder::shipped));
    let methods: Vec<Method> =
        ladder::papers().into_iter().chain(ladder::steps()).chain(ours).collect();
    let report = Report::new(options.json);
    report.show(&RunRow::detect(options.quick));
    if let Some(path) = &options.trace {
        replay(options, &report, &methods, path)?;
    } else {
        cells(options, &report, &methods);
        packet_cells(options, &report);
        several_collectors(options, &report);
        knees(options, &report, &methods);
        others(options, &report);
    }
    report.end();
    Ok(())
}

/// Measures what is neither a load nor a knee.
fn others(options: &AdmissionOptions, report: &Report) {
    let [slow, fast] = [LINK_BPS / 2, LINK_BPS].map(ladder::shipped);
    let trips = [500_000, 20_000_000].map(|rtt_ns| Method { rtt_ns, ..slow.clone() });
    if options.wants(What::Added, &slow) {
        trips.iter().flat_map(added::rows).for_each(|row| report.show(&row));
    }
    for row in fair::cases(options.quick, options.seed) {
        if options.wants(What::Fair, &row.method) {
            report.show(&row.run());
        }
    }
    if options.wants(What::Step, &slow) {
        let times = if options.quick { 2 } else { 8 };
        let rows = trips.iter().flat_map(|method| step::rows(method, times));
        rows.for_each(|row| report.show(&row));
    }
    if options.wants(What::Speed, &fast) {
        speed::rows(options.quick).iter().for_each(|row| report.show(row));
    }
    if options.wants(What::Many, &fast) {
        many::rows(options.seed).iter().for_each(|row| report.show(row));
    }
}

const LOADS: [f64; 9] = [0.09, 0.3, 0.5, 0.66, 0.8, 0.87, 0.9, 0.92, 1.0];

fn cells(options: &AdmissionOptions, report: &Report, methods: &[Method]) {
    let mut cells: Vec<Cell> = Vec::new();
    for method in methods.iter().filter(|method| options.wants(What::Cell, method)) {
        cells.extend(LOADS.map(|load| Cell { load, ..options.cell(method.clone()) }));
        if method.ladder.is_none() {
            let others =
                [(2, Pausing::Confirmed), (20, Pausing::Confirmed), (20, Pausing::Predicted)];
            for (rtt_ms, pausing) in others {
                let mut method = Method { rtt_ns: rtt_ms * 1_000_000, ..method.clone() };
                method.rules.pausing = pausing;
                cells.push(Cell { load: 1.0, ..options.cell(method) });
            }
            cells.push(Cell { mix: Mix::Bytes, load: 1.0, ..options.cell(method.clone()) });
        }
    }
    let run = |at: u64| cells[at as usize].row(&cells[at as usize].run());
    // What credits have on time, by sender and load, on the same events.
    let mut credits: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    parallel::in_order(cells.len() as u64, run, |_, row| {
        let cell = (row.nic_bps, row.load.to_bits());
        if row.method == "credits" {
            credits.insert(cell, row.judged.tolerant_on_time_event);
        } else if row.is_shipped_policy()
            && let Some(least) = credits.get(&cell)
        {
            let name = format!("{} bit/s load {}: deadline beside credits", row.nic_bps, row.load);
            report.demand(Goal::least(name, Some(row.judged.tolerant_on_time_event), *least));
        }
        report.show(&row);
        true
    });
}

/// Loads and seconds of level `packet`: a second has some 600,000 packets, so a short run has the ends only.
const PACKET_LOADS: [f64; 6] = [0.09, 0.3, 0.5, 0.66, 0.87, 1.0];
const PACKET_LOADS_QUICK: [f64; 2] = [0.3, 0.87];
const PACKET_SECONDS: u64 = 60;
const PACKET_SECONDS_QUICK: u64 = 4;

fn packet_cells(options: &AdmissionOptions, report: &Report) {
    let mut cells = Vec::new();
    let (loads, seconds) = if options.quick {
        (&PACKET_LOADS_QUICK[..], PACKET_SECONDS_QUICK)
    } else {
        (&PACKET_LOADS[..], PACKET_SECONDS)
    };
    for (method, carrier) in packets::methods() {
        if options.wants(What::Packet, &method) {
            let cell = Cell { seeds: vec![options.seed], seconds, ..options.cell(method) };
            let cell = Cell { carrier: Some(carrier), ..cell };
            cells.extend(loads.iter().map(|load| Cell { load: *load, ..cell.clone() }));
        }
    }
    packets::show(&cells, report);
}

/// Loads and seconds of several collectors: twice as many packets.
const SEVERAL_LOADS: [f64; 2] = [0.5, 0.87];
const SEVERAL_LOADS_QUICK: [f64; 1] = [0.66];
const SEVERAL_SECONDS: u64 = 10;
const SEVERAL_SECONDS_QUICK: u64 = 1;
/// The controller's knee by that of credits.
const KNEE_RATIO: f64 = 1.2;

/// Measures cells with several collectors, and knees where there is time.
fn several_collectors(options: &AdmissionOptions, report: &Report) {
    let (loads, seconds) = if options.quick {
        (&SEVERAL_LOADS_QUICK[..], SEVERAL_SECONDS_QUICK)
    } else {
        (&SEVERAL_LOADS[..], SEVERAL_SECONDS)
    };
    let of = packets::several().filter(|(method, ..)| options.wants(What::Collectors, method));
    let of = of.map(|(method, links, carrier)| {
        let carrier = Some(carrier);
        Cell { links, carrier, seeds: vec![options.seed], seconds, ..options.cell(method) }
    });
    let all: Vec<Cell> = of.collect();
    let loaded = |cell: &Cell| -> Vec<Cell> {
        loads.iter().map(|load| Cell { load: *load, ..cell.clone() }).collect()
    };
    let cells: Vec<Cell> = all.iter().flat_map(loaded).collect();
    let run = |at: u64| cells[at as usize].row(&cells[at as usize].run());
    parallel::in_order(cells.len() as u64, run, |_, row| {
        report.show(&row);
        true
    });
    if options.quick {
        return;
    }
    let find = |at: u64| knee::find(&all[at as usize]);
    let mut credits: BTreeMap<(String, u64), Option<f64>> = BTreeMap::new();
    parallel::in_order(all.len() as u64, find, |_, rows| {
        for row in rows {
            let place = (row.links.clone(), row.threshold.to_bits());
            if row.method == "credits" {
                credits.insert(place, row.knee_event);
            } else if let Some(rival) = credits.get(&place) {
                let ratio = row.knee_event.zip(*rival).map(|(ours, theirs)| ours / theirs);
                let name = format!("knee {} at {}: deadline by credits", row.links, row.threshold);
                report.demand(Goal::least(name, ratio, KNEE_RATIO));
            }
            report.show(&row);
        }
        true
    });
}

fn knees(options: &AdmissionOptions, report: &Report, methods: &[Method]) {
    let mut cells: Vec<Cell> = Vec::new();
    for method in methods.iter().filter(|method| options.wants(What::Knee, method)) {
        for mix in [Mix::Events, Mix::Bytes] {
            cells.push(Cell { mix, ..options.cell(method.clone()) });
        }
        if matches!(method.ladder, Some("A5" | "A7")) {
            let cell = options.cell(method.clone());
            cells.push(Cell { links: Links::TwoHops, seconds: cell.seconds / 2, ..cell });
        }
        if method.ladder.is_none() {
            let others = [Links::Pool(2), Links::Pool(5), Links::TwoHops];
            cells.extend(others.map(|links| {
                let cell = options.cell(method.clone());
                let seconds = cell.seconds * 20_000_000_000 / links.capacity_bps();
                Cell { links, seconds: seconds.max(200), ..cell }
            }));
            let method = Method { rtt_ns: 2_000_000, ..method.clone() };
            cells.push(options.cell(method));
        }
    }
    let trips = knee::trips().into_iter().filter(|method| options.wants(What::Knee, method));
    cells.extend(trips.map(|method| options.cell(method)));
    parallel::in_order(
        cells.len() as u64,
        |at| knee::find(&cells[at as usize]),
        |_, rows| {
            rows.iter().for_each(|row| report.show(row));
            true
        },
    );
}

/// Runs each method on the events of a file.
fn replay(
    options: &AdmissionOptions,
    report: &Report,
    methods: &[Method],
    path: &PathBuf,
) -> Result<(), String> {
    let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|problem| error(&problem))?;
    let trace = Trace::read(&text).map_err(|problem| error(&problem))?;
    let (load, seconds) = (trace.load(), trace.seconds());
    for method in methods.iter().filter(|method| options.wants(What::Cell, method)) {
        let cell = Cell { load, seconds, seeds: vec![0], ..options.cell(method.clone()) };
        let pooled: Pooled = cell.run_on(std::iter::once(trace.events().to_vec()));
        report.show(&cell.row(&pooled));
    }
    Ok(())
}
