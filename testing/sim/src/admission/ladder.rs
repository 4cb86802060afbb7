//! The methods: the paper's as we read it, ours, and the steps between them.
use super::cell::{Method, QUANTUM_BYTES};
use catchment_control::admission::{Order, Pausing, Rules};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// The paper's grant.
const SLOT_BPS: u64 = 10_000_000_000;
const FAST_BPS: u64 = 20_000_000_000;

/// RDMA-TCM and P-RDMA-TCM with the idle time of a grant that calibration "Cal-S" found: 2.25 ms.
fn paper(ladder: &'static str, rules: Rules) -> Method {
    let name = if rules.order == Order::Arrival { "fifo" } else { "priority" };
    Method {
        ladder: Some(ladder),
        name,
        calibration: "cal-s",
        rules,
        by_frame: true,
        outstanding: 1,
        host_ns: 1250 * US,
        rtt_ns: MS,
        guard_ns: 0,
        nic_bps: SLOT_BPS,
    }
}

/// The second calibration: two requests of a source at a time, an idle time of 2 ms.
fn twice(method: Method) -> Method {
    let (calibration, nic_bps) = ("cal-d", 2 * SLOT_BPS);
    Method { calibration, outstanding: 2, host_ns: MS, nic_bps, ..method }
}

/// Windows granted ahead, for whole events.
fn ahead(ladder: &'static str, rules: Rules, nic_bps: u64) -> Method {
    Method {
        ladder: Some(ladder),
        name: "deadline",
        calibration: "none",
        rules,
        by_frame: false,
        outstanding: usize::MAX,
        host_ns: 0,
        rtt_ns: MS / 2,
        guard_ns: MS / 10,
        nic_bps,
    }
}

/// Returns the policy that ships, with senders of this rate.
pub(super) fn shipped(nic_bps: u64) -> Method {
    Method { ladder: None, ..ahead("", Rules::deadline(), nic_bps) }
}

/// Returns what the field would build today where one collector's link is the bottleneck: it paces its sources
/// by credits, class then oldest event. Who gets none stops, and whoever gets them begins: what is still on
/// its way meets in the collector's queue. No event is late on purpose.
pub(super) fn credits(nic_bps: u64) -> Method {
    let rules =
        Rules { pausing: Pausing::Predicted, demotion: false, shares: None, ..Rules::deadline() };
    Method { name: "credits", guard_ns: 0, ..ahead("credits", rules, nic_bps) }
}

/// Returns P-RDMA-TCM in a calibration, and in our own reading of what software costs.
pub(super) fn papers() -> Vec<Method> {
    let (fifo, priority) = (Rules::fifo(SLOT_BPS), Rules::priority(SLOT_BPS));
    let quick = paper("A1'", priority.clone());
    let quick = Method { calibration: "none", rtt_ns: 40 * US, host_ns: 160 * US, ..quick };
    let event = Method { by_frame: false, ..paper("A1 event", priority.clone()) };
    vec![
        paper("A0", fifo.clone()),
        paper("A1", priority.clone()),
        twice(paper("A0", fifo)),
        twice(paper("A1", priority)),
        quick,
        event,
    ]
}

/// Returns the steps from the paper's to ours.
pub(super) fn steps() -> Vec<Method> {
    let by_age = Rules { order: Order::ClassAge, ..Rules::priority(SLOT_BPS) };
    let by_age = Method { name: "deadline", ..paper("A2", by_age) };
    let whole = Rules { shares: None, ..Rules::deadline() };
    let frames = Rules {
        slot_bps: Some(SLOT_BPS),
        quantum_bytes: Some(QUANTUM_BYTES),
        pausing: Pausing::Never,
        demotion: false,
        overtaking: false,
        ..whole.clone()
    };
    let (demoted, calm) =
        (Rules { demotion: true, ..frames.clone() }, Rules { demotion: false, ..whole.clone() });
    let by_deadline = |rules: &Rules| Rules { order: Order::Deadline, ..rules.clone() };
    vec![
        by_age,
        ahead("A3", frames, SLOT_BPS),
        ahead("A3d", demoted.clone(), SLOT_BPS),
        ahead("A3b", Rules { overtaking: true, ..demoted }, SLOT_BPS),
        ahead("A4", calm.clone(), SLOT_BPS),
        ahead("A5", whole.clone(), SLOT_BPS),
        ahead("A6", by_deadline(&calm), SLOT_BPS),
        ahead("A7", whole.clone(), FAST_BPS),
        ahead("A8", by_deadline(&whole), FAST_BPS),
    ]
}
