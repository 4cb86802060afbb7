//! The columns of a row about memory, queues and status bytes: the same for every mechanism, empty
//! where it has no such thing.
use crate::job::{Needs, Outcome, Queues};
use crate::mechanism::Mechanism;
use crate::stats::{Spread, decimals, tenths};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Resources {
    /// Most memory of the source process in use, shared pages included: the largest of all runs.
    pub(crate) rss_bytes_peak_source: u64,
    /// The same of the collector process; `null` where none takes part.
    pub(crate) rss_bytes_peak_collector: Option<u64>,
    pub(crate) queue_pairs_source: Option<u32>,
    pub(crate) queue_pairs_collector: Option<u32>,
    pub(crate) completion_queues_source: Option<u32>,
    pub(crate) completion_queues_collector: Option<u32>,
    pub(crate) send_queue_depth_source: Option<u32>,
    pub(crate) send_queue_depth_collector: Option<u32>,
    pub(crate) receive_queue_depth_source: Option<u32>,
    pub(crate) receive_queue_depth_collector: Option<u32>,
    pub(crate) completion_queue_depth_source: Option<u32>,
    pub(crate) completion_queue_depth_collector: Option<u32>,
    pub(crate) status_reads_per_block: Option<f64>,
    /// Synchronisation: how long such a look takes after the collector has changed a byte; median
    /// over runs of the run's median.
    pub(crate) status_read_ns_p50: Option<f64>,
    pub(crate) status_read_ns_p99: Option<f64>,
}

impl Resources {
    pub(crate) fn new(what: Mechanism, outcomes: &[Outcome]) -> Self {
        let [source, collector] = [|o: &Outcome| o.source, |o: &Outcome| o.collector].map(|of| {
            outcomes.iter().map(of).max_by_key(|needs| needs.rss_bytes_peak).unwrap_or_default()
        });
        let depth = |needs: &Needs, of: fn(&Queues) -> u32| needs.queues.as_ref().map(of);
        let looks: Vec<_> = outcomes.iter().filter_map(|o| o.status_read).collect();
        let look = |values: Vec<f64>| (!values.is_empty()).then(|| tenths(Spread::of(&values).p50));
        Self {
            rss_bytes_peak_source: source.rss_bytes_peak,
            rss_bytes_peak_collector: what.has_collector().then_some(collector.rss_bytes_peak),
            queue_pairs_source: depth(&source, |q| q.queue_pairs),
            queue_pairs_collector: depth(&collector, |q| q.queue_pairs),
            completion_queues_source: depth(&source, |q| q.completion_queues),
            completion_queues_collector: depth(&collector, |q| q.completion_queues),
            send_queue_depth_source: depth(&source, |q| q.send_queue_depth),
            send_queue_depth_collector: depth(&collector, |q| q.send_queue_depth),
            receive_queue_depth_source: depth(&source, |q| q.receive_queue_depth),
            receive_queue_depth_collector: depth(&collector, |q| q.receive_queue_depth),
            completion_queue_depth_source: depth(&source, |q| q.completion_queue_depth),
            completion_queue_depth_collector: depth(&collector, |q| q.completion_queue_depth),
            status_reads_per_block: status_reads_per_block(outcomes),
            status_read_ns_p50: look(looks.iter().map(|look| look.p50_ns).collect()),
            status_read_ns_p99: look(looks.iter().map(|look| look.p99_ns).collect()),
        }
    }
}

fn status_reads_per_block(outcomes: &[Outcome]) -> Option<f64> {
    let streams = outcomes.iter().flat_map(|o| &o.streams);
    let (reads, blocks) = streams.fold((None, 0), |(reads, blocks), stream| {
        let more = stream.status_reads.map(|n| n + reads.unwrap_or(0));
        (more.or(reads), blocks + stream.count)
    });
    reads.map(|reads| decimals(reads as f64 / blocks.max(1) as f64, 4))
}
