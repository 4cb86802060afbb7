//! Ends that have the key and say anything.
use crate::samples::{ROOT, any_controller_record, any_source_record};
use catchment_control::admission::controller_side::{self, ControllerSide};
use catchment_control::admission::source_side::{self, Fallback, LocalId, SourceSide};
use catchment_control::admission::wire::*;
use catchment_control::admission::*;
use proptest::prelude::*;
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const GBPS: u64 = 1_000_000_000;

fn few(value: u64) -> u64 {
    value % 3
}

/// A datagram: how long after the one before, its stamp, its records.
type Step<R> = (u64, Option<u64>, Vec<R>);

fn steps<R: std::fmt::Debug + Clone>(
    record: impl Strategy<Value = R>,
) -> impl Strategy<Value = Vec<Step<R>>> {
    let wait_ns = prop_oneof![9 => Just(0), 9 => 0..MS, 9 => 0..300 * MS, 1 => 0..40_000 * MS];
    let stamp = prop_oneof![9 => Just(None), 1 => any::<u64>().prop_map(Some)];
    prop::collection::vec((wait_ns, stamp, prop::collection::vec(record, 0..6)), 1..60)
}

/// Handles, then drains; returns when it is due next, and how many datagrams it sent.
fn control(side: &mut ControllerSide, now_ns: u64, bytes: Option<&[u8]>) -> (Option<u64>, usize) {
    let from = SocketAddr::from(([192, 0, 2, 1], 9));
    side.handle(
        now_ns,
        bytes.map_or(controller_side::Input::Timeout, |bytes| controller_side::Input::Datagram {
            from,
            bytes,
        }),
    );
    let mut sent = 0;
    loop {
        match side.poll() {
            controller_side::Output::Transmit { .. } => sent += 1,
            controller_side::Output::Timeout(due_ns) => return (due_ns, sent),
            controller_side::Output::Refused { .. }
            | controller_side::Output::Forgotten { .. }
            | controller_side::Output::Working { .. }
            | controller_side::Output::Superseded { .. } => {}
        }
        assert!(sent < 100, "for one input");
    }
}

fn tell(side: &mut SourceSide, now_ns: u64, input: source_side::Input<'_>) -> Option<u64> {
    side.handle(now_ns, input);
    for _ in 0..1000 {
        if let source_side::Output::Timeout(due_ns) = side.poll() {
            return due_ns;
        }
    }
    panic!("1,000 outputs for one input");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_controller_bears_any_source(
        steps in steps(any_source_record()),
        few_ids in any::<bool>(),
        start_ns in prop_oneof![Just(MS), Just(1_u64 << 60)],
    ) {
        let links = vec![LinkConfig::new(10 * GBPS)];
        let config = Config::new(links, vec![vec![LinkId(0)]], Rules::deadline());
        let mut side = ControllerSide::new(start_ns, 1, config).expect("a right configuration");
        let devices = vec![DeviceSpec::new(SourceId(0), PathId(0), ClassId(1), 10 * GBPS); 2];
        let source = SourceId(5);
        side.handle(
            start_ns,
            controller_side::Input::Register { source, root: ROOT, round_trip_ns: 0, devices },
        );
        let (mut now_ns, mut due_ns) = (start_ns, control(&mut side, start_ns, None).0);
        let (mut seal, mut bytes) = (Seal::<SourceRecord>::new(&ROOT), Vec::new());
        for _ in 0..8 {
            seal.seal((1, 5, now_ns), &[], &mut bytes).expect("a key is left");
            due_ns = control(&mut side, now_ns, Some(&bytes)).0;
        }
        for (wait_ns, stamp_ns, mut records) in steps {
            let then_ns = now_ns + wait_ns;
            for _ in 0..5000 {
                let Some(next_ns) = due_ns.filter(|next_ns| *next_ns <= then_ns) else { break };
                due_ns = control(&mut side, next_ns, None).0;
            }
            now_ns = then_ns;
            if few_ids {
                for record in &mut records {
                    record.device %= 3;
                    record.number = few(record.number);
                    record.revision %= 8;
                    record.revision += 1;
                    record.seen %= 8;
                    if let SourceState::Waiting { left_bytes } = &mut record.state {
                        *left_bytes = 1 + *left_bytes % 100_000_000;
                    }
                }
            }
            let stamp_ns = stamp_ns.unwrap_or(now_ns);
            seal.seal((1, 5, stamp_ns), &records, &mut bytes).expect("a key is left");
            due_ns = control(&mut side, now_ns, Some(&bytes)).0;
            // What it says that it was granted before counts as far as its devices reach.
            let core = side.controller();
            let rates_bps = core.in_force_bps(LinkId(0)).zip(core.periodic_bps(LinkId(0)));
            let sum_bps = rates_bps.map(|(windows, periodic)| windows + periodic);
            prop_assert!(sum_bps <= Some(20 * GBPS), "{rates_bps:?}");
        }
        // Silence gives everything back, and ends.
        for _ in 0..20_000 {
            let Some(next_ns) = due_ns else { break };
            due_ns = control(&mut side, next_ns, None).0;
        }
        prop_assert_eq!(side.sources(), 0);
        prop_assert_eq!(side.controller().load_bps(LinkId(0)), Some(0));
    }

    #[test]
    fn a_source_bears_any_controller(
        steps in steps(any_controller_record()),
        few_ids in any::<bool>(),
    ) {
        let config = source_side::Config::new(Fallback::Safe { rate_bps: GBPS });
        let mut side = SourceSide::new(MS, config);
        let (source, term, root, round_trip_ns) = (5, 1, ROOT, 0);
        let input = source_side::Input::Registered { source, term, root, round_trip_ns, go_on: None };
        let mut due_ns = tell(&mut side, MS, input);
        for number in 0..3 {
            let id = LocalId { device: 0, number };
            let input = source_side::Input::Ask { id, bytes: 30_000_000, ahead_bytes: 0, age_ns: 0, class: 1 };
            due_ns = tell(&mut side, MS, input);
        }
        let (mut now_ns, mut seal, mut bytes) = (MS, Seal::new(&ROOT), Vec::new());
        for (wait_ns, stamp_ns, mut records) in steps {
            let then_ns = now_ns + wait_ns;
            for _ in 0..2000 {
                let Some(next_ns) = due_ns.filter(|next_ns| *next_ns <= then_ns) else { break };
                let again_ns = tell(&mut side, next_ns, source_side::Input::Timeout);
                prop_assert!(again_ns.is_none_or(|again_ns| again_ns > next_ns), "due at once again");
                due_ns = again_ns;
            }
            now_ns = then_ns;
            if few_ids {
                for record in &mut records {
                    record.device = 0;
                    record.number = few(record.number);
                    record.revision %= 8;
                    record.seen %= 8;
                }
            }
            seal.seal((1, 5, stamp_ns.unwrap_or(now_ns)), &records, &mut bytes).expect("a key is left");
            due_ns = tell(&mut side, now_ns, source_side::Input::Datagram(&bytes));
            let id = LocalId { device: 0, number: few(now_ns) };
            due_ns = tell(&mut side, now_ns, source_side::Input::Sent { id }).or(due_ns);
        }
    }
}
