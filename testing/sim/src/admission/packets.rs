//! Which methods are measured at level `packet`, and beside what.
use super::cell::{Cell, LINK_BPS, Links, Method};
use super::ladder;
use super::packet::{Carrier, Protocol, Transport};
use super::row::{Goal, Report};
use crate::parallel;
use catchment_roce::Recovery;

/// Go-back-N as NICs do it: 7 retries after 17 ms each.
const PLAIN: Transport = Transport { recovery: Recovery::GoBackN, marks: false, priority: false };

/// Sources that ask a controller, over that.
pub(super) const CONTROLLED: Carrier =
    Carrier { controlled: true, protocol: Protocol::Roce(PLAIN) };

/// Returns strict priority at the bottleneck, without a controller.
pub(super) fn strict_priority() -> (Method, Carrier) {
    uncontrolled("spq", Protocol::Roce(Transport { priority: true, ..PLAIN }))
}

fn uncontrolled(name: &'static str, protocol: Protocol) -> (Method, Carrier) {
    let method = Method { name, ..ladder::shipped(LINK_BPS / 2) };
    (method, Carrier { controlled: false, protocol })
}

/// Returns the methods: those with a controller, over plain RoCE, then those without.
pub(super) fn methods() -> Vec<(Method, Carrier)> {
    let papers = ladder::papers().into_iter().filter(|one| matches!(one.ladder, Some("A0" | "A1")));
    let ours = [LINK_BPS / 2, LINK_BPS].map(ladder::shipped);
    let controlled = papers.filter(|one| one.calibration == "cal-s").chain(ours);
    let controlled = controlled.map(|method| (method, CONTROLLED));
    let repeats = Transport { recovery: Recovery::SelectiveRepeat, ..PLAIN };
    let others = [
        uncontrolled("plain", Protocol::Roce(PLAIN)),
        strict_priority(),
        uncontrolled("dcqcn", Protocol::Roce(Transport { marks: true, ..PLAIN })),
        uncontrolled("selective-repeat", Protocol::Roce(repeats)),
        uncontrolled("tcp-cubic", Protocol::Tcp),
    ];
    controlled.chain(others).collect()
}

/// Returns several collectors behind one link, by credits of each, and by a controller that knows that link; of both with
/// the recovery that loses least time.
pub(super) fn several() -> impl Iterator<Item = (Method, Links, Carrier)> {
    let repeats = Transport { recovery: Recovery::SelectiveRepeat, ..PLAIN };
    let carrier = Carrier { protocol: Protocol::Roce(repeats), ..CONTROLLED };
    let of = move |count| {
        let credits =
            (ladder::credits(LINK_BPS), Links::Collectors { count, known: false }, carrier);
        [credits, (ladder::shipped(LINK_BPS), Links::Collectors { count, known: true }, carrier)]
    };
    [2, 5].into_iter().flat_map(of)
}

/// Measures cells, and those with a controller at level `chunk` too, on the same events: both levels are to
/// agree.
pub(super) fn show(cells: &[Cell], report: &Report) {
    let run = |at: u64| {
        let cell = &cells[at as usize];
        let is_controlled = cell.carrier.is_some_and(|carrier| carrier.controlled);
        let chunk = is_controlled.then(|| Cell { carrier: None, ..cell.clone() });
        let chunk = chunk.map(|cell| cell.row(&cell.run()));
        (cell.row(&cell.run()), chunk)
    };
    parallel::in_order(cells.len() as u64, run, |_, (packet, chunk)| {
        if let Some(chunk) = chunk {
            let nic = packet.nic_bps / 1_000_000_000;
            let name = format!(
                "packet {} {nic} Gbit/s load {}: on-time shares beside level chunk",
                packet.method, packet.load
            );
            report.demand(Goal::most(name, Some(packet.furthest_from(&chunk)), 0.01));
        }
        report.show(&packet);
        true
    });
}
