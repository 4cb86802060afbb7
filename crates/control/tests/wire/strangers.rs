//! Both ends: what an attacker, a liar or a stranger may do to a controller and to a source.
use crate::ends::Ends;
use crate::samples::ROOT;
use catchment_control::admission::source_side;
use catchment_control::admission::wire::*;
use catchment_control::admission::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[test]
fn hints_are_few_and_make_a_source_register_only_if_it_has_just_sent() {
    let mut ends = Ends::new();
    let mut bytes = Vec::new();
    for _ in 0..3000 {
        Seal::<SourceRecord>::new(&ROOT).seal((0, 77, ends.now_ns), &[], &mut bytes).unwrap();
        ends.datagram(&bytes);
    }
    assert_eq!(ends.to_source.len(), 1000, "in a second");
    assert!(ends.to_source.iter().all(|hint| hint.len() <= bytes.len()), "nothing is amplified");
    // For another source, and for one that has sent this long ago or will.
    let header = Header::read(&bytes).unwrap();
    ends.now_ns = 10_000 * MS;
    for (source, stamp_ns) in [(77, ends.now_ns), (5, 7_000 * MS), (5, ends.now_ns + 1)] {
        let wrong = hint(&Header { source, stamp_ns, ..header }, 2);
        ends.tell(source_side::Input::Datagram(&wrong));
        assert_eq!(ends.registers, 0);
    }
    let right = hint(&Header { source: 5, stamp_ns: 9_000 * MS, ..header }, 2);
    ends.tell(source_side::Input::Datagram(&right));
    ends.tell(source_side::Input::Datagram(&right));
    assert_eq!(ends.registers, 1, "once in a lease");
}

#[test]
fn a_liar_is_answered_and_bounded() {
    let mut ends = Ends::new();
    ends.pass(6 * MS);
    ends.to_source.clear();
    let mut seal = Seal::<SourceRecord>::new(&ROOT);
    let mut opener = Opener::<ControllerRecord>::new(&ROOT);
    // The source's own end has used some sequence numbers.
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        seal.seal((1, 5, ends.now_ns), &[], &mut bytes).unwrap();
    }
    let record = |device, number, left_bytes| SourceRecord {
        device,
        number,
        revision: 1,
        seen: u32::MAX,
        ask: true,
        obeys: true,
        finish: false,
        state: SourceState::Waiting { left_bytes },
        age_ns: u64::MAX,
    };
    let mut told = |ends: &mut Ends, records: &[SourceRecord]| {
        seal.seal((1, 5, ends.now_ns), records, &mut bytes).unwrap();
        ends.datagram(&bytes);
        let mut all = Vec::new();
        for datagram in ends.to_source.drain(..) {
            if opener.open(&datagram, &mut answers).is_ok() {
                all.extend(answers.iter().map(|answer| answer.told));
            }
        }
        all
    };
    let unknown = Told::Refused(Reason::UnknownDevice);
    assert_eq!(told(&mut ends, &[record(1, 1, 1)]), [unknown]);
    assert_eq!(told(&mut ends, &[record(0, 1, u64::MAX)]), [Told::Refused(Reason::Size)]);
    // A million requests: no more than 1,024 of a device are kept, and each is answered.
    let mut kept = 0;
    for number in 2..10_000 {
        kept += told(&mut ends, &[record(0, number, 1 << 30)])
            .iter()
            .filter(|answer| !matches!(answer, Told::Refused(Reason::TooManyTransfers)))
            .count();
    }
    assert!(kept <= 1200, "{kept}");
    assert_eq!(ends.controller.controller().transfers(), 1024);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes without the key, or again: the controller does what it would do without.
    #[test]
    fn forged_replayed_and_foreign_datagrams_change_nothing(
        junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        at in 0..96_usize,
        bit in 0..8_u8,
    ) {
        let (mut one, mut other) = (Ends::new(), Ends::new());
        for ends in [&mut one, &mut other] {
            ends.pass(6 * MS);
            ends.ask(50_000_000);
        }
        let state = |ends: &Ends| {
            let load_bps = ends.controller.controller().load_bps(LinkId(0));
            (load_bps, ends.controller.controller().transfers(), ends.controller.granted_bps(SourceId(5)))
        };
        let good = one.to_controller[0].clone();
        let mut forged = good.clone();
        forged[at % good.len()] ^= 1 << bit;
        let mut root = ROOT;
        root[0] ^= 1;
        let mut foreign = Vec::new();
        Seal::<SourceRecord>::new(&root).seal((1, 5, one.now_ns), &[], &mut foreign).unwrap();
        for bytes in junk.iter().chain([&forged, &foreign]) {
            one.datagram(bytes);
        }
        one.to_source.clear();
        for ends in [&mut one, &mut other] {
            let good = ends.to_controller.remove(0);
            ends.datagram(&good);
        }
        one.datagram(&good);
        prop_assert_eq!(one.controller.counts().replayed, 1);
        prop_assert_eq!(state(&one), state(&other));
        for bytes in &junk {
            one.tell(source_side::Input::Datagram(bytes));
        }
        for ends in [&mut one, &mut other] {
            ends.pass(3 * MS);
        }
        prop_assert!(state(&one).0 > Some(0));
        prop_assert_eq!(state(&one), state(&other));
        prop_assert_eq!(one.chunks, other.chunks);
    }
}
