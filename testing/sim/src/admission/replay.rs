//! A trace that is carried elsewhere too, by real processes, and judged like those simulated here.
use super::cell::{Cell, LINK_BPS, Links, Method, SECOND_NS};
use super::ladder;
use super::outcome::{DEADLINES_NS, EventEnd, Judged, Outcome, Pooled};
use super::trace::{self, Event, FRAME_BYTES, Mix, Offer, SOURCES};
use catchment_control::admission::Rules;
use catchment_probe::random::Random;

/// Events of twelve sources on a link of 20 Gbit/s, in the order of their times.
#[derive(Clone, Debug)]
pub struct Trace {
    events: Vec<Event>,
    seconds: u64,
}

/// What became of an event elsewhere.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// When its source began to send it, from the beginning of the trace.
    pub begun_ns: Option<u64>,
    /// When each of its frames was there that came, from the beginning of the trace.
    pub frames_ns: Vec<u64>,
    /// Its source was told that it misses its deadline.
    pub told: bool,
}

/// A policy as it is built, without calibrated delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// RDMA-TCM: a grant a frame, a request of each source at a time.
    Fifo,
    /// P-RDMA-TCM: the same.
    Priority,
    /// The shipped one: a grant an event, all that a source has asked for.
    Deadline,
}

impl Trace {
    /// Draws the events of a seed, as [`bench admission`](super::run) does.
    pub fn draw(load: f64, seconds: u64, seed: u64) -> Self {
        let horizon_ns = seconds * SECOND_NS;
        let capacity_bps = LINK_BPS;
        let (mix, devices, first) = (Mix::Events, SOURCES, 0);
        let offer = Offer { load, mix, capacity_bps, devices, first, horizon_ns };
        Self { events: trace::draw(&offer, &mut Random::new(1000 + seed)), seconds }
    }

    /// Reads the lines of a file (docs/spec/event-trace.md).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(serde_json::from_str::<Event>);
        let mut events: Vec<Event> =
            lines.collect::<Result<_, _>>().map_err(|problem| problem.to_string())?;
        events.sort_unstable();
        let last_ns = events.last().ok_or("no events")?.at_ns;
        let known = |event: &Event| event.device < SOURCES && event.class < 2;
        if !events.iter().all(known) {
            return Err("devices are 0 to 11, classes 0 (device 0) and 1".to_owned());
        }
        Ok(Self { events, seconds: last_ns / SECOND_NS + 1 })
    }

    /// Returns the lines of a file.
    pub fn lines(&self) -> String {
        let lines = self.events.iter().filter_map(|event| serde_json::to_string(event).ok());
        lines.flat_map(|line| [line, "\n".to_owned()]).collect()
    }

    /// Returns how many events a device has.
    pub fn events_of(&self, device: u32) -> u64 {
        self.events().iter().filter(|event| event.device == device).count() as u64
    }

    /// Returns the events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the length.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Returns what is offered, as a part of the link.
    pub fn load(&self) -> f64 {
        let bits: f64 = self.events.iter().map(|event| event.bytes() as f64 * 8.0).sum();
        bits / (self.seconds as f64 * LINK_BPS as f64)
    }

    /// Judges what became of each event.
    pub fn judge(&self, ends: &[End]) -> Judged {
        let end = |(event, end): (&Event, &End)| {
            let mut frames_ns: Vec<u64> =
                end.frames_ns.iter().map(|at_ns| *at_ns.max(&event.at_ns)).collect();
            frames_ns.sort_unstable();
            let done_ns =
                frames_ns.last().copied().filter(|_| frames_ns.len() as u64 == event.frames);
            let (begun_ns, told) = (end.begun_ns, end.told);
            EventEnd { begun_ns, done_ns, frames_ns, told }
        };
        let ends = self.events.iter().zip(ends).map(end).collect();
        let mut pooled = Pooled::default();
        let outcome = Outcome { ends, ..Outcome::default() };
        pooled.add(&self.events, &outcome, self.seconds * SECOND_NS / 10);
        Judged::of(&pooled, |device| device > 0)
    }

    /// Returns how many tolerant events that count missed their deadline although frames of theirs were there and waited for an
    /// earlier event of their device: at least two were handed out within a tenth of the time that a NIC of this part of the
    /// link takes for one.
    pub fn held_back(&self, ends: &[End], nic: f64) -> u64 {
        let frame_ns = (FRAME_BYTES * 8) as f64 * SECOND_NS as f64 / (nic * LINK_BPS as f64);
        let is_late = |event: &Event, end: &End| {
            let last_ns = end.frames_ns.iter().max().copied().unwrap_or(u64::MAX);
            last_ns.saturating_sub(event.at_ns) > DEADLINES_NS[1]
        };
        let waited = |end: &End| {
            let mut frames_ns = end.frames_ns.clone();
            frames_ns.sort_unstable();
            let at_once = |pair: &&[u64]| ((pair[1] - pair[0]) as f64) < 0.1 * frame_ns;
            frames_ns.windows(2).filter(at_once).count() >= 2
        };
        let all = self.events.iter().zip(ends);
        let counted = all
            .filter(|(event, _)| event.class == 1 && event.at_ns >= self.seconds * SECOND_NS / 10);
        counted.filter(|(event, end)| is_late(event, end) && waited(end)).count() as u64
    }

    /// Simulates a policy on the same events, with NICs of this part of the link.
    pub fn simulate(&self, policy: Policy, nic: f64, guard_ns: u64, rtt_ns: u64) -> Judged {
        let nic_bps = (nic * LINK_BPS as f64) as u64;
        let shipped = Method { guard_ns, rtt_ns, ..ladder::shipped(nic_bps) };
        let frames = |name, rules| {
            let (by_frame, outstanding) = (true, 1);
            Method { name, rules, by_frame, outstanding, ..shipped.clone() }
        };
        let method = match policy {
            Policy::Fifo => frames("fifo", Rules::fifo(nic_bps)),
            Policy::Priority => frames("priority", Rules::priority(nic_bps)),
            Policy::Deadline => shipped,
        };
        let (links, mix, seeds) = (Links::Pool(1), Mix::Events, vec![0]);
        let load = self.load();
        let cell = Cell { method, links, mix, load, seeds, seconds: self.seconds, carrier: None };
        Judged::of(&cell.run_on(std::iter::once(self.events.clone())), |device| device > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latency is from the generation on, and beside it from when transmission begins (S2.13); what is on time counts by frames and by events (S2.14).
    #[test]
    fn a_trace_comes_back_from_its_lines_and_is_judged_by_its_deadlines() {
        let trace = Trace::draw(0.5, 20, 1);
        let read = Trace::read(&trace.lines()).unwrap();
        assert_eq!(read.events(), trace.events());
        // Each frame in time, but one of the last tolerant event, which is there a second late.
        let mut ends: Vec<End> = trace
            .events()
            .iter()
            .map(|event| {
                let (begun_ns, at_ns) = (Some(event.at_ns + 400_000), event.at_ns + 1_000_000);
                End { begun_ns, frames_ns: vec![at_ns; event.frames as usize], told: false }
            })
            .collect();
        let good = trace.judge(&ends);
        assert_eq!((good.urgent_on_time, good.tolerant_on_time_event, good.missed), (1.0, 1.0, 0));
        assert_eq!((good.urgent_ms_p95, good.urgent_sending_ms_p95), (Some(1.0), Some(0.6)));
        assert_eq!((good.tolerant_ms_p50, good.tolerant_sending_ms_p50), (Some(1.0), Some(0.6)));
        let last = trace.events().iter().rposition(|event| event.class == 1).unwrap();
        ends[last].frames_ns[7] += 2_000_000_000;
        ends[last].told = true;
        let late = trace.judge(&ends);
        assert!(late.tolerant_on_time_event < late.tolerant_on_time_frame);
        assert_eq!((late.missed, late.missed_told), (1, 1));
        assert_eq!(late.late_s_max, Some(1.001));
        // One frame late is no wait for another event; three that come at once are, where a frame takes 10 ms.
        assert_eq!(trace.held_back(&ends, 1.0), 1, "all frames of these came at once");
        let apart = |frame: usize| trace.events()[last].at_ns + frame as u64 * 10_000_000;
        ends[last].frames_ns = (0..ends[last].frames_ns.len()).map(apart).collect();
        ends[last].frames_ns[7] += 2_000_000_000;
        assert_eq!(trace.held_back(&ends, 1.0), 0);
        ends[last].frames_ns.pop();
        assert_eq!(trace.judge(&ends).missed, 1, "what has not come whole is missed");
    }

    #[test]
    fn the_shipped_policy_is_simulated_as_in_the_cells() {
        let trace = Trace::draw(0.87, 60, 2);
        let judged = trace.simulate(Policy::Deadline, 0.5, 100_000, 500_000);
        let cell = Cell {
            method: ladder::shipped(LINK_BPS / 2),
            links: Links::Pool(1),
            mix: Mix::Events,
            load: 0.87,
            seeds: vec![2],
            seconds: 60,
            carrier: None,
        };
        assert_eq!(judged.tolerant_on_time_event, cell.run().on_time(1));
        assert_eq!(judged.missed, judged.missed_told);
    }
}
