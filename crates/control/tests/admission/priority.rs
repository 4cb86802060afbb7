//! What priority promises, for all sequences of requests.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, spec, transfer};
use catchment_control::admission::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Devices of both links: the first of them are urgent.
const DEVICES: u32 = 12;
const URGENT: u32 = 4;

/// A source that has something to send some time after the one before; it asks once it has nothing else to send.
#[derive(Clone, Debug)]
struct Wish {
    wait_ns: u64,
    device: u32,
    bytes: u64,
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let wait_ns = prop_oneof![Just(0), 0..MS, 0..30 * MS];
    let wish = (wait_ns, 0..DEVICES, 1..40 * MS_AT_10);
    let wish = wish.prop_map(|(wait_ns, device, bytes)| Wish { wait_ns, device, bytes });
    prop::collection::vec(wish, 1..80)
}

/// What a source does, by device.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Waits {
        bytes: u64,
    },
    Sends {
        done_ns: u64,
    },
    /// The overhead of a grant is its source's too: it asks for nothing meanwhile.
    Rests {
        until_ns: u64,
    },
}

/// Sources that ask for one transfer at a time and send as they are granted, on two links of two slots each.
struct Sources {
    harness: Harness,
    gap_ns: u64,
    doing: BTreeMap<u32, Doing>,
    numbers: BTreeMap<u32, u64>,
    /// Tolerant ones that were granted while an urgent one of the same link waited, and urgent ones that were granted
    /// while a tolerant one did.
    low_first: u64,
    high_first: u64,
}

const fn is_urgent(device: u32) -> bool {
    device < URGENT
}

impl Sources {
    fn new(rules: Rules) -> Self {
        let gap_ns = rules.gap_ns;
        let links = vec![LinkConfig::new(20 * GBPS); 2];
        let paths = vec![vec![LinkId(0)], vec![LinkId(1)]];
        let mut harness = Harness::new(Config::new(links, paths, rules));
        for device in 0..DEVICES {
            let spec = spec(u8::from(!is_urgent(device)), 10 * GBPS);
            let spec = DeviceSpec { path: PathId((device % 2) as u16), ..spec };
            harness.handle(0, Input::Register { device: DeviceId(device), spec });
        }
        let (doing, numbers) = (BTreeMap::new(), BTreeMap::new());
        Self { harness, gap_ns, doing, numbers, low_first: 0, high_first: 0 }
    }

    fn id(&self, device: u32) -> TransferId {
        transfer(device, self.numbers.get(&device).copied().unwrap_or(0))
    }

    /// Returns whether a source of the other class waits for the same link.
    fn other_waits(&self, device: u32) -> bool {
        self.doing.iter().any(|(other, doing)| {
            let is_rival = other % 2 == device % 2 && is_urgent(*other) != is_urgent(device);
            is_rival && matches!(doing, Doing::Waits { .. })
        })
    }

    /// Notes what the controller has said last.
    fn hear(&mut self) {
        for output in std::mem::take(&mut self.harness.said) {
            let Output::Grant { transfer, grant } = output else { continue };
            let device = transfer.device.0;
            let Some(Doing::Waits { bytes }) = self.doing.get(&device).copied() else { continue };
            if self.other_waits(device) {
                let first =
                    if is_urgent(device) { &mut self.high_first } else { &mut self.low_first };
                *first += 1;
            }
            let done_ns = grant.from_ns + (bytes * 8_000_000_000).div_ceil(grant.rate_bps);
            self.doing.insert(device, Doing::Sends { done_ns });
        }
    }

    /// Lets everything happen that is due by then.
    fn advance(&mut self, until_ns: u64) {
        loop {
            let ends = self.doing.iter().filter_map(|(device, doing)| match doing {
                Doing::Sends { done_ns } => Some((*done_ns, *device)),
                Doing::Waits { .. } | Doing::Rests { .. } => None,
            });
            let end = ends.min();
            let timeout_ns = self.harness.next_ns;
            let next_ns = end.map(|(done_ns, _)| done_ns).into_iter().chain(timeout_ns).min();
            let Some(next_ns) = next_ns.filter(|next_ns| *next_ns <= until_ns) else { return };
            match end {
                Some((done_ns, device)) if done_ns == next_ns => {
                    let until_ns = next_ns + self.gap_ns;
                    self.doing.insert(device, Doing::Rests { until_ns });
                    self.harness.done(next_ns, self.id(device));
                }
                Some(_) | None => {
                    self.harness.timeout(next_ns);
                }
            }
            self.hear();
        }
    }

    fn play(&mut self, wishes: &[Wish]) {
        let mut now_ns = 0;
        for Wish { wait_ns, device, bytes } in wishes {
            now_ns += wait_ns;
            self.advance(now_ns);
            if !self.is_idle(*device, now_ns) {
                continue;
            }
            *self.numbers.entry(*device).or_default() += 1;
            self.doing.insert(*device, Doing::Waits { bytes: *bytes });
            self.harness.request(now_ns, self.id(*device), *bytes);
            self.hear();
        }
        self.advance(u64::MAX);
        let served = (0..DEVICES).all(|device| self.is_idle(device, u64::MAX));
        assert!(served, "{:?}", self.doing);
    }

    fn is_idle(&self, device: u32, now_ns: u64) -> bool {
        match self.doing.get(&device) {
            None => true,
            Some(Doing::Rests { until_ns }) => *until_ns <= now_ns,
            Some(Doing::Waits { .. } | Doing::Sends { .. }) => false,
        }
    }
}

/// With two queues no tolerant transfer is granted while an urgent one waits for the same link, whatever is asked for
/// when; with one queue some are.
#[test]
fn s2_6_no_low_one_is_granted_while_a_high_one_waits_whatever_the_sequence() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let (overtakings, faults_of_fifo) = (Cell::new(0), Cell::new(0));
    let gap_ns = prop::sample::select(vec![0, 2_250_000]);
    let inputs = (wishes(), gap_ns);
    let outcome = TestRunner::new(config).run(&inputs, |(wishes, gap_ns)| {
        let mut sources = Sources::new(Rules { gap_ns, ..Rules::priority(10 * GBPS) });
        sources.play(&wishes);
        prop_assert_eq!(sources.low_first, 0);
        overtakings.set(overtakings.get() + sources.high_first);
        let mut sources = Sources::new(Rules { gap_ns, ..Rules::fifo(10 * GBPS) });
        sources.play(&wishes);
        faults_of_fifo.set(faults_of_fifo.get() + sources.low_first);
        Ok(())
    });
    outcome.unwrap();
    assert!(overtakings.get() > 0 && faults_of_fifo.get() > 0, "classes have met");
}
