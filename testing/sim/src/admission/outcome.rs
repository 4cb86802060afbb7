//! What came of a run, or of several together.
use super::packet::Packets;
use super::trace::{Event, FRAME_BYTES};

/// Deadlines by class.
pub(super) const DEADLINES_NS: [u64; 2] = [100_000_000, 1_000_000_000];

/// What became of an event.
#[derive(Clone, Debug, Default)]
pub(super) struct EventEnd {
    /// When its first byte began to leave.
    pub(super) begun_ns: Option<u64>,
    /// When its last byte left.
    pub(super) done_ns: Option<u64>,
    pub(super) frames_ns: Vec<u64>,
    /// Its source was told that the deadline is missed.
    pub(super) told: bool,
}

impl EventEnd {
    /// Notes that something of it begins to leave then.
    pub(super) fn begin(&mut self, at_ns: u64) {
        let begun_ns = self.begun_ns.map_or(at_ns, |before_ns| before_ns.min(at_ns));
        self.begun_ns = Some(begun_ns);
    }
}

/// A run.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) ends: Vec<EventEnd>,
    pub(super) pauses: u64,
    pub(super) messages: u64,
    /// Bits that sources sent beyond what links carry.
    pub(super) over_capacity_bits: f64,
    /// By class, until the last event may have come.
    pub(super) sent_bits: [f64; 2],
    pub(super) control_bytes: u64,
    pub(super) streams: Covered,
    /// By link: the rate at which sources sent, from each time on at which it changed.
    pub(super) rates: Vec<Vec<(u64, u64)>>,
    /// At level `packet`.
    pub(super) packets: Option<Packets>,
}

/// How much of what periodic streams wanted to send they might.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Covered {
    pub(super) bits: f64,
    pub(super) wanted_bits: f64,
    /// The longest time that one had no rate, once it had one.
    pub(super) gap_ns: u64,
}

/// Bytes of a control message around its records, of a record, and records in a message.
const HEADER_BYTES: u64 = 40;
const RECORD_BYTES: u64 = 56;
const RECORDS_MAX: u64 = 24;

impl Outcome {
    /// Counts messages that carry this many records to or from a source at once.
    pub(super) fn count(&mut self, records: usize) {
        let (records, messages) = (records as u64, (records as u64).div_ceil(RECORDS_MAX));
        self.messages += messages;
        self.control_bytes += messages * HEADER_BYTES + records * RECORD_BYTES;
    }
}

/// Several runs together: events that were generated after the warm-up.
#[derive(Debug, Default)]
pub(super) struct Pooled {
    by_class: [Class; 2],
    /// Bytes on time and bytes generated, of each tolerant device.
    devices: std::collections::BTreeMap<u32, (u64, u64)>,
    late_ns: Vec<u64>,
    pub(super) pauses: u64,
    pub(super) messages: u64,
    pub(super) control_bytes: u64,
    pub(super) events: u64,
    pub(super) all_bytes: u64,
    pub(super) over_capacity_bits: f64,
    pub(super) sent_bits: [f64; 2],
    /// Generated after the warm-up, and not done at the end.
    pub(super) unfinished: u64,
    pub(super) missed: u64,
    pub(super) missed_told: u64,
    /// Told as missed, and on time all the same.
    pub(super) told_in_vain: u64,
    /// At level `packet`.
    pub(super) packets: Option<Packets>,
}

#[derive(Debug, Default)]
struct Class {
    bytes: u64,
    on_time: u64,
    frames_on_time: u64,
    latencies_ns: Vec<u64>,
    /// From when transmission begins.
    sending_ns: Vec<u64>,
    frame_latencies_ns: Vec<u64>,
}

impl Pooled {
    pub(super) fn add(&mut self, trace: &[Event], outcome: &Outcome, warm_ns: u64) {
        self.pauses += outcome.pauses;
        self.messages += outcome.messages;
        self.control_bytes += outcome.control_bytes;
        self.events += trace.len() as u64;
        self.all_bytes += trace.iter().map(Event::bytes).sum::<u64>();
        self.over_capacity_bits += outcome.over_capacity_bits;
        if let Some(packets) = &outcome.packets {
            self.packets.get_or_insert_default().add(packets);
        }
        for (sum, bits) in self.sent_bits.iter_mut().zip(outcome.sent_bits) {
            *sum += bits;
        }
        let counted = trace.iter().zip(&outcome.ends).filter(|(event, _)| event.at_ns >= warm_ns);
        for (event, end) in counted {
            self.add_event(event, end);
        }
    }

    fn add_event(&mut self, event: &Event, end: &EventEnd) {
        let (number, bytes) = (usize::from(event.class), event.bytes());
        let deadline_ns = DEADLINES_NS[number];
        let class = &mut self.by_class[number];
        class.bytes += bytes;
        let frames = end.frames_ns.iter().map(|at_ns| at_ns - event.at_ns);
        class.frame_latencies_ns.extend(frames.clone());
        let in_time = frames.filter(|latency_ns| *latency_ns <= deadline_ns).count() as u64;
        class.frames_on_time += in_time * FRAME_BYTES;
        let latency_ns = end.done_ns.map(|done_ns| done_ns - event.at_ns);
        class.latencies_ns.extend(latency_ns);
        let sending = end.done_ns.zip(end.begun_ns);
        class
            .sending_ns
            .extend(sending.map(|(done_ns, begun_ns)| done_ns.saturating_sub(begun_ns)));
        self.unfinished += u64::from(latency_ns.is_none());
        let on_time = latency_ns.is_some_and(|latency_ns| latency_ns <= deadline_ns);
        let device = self.devices.entry(event.device).or_default();
        if on_time {
            class.on_time += bytes;
            device.0 += bytes;
            self.told_in_vain += u64::from(end.told);
        } else {
            self.missed += 1;
            self.missed_told += u64::from(end.told);
            self.late_ns.extend(latency_ns.map(|latency_ns| latency_ns - deadline_ns));
        }
        device.1 += bytes;
    }

    /// Returns the part of a class's bytes whose event was on time.
    pub(super) fn on_time(&self, class: usize) -> f64 {
        fraction(self.by_class[class].on_time, self.by_class[class].bytes)
    }

    /// Returns the bits of a class, after the warm-up, whose event was on time.
    pub(super) fn on_time_bits(&self, class: usize) -> f64 {
        self.by_class[class].on_time as f64 * 8.0
    }

    /// Returns the part of a class's bytes whose frame was on time.
    pub(super) fn frames_on_time(&self, class: usize) -> f64 {
        fraction(self.by_class[class].frames_on_time, self.by_class[class].bytes)
    }

    /// Returns a percentile of the latency of events that ended, in milliseconds.
    pub(super) fn latency_ms(&self, class: usize, percent: f64) -> Option<f64> {
        percentile(&self.by_class[class].latencies_ns, percent).map(|ns| ns / 1e6)
    }

    /// Returns a percentile of the time of events from when their transmission began to their end, in milliseconds.
    pub(super) fn sending_ms(&self, class: usize, percent: f64) -> Option<f64> {
        percentile(&self.by_class[class].sending_ns, percent).map(|ns| ns / 1e6)
    }

    pub(super) fn frame_latency_ms(&self, class: usize, percent: f64) -> Option<f64> {
        percentile(&self.by_class[class].frame_latencies_ns, percent).map(|ns| ns / 1e6)
    }

    /// Returns a percentile of the time by which late events were late, in seconds.
    pub(super) fn late_s(&self, percent: f64) -> Option<f64> {
        percentile(&self.late_ns, percent).map(|ns| ns / 1e9)
    }

    /// Returns the part of the bytes of some devices whose event was on time.
    pub(super) fn devices_on_time(&self, wanted: impl Fn(u32) -> bool) -> f64 {
        let devices = self.devices.iter().filter(|(device, _)| wanted(**device));
        let sum = devices.fold((0, 0), |sum, (_, one)| (sum.0 + one.0, sum.1 + one.1));
        fraction(sum.0, sum.1)
    }

    /// Returns Jain's index of the on-time parts of tolerant devices.
    pub(super) fn jain(&self, tolerant: impl Fn(u32) -> bool) -> f64 {
        let devices = self.devices.iter().filter(|(device, _)| tolerant(**device));
        let parts: Vec<f64> = devices.map(|(_, one)| fraction(one.0, one.1)).collect();
        let (sum, squares) =
            parts.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (parts.len() as f64 * squares)
    }
}

fn fraction(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Interpolates between the two nearest ranks.
fn percentile(values: &[u64], percent: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    let place = (values.len().checked_sub(1)?) as f64 * percent / 100.0;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    let (one, other) = (values[low] as f64, values[high] as f64);
    Some(one + (other - one) * (place - low as f64))
}
/// How classes fared, without the first tenth. `None` where nothing of a class came.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Judged {
    pub urgent_ms_p50: Option<f64>,
    pub urgent_ms_p95: Option<f64>,
    pub urgent_ms_p99: Option<f64>,
    pub tolerant_ms_p50: Option<f64>,
    pub tolerant_ms_p95: Option<f64>,
    pub tolerant_frame_ms_p95: Option<f64>,
    /// From when transmission begins, not from when the event was generated, to its end.
    pub urgent_sending_ms_p50: Option<f64>,
    pub urgent_sending_ms_p95: Option<f64>,
    pub tolerant_sending_ms_p50: Option<f64>,
    pub tolerant_sending_ms_p95: Option<f64>,
    pub urgent_on_time: f64,
    pub tolerant_on_time_event: f64,
    pub tolerant_on_time_frame: f64,
    pub missed_told: u64,
    pub missed: u64,
    pub late_s_p99: Option<f64>,
    pub late_s_max: Option<f64>,
    pub jain_devices: Option<f64>,
}

impl Judged {
    /// Judges what came of events; `tolerant` says which devices are compared with each other.
    pub(super) fn of(pooled: &Pooled, tolerant: impl Fn(u32) -> bool) -> Self {
        let spread = |class, percent| pooled.latency_ms(class, percent);
        Self {
            urgent_ms_p50: spread(0, 50.0),
            urgent_ms_p95: spread(0, 95.0),
            urgent_ms_p99: spread(0, 99.0),
            tolerant_ms_p50: spread(1, 50.0),
            tolerant_ms_p95: spread(1, 95.0),
            tolerant_frame_ms_p95: pooled.frame_latency_ms(1, 95.0),
            urgent_sending_ms_p50: pooled.sending_ms(0, 50.0),
            urgent_sending_ms_p95: pooled.sending_ms(0, 95.0),
            tolerant_sending_ms_p50: pooled.sending_ms(1, 50.0),
            tolerant_sending_ms_p95: pooled.sending_ms(1, 95.0),
            urgent_on_time: pooled.on_time(0),
            tolerant_on_time_event: pooled.on_time(1),
            tolerant_on_time_frame: pooled.frames_on_time(1),
            missed_told: pooled.missed_told,
            missed: pooled.missed,
            late_s_p99: pooled.late_s(99.0),
            late_s_max: pooled.late_s(100.0),
            jain_devices: Some(pooled.jain(tolerant)).filter(|jain| jain.is_finite()),
        }
    }
}
