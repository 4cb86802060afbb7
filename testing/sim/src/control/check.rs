//! What must hold.
use super::scenario::Scenario;
use std::collections::BTreeMap;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) String);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who sends: a process of a source, and its transfer.
pub(super) type Sender = (u32, u32, u64);

/// A chunk under a grant, as it may arrive: from when at the earliest, until when at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) sender: Sender,
    pub(super) path: u16,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) rate_bps: u64,
}

/// Checks that at no time the rates of all that may arrive exceed a link.
pub(super) fn links(scenario: &Scenario, arrivals: &[Arrival]) -> Result<(), Fault> {
    for (link, capacity_bps) in (0..).zip(&scenario.links_bps) {
        let uses = |arrival: &&Arrival| scenario.paths[usize::from(arrival.path)].contains(&link);
        let mut steps: Vec<(u64, bool, usize)> = Vec::new();
        for (at, arrival) in arrivals.iter().enumerate().filter(|(_, arrival)| uses(arrival)) {
            steps.extend([(arrival.from_ns, true, at), (arrival.until_ns, false, at)]);
        }
        // What ends at a time ends before what begins then.
        steps.sort_unstable();
        let mut rates: BTreeMap<Sender, Vec<u64>> = BTreeMap::new();
        let mut sum_bps = 0;
        for (at_ns, begins, at) in steps {
            let Arrival { sender, rate_bps, .. } = arrivals[at];
            let known = rates.entry(sender).or_default();
            let before = known.iter().max().copied().unwrap_or(0);
            if begins {
                known.push(rate_bps);
            } else if let Some(place) = known.iter().position(|rate| *rate == rate_bps) {
                known.swap_remove(place);
            }
            sum_bps = sum_bps - before + known.iter().max().copied().unwrap_or(0);
            if sum_bps > *capacity_bps {
                let senders: Vec<_> = rates.iter().filter(|(_, rates)| !rates.is_empty()).collect();
                return Err(Fault(format!(
                    "link {link} of {capacity_bps} bit/s: {sum_bps} at {at_ns} ns, by {senders:?}"
                )));
            }
        }
    }
    Ok(())
}
