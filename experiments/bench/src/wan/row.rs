//! Rows and goals.
use super::method::Method;
use super::place::{Place, SOURCES};
use crate::bound::Goal;
use crate::hop::PATH_MTU;
use crate::host;
use catchment_sim::admission::Judged;
use serde::Serialize;

/// The first row: the machine and the rates that numbers belong to.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    #[serde(flatten)]
    run: host::Run,
    sources: u8,
    capacity_bps: u64,
    shaper_bps: u64,
    nic_bps: u64,
    nic_shaper_bps: u64,
    path_mtu: u64,
    header_bytes: u64,
    queue_bytes: u64,
    chunk_kib: u64,
}

impl Run {
    pub(super) fn detect(mode: &'static str, place: &Place) -> Self {
        Self {
            run: host::Run::detect(mode),
            sources: SOURCES,
            capacity_bps: place.capacity_bps(),
            shaper_bps: place.shaper_bps(place.capacity_bps()),
            nic_bps: place.nic_bps(),
            nic_shaper_bps: place.shaper_bps(place.nic_bps()),
            path_mtu: PATH_MTU,
            header_bytes: place.header_bytes(),
            queue_bytes: place.queue_bytes(),
            chunk_kib: place.chunk_kib(),
        }
    }

    pub(super) fn line(&self) -> String {
        let Self { sources, capacity_bps, shaper_bps, nic_bps, nic_shaper_bps, .. } = self;
        format!(
            "{}\n\
             {sources} sources of {nic_bps} bit/s (shaper {nic_shaper_bps}) share {capacity_bps} bit/s (shaper \
             {shaper_bps}: path MTU {PATH_MTU} + headers {}), queue {} bytes, chunks of {} KiB",
            self.run.line(),
            self.header_bytes,
            self.queue_bytes,
            self.chunk_kib
        )
    }
}

/// A method under a load; what does not apply to it is null.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) place: &'static str,
    pub(super) method: String,
    pub(super) calibration: &'static str,
    pub(super) pause: Option<&'static str>,
    pub(super) scale: f64,
    pub(super) ipv6: bool,
    pub(super) nic_bps: u64,
    pub(super) capacity_bps: u64,
    pub(super) nic_shaper_bps: u64,
    pub(super) shaper_bps: u64,
    pub(super) path_mtu: Option<u64>,
    pub(super) queue_bytes: u64,
    pub(super) guard_us: Option<u64>,
    pub(super) rtt_ms: f64,
    pub(super) mix: &'static str,
    pub(super) load: f64,
    /// What the events of the trace have.
    pub(super) load_drawn: f64,
    pub(super) seeds: u64,
    pub(super) seconds: u64,
    #[serde(flatten)]
    pub(super) judged: Judged,
    /// Of the missed ones: frames of theirs were there, and waited for an earlier event of their device.
    pub(super) missed_held_back: u64,
    /// Of the trace.
    pub(super) urgent_events: u64,
    /// Whether one processor takes all that arrives from the bottleneck: else packets come in another order.
    pub(super) keeps_order: bool,
    /// At the bottleneck.
    pub(super) packets_dropped: u64,
    pub(super) nic_packets_dropped: u64,
    /// Datagrams that found the collector's socket full.
    pub(super) socket_packets_dropped: Option<u64>,
    /// NAKs that the collector sent for gaps; one for each, of as many packets as it may be. Packets that two processors
    /// of the way put into another order are a gap too.
    pub(super) sequence_gaps: Option<u64>,
    /// UDP datagrams that sources sent and the collector's host did not receive, by the kernel's counts: packets of RoCE, and
    /// what is said to the controller.
    pub(super) packets_missing: Option<i64>,
    /// TCP segments that were sent and not received, by those of all ends: of the sessions.
    pub(super) segments_missing: Option<i64>,
    pub(super) frames_lost: Option<u64>,
    /// Neither lost nor there when the cell ended.
    pub(super) frames_not_there: u64,
    pub(super) operations_failed: Option<u64>,
    pub(super) resent_fraction: Option<f64>,
    pub(super) timeouts: Option<u64>,
    pub(super) messages_per_event: Option<f64>,
    /// What the controller served: events or frames, as its method has it.
    pub(super) transfers: Option<u64>,
    pub(super) cpu_s_per_gb_collector: Option<f64>,
    pub(super) cpu_s_per_gb_source: Option<f64>,
    /// Of the whole machine, the work of queues and shapers included.
    pub(super) cpu_s_per_gb_softirq: Option<f64>,
    /// Of a core.
    pub(super) cpu_controller: Option<f64>,
    pub(super) cpu_us_per_grant: Option<f64>,
    /// Of sources, collector and controller together, of a core: Table I of the paper.
    pub(super) cpu_cores: f64,
    /// Tolerant bytes of events on time, by the simulator on the same events.
    pub(super) on_time_simulated: Option<f64>,
    pub(super) urgent_ms_p95_simulated: Option<f64>,
}

impl Row {
    pub(super) fn line(&self) -> String {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let part = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
        };
        format!(
            "{:12} load {} (drawn {:.3}): urgent P95 {:>7} ms on time {:.3}, tolerant on time {:.3} (simulated {}), P95 {:>8} ms; \
             {} dropped, {} lost, {} not there; CPU s/GB collector {} sources {} softirq {}, controller {}",
            self.method,
            self.load,
            self.load_drawn,
            ms(self.judged.urgent_ms_p95),
            self.judged.urgent_on_time,
            self.judged.tolerant_on_time_event,
            part(self.on_time_simulated),
            ms(self.judged.tolerant_ms_p95),
            self.packets_dropped,
            self.frames_lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string()),
            self.frames_not_there,
            part(self.cpu_s_per_gb_collector),
            part(self.cpu_s_per_gb_source),
            part(self.cpu_s_per_gb_softirq),
            part(self.cpu_controller),
        )
    }

    fn is(&self, method: Method) -> bool {
        self.method == method.to_string()
    }
}

/// Returns the goals of all rows.
pub(super) fn goals(rows: &[Row]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = rows.iter().flat_map(of_row).collect();
    let deadline = rows.iter().filter(|row| row.is(Method::Deadline));
    for (ours, method) in deadline
        .flat_map(|row| [Method::KernelCubic, Method::KernelBbr].map(|method| (row, method)))
    {
        let same = |row: &&Row| row.is(method) && row.load_drawn == ours.load_drawn;
        let theirs = rows.iter().find(same);
        let name = format!("deadline beside {method} at load {}", ours.load);
        if ours.load >= 0.66 {
            let more = theirs
                .map(|row| ours.judged.tolerant_on_time_event - row.judged.tolerant_on_time_event);
            goals.push(Goal::new(format!("{name}: more events on time"), more, |more| more > 0.0));
        }
        if ours.load == 0.87 {
            let part =
                theirs.and_then(|row| Some(ours.judged.urgent_ms_p95? / row.judged.urgent_ms_p95?));
            let goal = Goal::most(format!("{name}: part of its urgent_ms_p95"), part, 0.5);
            goals.push(goal.because(|| found_the_link(ours, theirs)));
        }
    }
    goals.extend(of_table_one(rows));
    let why_not = "the kernel has no queue that marks between namespaces";
    goals.push(Goal::unmeasured("dcqcn", why_not));
    goals
}

/// The load of Table I of the paper, where it says what its methods cost.
const TABLE_ONE_LOAD: f64 = 0.66;

/// Processor time there, as registered (E2.1b): RDMA-TCM's above that of strict priority, P-RDMA-TCM's about RDMA-TCM's.
fn of_table_one(rows: &[Row]) -> Vec<Goal> {
    let of = |method| rows.iter().find(|row| row.is(method) && row.load == TABLE_ONE_LOAD);
    let beside = |ours, theirs| Some(of(ours)?.cpu_cores / of(theirs)?.cpu_cores);
    let name = |ours, theirs| {
        format!("{ours} beside {theirs} at load {TABLE_ONE_LOAD}: part of its cpu_cores")
    };
    let cause = || {
        let spq = of(Method::Spq).and_then(|row| row.resent_fraction).unwrap_or(0.0);
        format!("spq sends {:.0} % of its packets again", 100.0 * spq)
    };
    let more = (Method::Fifo, Method::Spq);
    let alike = (Method::Priority, Method::Fifo);
    let more = beside(more.0, more.1)
        .map(|part| Goal::least(name(more.0, more.1), Some(part), 1.0).because(cause));
    let alike = beside(alike.0, alike.1)
        .map(|part| Goal::most(name(alike.0, alike.1), Some(part), 1.1).because(cause));
    more.into_iter().chain(alike).collect()
}

/// Says how the urgent events of both found the link.
fn found_the_link(ours: &Row, theirs: Option<&Row>) -> String {
    let spread = |judged: &Judged| {
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        format!("{} ms p50 and {} p95", ms(judged.urgent_ms_p50), ms(judged.urgent_ms_p95))
    };
    let theirs = theirs.map_or("not measured".to_owned(), |row| spread(&row.judged));
    format!("{} urgent events: ours {}, its {theirs}", ours.urgent_events, spread(&ours.judged))
}

fn of_row(row: &Row) -> Vec<Goal> {
    let name = |field: &str| format!("{} load {}: {field}", row.method, row.load);
    let mut goals = Vec::new();
    let dropped = Some(row.packets_dropped as f64);
    if row.on_time_simulated.is_some() {
        let guard_us = row.guard_us.unwrap_or(0);
        goals.push(Goal::most(name("packets_dropped"), dropped, 0.0).because(|| {
            format!("delays beyond the guard of {guard_us} us let windows overlap; how long they were is not measured")
        }));
    }
    if row.is(Method::Spq) && row.load >= 0.3 {
        goals.push(Goal::least(name("packets_dropped"), dropped, 1.0));
    }
    if let Some(gaps) = row.sequence_gaps {
        let difference = gaps.abs_diff(row.packets_dropped) as f64;
        let beside =
            Goal::most(name("packets_dropped beside sequence_gaps"), Some(difference), 0.0);
        goals.push(beside.because(|| match row.packets_dropped {
            0 => "packets came in another order: several processors carry them".to_owned(),
            _ => "a NAK is for a gap, of as many packets as it may be".to_owned(),
        }));
        let at_socket = row.socket_packets_dropped.unwrap_or(0);
        let dropped = row.packets_dropped + row.nic_packets_dropped + at_socket;
        let missing = row.packets_missing.zip(row.segments_missing);
        let apart =
            missing.map(|(packets, segments)| (packets + segments - dropped as i64).abs() as f64);
        let beside = "packets_dropped beside what is missing";
        let beside = match row.place {
            "relay" => {
                Goal::unmeasured(&name(beside), "this host counts packets of all its programs")
            }
            _ => Goal::most(name(beside), apart, 0.0),
        };
        goals.push(beside.because(|| {
            format!(
                "{} at the router and {} at a full socket; {} datagrams missing, and {} of the sessions' TCP",
                row.packets_dropped,
                at_socket,
                row.packets_missing.unwrap_or(0),
                row.segments_missing.unwrap_or(0),
            )
        }));
        let lost = row.frames_lost.map(|lost| lost as f64);
        goals.push(Goal::most(name("frames_lost"), lost, 0.0));
    }
    if row.is(Method::Deadline) {
        let behind =
            row.on_time_simulated.map(|simulated| simulated - row.judged.tolerant_on_time_event);
        let cause = || {
            let ms = row.urgent_ms_p95_simulated.unwrap_or(0.0);
            let timeouts = row.timeouts.unwrap_or(0);
            format!(
                "simulated: urgent P95 {ms:.1} ms; {timeouts} timeouts, {} drops",
                row.packets_dropped
            )
        };
        goals.push(Goal::most(name("on_time_simulated ahead"), behind, 0.02).because(cause));
        let urgent = Goal::most(name("urgent_ms_p95"), row.judged.urgent_ms_p95, 30.0);
        goals.push(urgent.because(cause));
    }
    goals
}
