//! What the controller adds to the time of a stream that has its path for itself.
use super::cell::{LINK_BPS, Method};
use super::row::{Goal, Shown};
use super::stream::Periodic;
use super::trace::{Event, FRAME_BYTES};
use super::world::{self, Setup, SourceModel};
use catchment_control::admission::{
    ClassId, Config, DeviceId, DeviceSpec, LinkConfig, LinkId, PathId, SourceId,
};

/// The time between a frame and what it would take without a controller.
#[derive(Debug, serde::Serialize)]
pub(super) struct AddedRow {
    what: &'static str,
    place: &'static str,
    method: &'static str,
    case: &'static str,
    rtt_ms: f64,
    added_ms_p50: f64,
    added_ms_max: f64,
}

const EVENTS: u64 = 100;
const FRAMES: u64 = 15;
const SECONDS: u64 = 120;

/// Returns the rows of a method and a round trip: the first frame of events of a lone stream, those that
/// follow, and a periodic stream beside events that fill the link.
pub(super) fn rows(method: &Method) -> Vec<AddedRow> {
    let (first, next) = lone(method);
    let gap = periodic(method);
    [("first-frame", first), ("next-frame", next), ("periodic", gap)]
        .map(|(case, mut added_ns)| {
            added_ns.sort_unstable();
            let ms = |at: usize| added_ns.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e6);
            AddedRow {
                what: "added",
                place: "sim",
                method: method.name,
                case,
                rtt_ms: method.rtt_ns as f64 / 1e6,
                added_ms_p50: ms(added_ns.len() / 2),
                added_ms_max: ms(added_ns.len().saturating_sub(1)),
            }
        })
        .into()
}

pub(super) fn setup(method: &Method, devices: u32) -> Setup {
    let link = LinkConfig { guard_ns: method.guard_ns, ..LinkConfig::new(LINK_BPS) };
    let mut config = Config::new(vec![link], vec![vec![LinkId(0)]], method.rules.clone());
    config.ahead_ns = (method.rtt_ns / 2).max(1_000_000);
    let delay_ns = method.rtt_ns / 2;
    let device = |device| {
        let spec = DeviceSpec::new(SourceId(device), PathId(0), ClassId(1), method.nic_bps);
        (DeviceId(device), DeviceSpec { delay_ns, ..spec })
    };
    let (by_frame, outstanding, host_ns) = (method.by_frame, method.outstanding, method.host_ns);
    Setup {
        config,
        source: SourceModel { by_frame, outstanding, host_ns, delay_ns },
        devices: (0..devices).map(device).collect(),
        periodic: Vec::new(),
        capacities: Vec::new(),
        horizon_ns: SECONDS * 1_000_000_000,
        drain_ns: 10_000_000_000,
    }
}

/// Returns what first frames of events took more than they need, and frames that follow them.
fn lone(method: &Method) -> (Vec<u64>, Vec<u64>) {
    let event = |at| Event { at_ns: at * 1_000_000_000, device: 0, class: 1, frames: FRAMES };
    let trace: Vec<Event> = (0..EVENTS).map(event).collect();
    let outcome = world::run(&setup(method, 1), &trace);
    let frame_ns = FRAME_BYTES * 8_000_000_000 / method.nic_bps;
    let (mut first, mut next) = (Vec::new(), Vec::new());
    for (event, end) in trace.iter().zip(&outcome.ends) {
        let begins = std::iter::once(event.at_ns).chain(end.frames_ns.iter().copied());
        let took = begins.zip(&end.frames_ns).map(|(begin, end)| end - begin);
        let mut added = took.map(|took_ns| took_ns.saturating_sub(frame_ns));
        first.extend(added.next());
        next.extend(added);
    }
    (first, next)
}

/// Returns the longest time for which a periodic stream had no rate, beside events of ten devices that want
/// more than the link.
fn periodic(method: &Method) -> Vec<u64> {
    let mut setup = setup(method, 11);
    let (source, device) = (SourceId(0), DeviceId(0));
    setup.periodic = vec![Periodic { source, device, bytes: 2_500_000, period_ns: 40_000_000 }];
    let event = |at| Event {
        at_ns: at * 100_000_000,
        device: 1 + (at % 10) as u32,
        class: 1,
        frames: FRAMES,
    };
    let trace: Vec<Event> = (0..SECONDS * 10).map(event).collect();
    let outcome = world::run(&setup, &trace);
    // Without its rate from the first answer to the end it would have been held up somewhere.
    vec![outcome.streams.gap_ns]
}

impl Shown for AddedRow {
    fn line(&self) -> String {
        let Self { case, rtt_ms, added_ms_p50, added_ms_max, .. } = self;
        format!("{case} rtt {rtt_ms} ms: added {added_ms_p50:.3} ms, at most {added_ms_max:.3}")
    }

    fn goals(&self) -> Vec<Goal> {
        let most_ms = match self.case {
            "first-frame" => self.rtt_ms + 0.2,
            "next-frame" => 0.1,
            _ => 0.0,
        };
        let name = format!("added {} rtt {} ms: added_ms_max", self.case, self.rtt_ms);
        vec![Goal::most(name, Some(self.added_ms_max), most_ms)]
    }
}
