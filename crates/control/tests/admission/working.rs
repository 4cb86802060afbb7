//! Losses of what was granted lower what is granted of a link, and only they do.
use crate::harness::{GBPS, Harness, MS, one_link, spec};
use catchment_control::admission::*;

const REPORT_NS: u64 = 25 * MS;

/// A link of 20 Gbit/s, all of it granted to two sources, which go on for ever.
struct Links {
    harness: Harness,
    now_ns: u64,
    /// Of each source: the newest grant that it has.
    revisions: [u32; 2],
}

impl Links {
    fn granted() -> Self {
        let mut harness = Harness::new(one_link(Rules::deadline()));
        for device in 0..2 {
            let spec = DeviceSpec { source: SourceId(device), ..spec(1, 10 * GBPS) };
            harness.handle(0, Input::Register { device: DeviceId(device), spec });
        }
        let mut links = Self { harness, now_ns: 0, revisions: [0; 2] };
        for device in 0..2 {
            let (transfer, bytes, age_ns) = (transfer(device), 1 << 40, 0);
            links.handle(0, Input::Request { transfer, bytes, age_ns });
        }
        links
    }

    /// Handles an input; returns what is granted of the link from now on, if that changes.
    fn handle(&mut self, now_ns: u64, input: Input) -> Option<(u64, u64)> {
        let mut change = None;
        for output in self.harness.handle(now_ns, input) {
            match output {
                Output::Working { working_bps, .. } => change = Some((now_ns, *working_bps)),
                Output::Grant { transfer, grant } => {
                    self.revisions[transfer.device.0 as usize] = grant.revision;
                }
                Output::Pause { transfer, revision } => {
                    self.revisions[transfer.device.0 as usize] = *revision;
                }
                Output::Missed { .. }
                | Output::Rate { .. }
                | Output::Renewed { .. }
                | Output::Refused { .. }
                | Output::Timeout(_) => {}
            }
        }
        change
    }

    /// Lets sources go on and report each 25 ms until a time: which one, what arrived and what was lost in a report, in
    /// kilobytes. Returns the changes of what is granted.
    fn report(&mut self, until_ns: u64, sources: &[(u32, u64, u64)]) -> Vec<(u64, u64)> {
        let mut changes = Vec::new();
        while self.now_ns < until_ns {
            self.now_ns += REPORT_NS;
            let now_ns = self.now_ns;
            while let Some(next_ns) = self.harness.next_ns.filter(|next_ns| *next_ns <= now_ns) {
                changes.extend(self.handle(next_ns, Input::Timeout));
            }
            for device in 0..2 {
                let (transfer, left_bytes) = (transfer(device), 1 << 40);
                let revision = self.revisions[device as usize];
                changes.extend(
                    self.handle(now_ns, Input::Progress { transfer, left_bytes, revision }),
                );
            }
            for (source, arrived, lost) in sources {
                let (source, path) = (SourceId(*source), PathId(0));
                let (acknowledged_bytes, resent_bytes) = (arrived * 1000, lost * 1000);
                changes.extend(self.handle(
                    now_ns,
                    Input::Delivered { source, path, acknowledged_bytes, resent_bytes },
                ));
            }
        }
        changes
    }
}

fn transfer(device: u32) -> TransferId {
    TransferId { device: DeviceId(device), number: 1 }
}

/// Bytes of 25 ms at 10 Gbit/s, in kilobytes.
const HALF: u64 = 31_250;

#[test]
fn what_arrives_is_granted_and_a_little_more_each_second() {
    let mut links = Links::granted();
    assert_eq!(links.report(1000 * MS, &[(0, HALF, 0), (1, HALF, 0)]), []);
    let lossy = [(0, HALF / 2, HALF / 2), (1, HALF / 2, HALF / 2)];
    let changes = links.report(1200 * MS, &lossy);
    let [(at_ns, working_bps)] = changes[..] else { panic!("{changes:?}") };
    assert!(at_ns <= 1200 * MS, "within a lease: {at_ns}");
    assert!((9_500_000_000..=9_800_000_000).contains(&working_bps), "{working_bps}");
    let capacity = links.harness.controller.capacity_bps(LinkId(0));
    assert_eq!(capacity, Some((20 * GBPS, working_bps)));
    let back_ns = at_ns + 11_000 * MS;
    let well = [(0, HALF / 2, 0), (1, HALF / 2, 0)];
    let changes = links.report(back_ns, &well);
    let [(at_ns, 20_000_000_000)] = changes[..] else { panic!("all of it is back: {changes:?}") };
    assert!(at_ns >= back_ns - 1000 * MS, "5 % a second, no faster: {at_ns}");
}

#[test]
fn fewer_losses_than_one_percent_change_nothing() {
    let mut links = Links::granted();
    let well = [(0, HALF, HALF / 150), (1, HALF, HALF / 150)];
    assert_eq!(links.report(2000 * MS, &well), []);
}

#[test]
fn whoever_says_what_it_carries_is_believed_until_something_is_lost() {
    let mut links = Links::granted();
    let lossy = [(0, HALF / 2, HALF / 2), (1, HALF / 2, HALF / 2)];
    assert_eq!(links.report(200 * MS, &lossy).len(), 1);
    links.handle(200 * MS, Input::Capacity { link: LinkId(0), capacity_bps: 15 * GBPS });
    let capacity = links.harness.controller.capacity_bps(LinkId(0));
    assert_eq!(capacity, Some((15 * GBPS, 15 * GBPS)));
    assert_eq!(links.report(1000 * MS, &[(0, HALF, 0), (1, HALF, 0)]), []);
}

#[test]
fn a_source_that_lies_does_not_take_the_link_from_those_who_lose_nothing() {
    for lie in [(0, HALF), (HALF / 2, HALF / 2), (1_000_000_000, 1_000_000_000)] {
        let mut links = Links::granted();
        let sources = [(0, lie.0, lie.1), (1, HALF, 0)];
        assert_eq!(links.report(2000 * MS, &sources), [], "{lie:?}");
    }
}
