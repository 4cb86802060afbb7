//! What holds for all inputs, whatever sources say and whatever is lost.
use crate::harness::{GBPS, Harness, MS, MS_AT_10};
use catchment_control::admission::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const DEVICES: u32 = 6;

/// A site of 20 Gbit/s and one of 10, into 20; senders of 10 and 20 Gbit/s.
fn config(rules: Rules) -> Config {
    let links = [20, 10, 20].map(|gbps| LinkConfig::new(gbps * GBPS)).to_vec();
    let paths = vec![vec![LinkId(0), LinkId(2)], vec![LinkId(1), LinkId(2)]];
    Config::new(links, paths, rules)
}

fn spec(device: u32) -> DeviceSpec {
    let rate_bps = if device.is_multiple_of(2) { 10 } else { 20 } * GBPS;
    let class = ClassId(u8::from(device > 1));
    let path = PathId((device % 2) as u16);
    let delay_ns = u64::from(device) * MS / 4;
    DeviceSpec {
        delay_ns,
        report_delay_ns: delay_ns,
        ..DeviceSpec::new(SourceId(device), path, class, rate_bps)
    }
}

fn every_policy() -> impl Strategy<Value = Rules> {
    let frames = Rules {
        slot_bps: Some(10 * GBPS),
        quantum_bytes: Some(20 * MS_AT_10),
        pausing: Pausing::Never,
        ..Rules::deadline()
    };
    let gap = Rules { gap_ns: 2 * MS, ..Rules::priority(10 * GBPS) };
    let by_deadline = Rules { order: Order::Deadline, ..Rules::deadline() };
    prop::sample::select(vec![
        Rules::deadline(),
        Rules::deadline(),
        Rules::fifo(10 * GBPS),
        gap,
        frames,
        by_deadline,
    ])
}

/// What a source may say next, about one of its transfers.
#[derive(Clone, Debug)]
enum Say {
    Request { bytes: u64, age_ns: u64, finish: bool },
    Progress { parts: u64, old: bool },
    Paused { parts: u64, old: bool },
    Done,
    Cancel,
    Leave,
    Nothing,
}

#[derive(Clone, Debug)]
struct Step {
    wait_ns: u64,
    device: u32,
    number: u64,
    say: Say,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = (1..400_u64).prop_map(|ms| ms * MS_AT_10 / 2);
    let say = prop_oneof![
        6 => (bytes, 0..1200 * MS, prop::bool::weighted(0.1))
            .prop_map(|(bytes, age_ns, finish)| Say::Request { bytes, age_ns, finish }),
        4 => (0..4_u64, prop::bool::weighted(0.1)).prop_map(|(parts, old)| Say::Progress { parts, old }),
        4 => (1..4_u64, prop::bool::weighted(0.4)).prop_map(|(parts, old)| Say::Paused { parts, old }),
        3 => Just(Say::Done),
        1 => Just(Say::Cancel),
        1 => prop::bool::weighted(0.3).prop_map(|leave| if leave { Say::Leave } else { Say::Nothing }),
    ];
    let wait_ns = prop_oneof![Just(0), 0..2 * MS, 0..60 * MS, 0..300 * MS];
    let step = (wait_ns, 0..DEVICES, 1..4_u64, say);
    let step =
        step.prop_map(|(wait_ns, device, number, say)| Step { wait_ns, device, number, say });
    prop::collection::vec(step, 1..80)
}

/// What sources may do at most, by what they were told: a source that has not confirmed anything may
/// still use every window that it ever got.
#[derive(Default)]
struct Worst {
    grants: BTreeMap<TransferId, Vec<Grant>>,
    bytes: BTreeMap<TransferId, u64>,
    /// Dropped, and not asked for since; and those that must not be.
    gone: BTreeSet<TransferId>,
    finishing: BTreeSet<TransferId>,
}

impl Worst {
    fn hear(&mut self, said: &[Output]) {
        for output in said {
            if let Output::Missed { transfer, dropped: true, .. } = output {
                assert!(!self.finishing.contains(transfer), "{transfer:?} has begun");
                assert!(self.gone.insert(*transfer), "{transfer:?} is dropped twice");
            }
            if let Output::Grant { transfer, grant } = output {
                assert!(!self.gone.contains(transfer), "{transfer:?} was dropped");
                assert!(grant.until_ns >= grant.from_ns && grant.rate_bps > 0, "{grant:?}");
                self.grants.entry(*transfer).or_default().push(*grant);
            }
        }
    }

    /// Returns the rate that a transfer may use at a time.
    fn rate_bps(grants: &[Grant], at_ns: u64) -> u64 {
        let in_force = grants.iter().filter(|one| (one.from_ns..one.until_ns).contains(&at_ns));
        in_force.map(|grant| grant.rate_bps).max().unwrap_or(0)
    }

    /// Checks every link and every sender, at every time from now on at which a window begins.
    fn check(&self, now_ns: u64) {
        let begins = self.grants.values().flatten().map(|grant| grant.from_ns.max(now_ns));
        for at_ns in begins.chain([now_ns]) {
            let mut links_bps = [0; 3];
            let mut senders_bps = [0; DEVICES as usize];
            for (id, grants) in &self.grants {
                let rate_bps = Self::rate_bps(grants, at_ns);
                let path = usize::from(spec(id.device.0).path.0);
                links_bps[path] += rate_bps;
                links_bps[2] += rate_bps;
                senders_bps[id.device.0 as usize] += rate_bps;
            }
            let most = [20, 10, 20].map(|gbps| gbps * GBPS);
            assert!((0..3).all(|at| links_bps[at] <= most[at]), "{links_bps:?} at {at_ns}");
            for (device, rate_bps) in (0..).zip(senders_bps) {
                assert!(rate_bps <= spec(device).rate_max_bps, "device {device}: {rate_bps}");
            }
        }
    }

    /// Returns the input for a step; what it confirms can no longer be used.
    fn say(&mut self, step: &Step) -> Input {
        let transfer = TransferId { device: DeviceId(step.device), number: step.number };
        let latest = self.grants.get(&transfer).and_then(|grants| grants.last());
        let latest = latest.map_or(0, |grant| grant.revision);
        let bytes = self.bytes.get(&transfer).copied().unwrap_or(MS_AT_10);
        match step.say {
            Say::Done | Say::Cancel | Say::Request { .. } => {
                self.finishing.remove(&transfer);
            }
            Say::Leave => self.finishing.retain(|id| id.device != transfer.device),
            Say::Progress { .. } | Say::Paused { .. } | Say::Nothing => {}
        }
        match step.say {
            Say::Request { bytes, age_ns, finish } => {
                self.bytes.insert(transfer, bytes);
                self.gone.remove(&transfer);
                if finish {
                    self.finishing.insert(transfer);
                    return Input::Finish { transfer, bytes, age_ns };
                }
                Input::Request { transfer, bytes, age_ns }
            }
            Say::Progress { parts, old } => {
                let revision = if old { latest.saturating_sub(1) } else { latest };
                if let Some(grants) = self.grants.get_mut(&transfer) {
                    // It obeys this one: older ones are over once it has begun.
                    let from_ns = grants.iter().find(|grant| grant.revision == revision);
                    let from_ns = from_ns.map_or(0, |grant| grant.from_ns);
                    let older = |grant: &Grant| grant.revision < revision;
                    grants.iter_mut().filter(|grant| older(grant)).for_each(|grant| {
                        grant.until_ns = grant.until_ns.min(from_ns.max(grant.from_ns));
                    });
                }
                Input::Progress { transfer, left_bytes: bytes / 4 * parts, revision }
            }
            Say::Paused { parts, old } => {
                // Stopped by a pause, or because the window was over: it uses none any more.
                let revision = if old { latest } else { latest + 1 };
                self.grants.remove(&transfer);
                Input::Paused { transfer, left_bytes: bytes / 4 * parts, revision }
            }
            Say::Done => {
                self.grants.remove(&transfer);
                Input::Done { transfer }
            }
            Say::Cancel => {
                self.grants.remove(&transfer);
                Input::Cancel { transfer }
            }
            Say::Leave => {
                self.grants.retain(|id, _| id.device != transfer.device);
                Input::Leave { source: SourceId(step.device) }
            }
            Say::Nothing => Input::Timeout,
        }
    }
}

fn register(harness: &mut Harness, now_ns: u64, device: u32) {
    harness.handle(now_ns, Input::Register { device: DeviceId(device), spec: spec(device) });
}

/// Plays steps, with every timeout in its time, and returns all that was said.
fn play(rules: &Rules, steps: &[Step], doubled: bool, checked: bool) -> (Harness, Vec<Output>) {
    play_on(config(rules.clone()), steps, doubled, checked)
}

fn play_on(config: Config, steps: &[Step], doubled: bool, checked: bool) -> (Harness, Vec<Output>) {
    play_changing(config, steps, (doubled, checked), |_| None)
}

/// Plays steps; before some of them another policy is set.
fn play_changing(
    config: Config,
    steps: &[Step],
    (doubled, checked): (bool, bool),
    rules: impl Fn(usize) -> Option<Rules>,
) -> (Harness, Vec<Output>) {
    let mut harness = Harness::new(config);
    (0..DEVICES).for_each(|device| register(&mut harness, 0, device));
    let (mut now_ns, mut worst, mut said) = (0, Worst::default(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        let then_ns = now_ns + step.wait_ns;
        while let Some(next_ns) = harness.next_ns.filter(|next_ns| *next_ns <= then_ns) {
            said.extend_from_slice(harness.timeout(next_ns));
            worst.hear(&harness.said);
            if checked {
                worst.check(next_ns);
                check_view(&harness);
            }
        }
        now_ns = then_ns;
        if let Some(rules) = rules(at) {
            said.extend_from_slice(harness.handle(now_ns, Input::Rules(rules)));
            worst.hear(&harness.said);
        }
        let input = worst.say(step);
        let times = if doubled && matches!(step.say, Say::Done | Say::Cancel) { 3 } else { 1 };
        for _ in 0..times {
            said.extend_from_slice(harness.handle(now_ns, input.clone()));
            worst.hear(&harness.said);
        }
        if matches!(step.say, Say::Leave) {
            register(&mut harness, now_ns, step.device);
        }
        if checked {
            worst.check(now_ns);
            check_view(&harness);
        }
    }
    (harness, said)
}

/// What is shown of a link is never more than it carries.
fn check_view(harness: &Harness) {
    for link in (0..3).map(LinkId) {
        let (capacity_bps, _) = harness.controller.capacity_bps(link).expect("a link");
        let in_force_bps = harness.controller.in_force_bps(link).expect("a link");
        assert!(in_force_bps <= capacity_bps, "{in_force_bps} of {capacity_bps} bit/s");
        assert!(harness.controller.load_bps(link) >= Some(in_force_bps));
    }
}

fn transfer_of(output: &Output) -> TransferId {
    match output {
        Output::Grant { transfer, .. }
        | Output::Pause { transfer, .. }
        | Output::Missed { transfer, .. }
        | Output::Refused { subject: Subject::Transfer(transfer), .. } => *transfer,
        Output::Rate { .. }
        | Output::Working { .. }
        | Output::Renewed { .. }
        | Output::Refused { .. }
        | Output::Timeout(_) => {
            panic!("nobody asks for this: {output:?}")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s2_4_windows_never_exceed_a_link_or_a_sender(rules in every_policy(), steps in steps()) {
        play(&rules, &steps, false, true);
    }

    #[test]
    fn s2_19_silence_gives_everything_back(rules in every_policy(), steps in steps()) {
        let (mut harness, _) = play(&rules, &steps, false, false);
        harness.be_silent(10_000);
        prop_assert_eq!(harness.controller.transfers(), 0);
        for link in 0..3 {
            prop_assert_eq!(harness.controller.load_bps(LinkId(link)), Some(0));
        }
    }

    #[test]
    fn another_policy_on_the_way_exceeds_nothing_and_loses_nothing(
        policies in prop::collection::vec(every_policy(), 1..8),
        steps in steps(),
    ) {
        let other = |at: usize| {
            (at % 7 == 6).then(|| policies[at / 7 % policies.len()].clone())
        };
        let config = config(policies[0].clone());
        let (mut harness, _) = play_changing(config, &steps, (false, true), other);
        harness.be_silent(10_000);
        prop_assert_eq!(harness.controller.transfers(), 0);
        prop_assert!((0..3).all(|link| harness.controller.load_bps(LinkId(link)) == Some(0)));
    }

    #[test]
    fn late_ones_are_dropped_without_anything_left(
        rules in every_policy(),
        steps in steps(),
        late in prop::sample::select(vec![Late::Keep, Late::Demote, Late::Drop]),
    ) {
        let mut config = config(rules);
        config.classes[0].late = late;
        config.classes[1].late = Late::Drop;
        let (mut harness, _) = play_on(config, &steps, false, true);
        harness.be_silent(10_000);
        prop_assert_eq!(harness.controller.transfers(), 0);
        prop_assert!((0..3).all(|link| harness.controller.load_bps(LinkId(link)) == Some(0)));
    }

    /// Doubled messages change nothing (S2.19).
    #[test]
    fn a_release_told_three_times_is_one(rules in every_policy(), steps in steps()) {
        let (_, once) = play(&rules, &steps, false, false);
        let (_, often) = play(&rules, &steps, true, false);
        prop_assert_eq!(once, often);
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(rules in every_policy(), steps in steps()) {
        let (_, one) = play(&rules, &steps, false, false);
        let (_, other) = play(&rules, &steps, false, false);
        prop_assert_eq!(one, other);
    }

    /// Debug builds compare with a plan of all after each input.
    #[test]
    fn what_becomes_free_goes_to_whom_a_plan_would_give_it(steps in steps(), link_gbps in 1..40_u64) {
        let links = vec![LinkConfig::new(20 * GBPS)];
        let one = Config::new(links, vec![vec![LinkId(0)]; 2], Rules::deadline());
        let mut narrow = one.clone();
        narrow.links[0].capacity_bps = link_gbps * GBPS;
        for config in [one, narrow] {
            let (mut harness, _) = play_on(config, &steps, false, false);
            harness.be_silent(10_000);
            prop_assert_eq!(harness.load_bps(), 0);
        }
    }

    /// Each bottleneck has queues of its own (S2.6).
    #[test]
    fn links_that_share_no_path_do_not_feel_each_other(rules in every_policy(), steps in steps()) {
        let links = [20, 10].map(|gbps| LinkConfig::new(gbps * GBPS)).to_vec();
        let config = Config::new(links, vec![vec![LinkId(0)], vec![LinkId(1)]], rules);
        let (_, both) = play_on(config.clone(), &steps, false, false);
        for path in 0..2 {
            let quiet = |step: &Step| {
                let say = if step.device % 2 == path { step.say.clone() } else { Say::Nothing };
                Step { say, ..step.clone() }
            };
            let steps: Vec<Step> = steps.iter().map(quiet).collect();
            let (_, alone) = play_on(config.clone(), &steps, false, false);
            // What falls due in the same nanosecond comes in any order.
            let by_transfer = |said: &[Output]| {
                let of_path = |output: &&Output| transfer_of(output).device.0 % 2 == path;
                let mut said: Vec<Output> = said.iter().filter(of_path).cloned().collect();
                said.sort_by_key(transfer_of);
                said
            };
            prop_assert_eq!(by_transfer(&alone), by_transfer(&both));
        }
    }

    #[test]
    fn an_idle_path_serves_whoever_asks(rules in every_policy(), steps in steps(), device in 0..DEVICES) {
        let (mut harness, _) = play(&rules, &steps, false, false);
        harness.be_silent(10_000);
        let transfer = TransferId { device: DeviceId(device), number: 99 };
        prop_assert!(harness.granted(1 << 50, transfer, MS_AT_10).is_some());
    }
}
