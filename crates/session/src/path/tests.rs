use super::*;
use crate::samples;
use catchment_verbs::Gid;

const SELECTIVE: u32 = NetEnd::SELECTIVE_REPEAT;
/// What a machine without libibverbs says.
const NO_LIBRARY: &str =
    "libibverbs.so.1 is not installed (apt install libibverbs1 ibverbs-providers)";

fn host() -> Host {
    Host { boot_id: "2b1f".to_owned(), netns: 4_026_531_840, uid: 1_000, pid: 7 }
}

fn elsewhere() -> Host {
    Host { boot_id: "ffff".to_owned(), ..host() }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

fn offer(name: &str, ip: &str) -> ProviderOffer {
    let net = |extensions| NetEnd { extensions, ..NetEnd::of_rnic(4096) };
    ProviderOffer {
        name: name.to_owned(),
        gid: Gid::from_ip(ip.parse().unwrap()),
        device: (name == "ibverbs").then(|| "mlx5_0".to_owned()),
        net: match name {
            "shm" => None,
            "roce" => Some(net(SELECTIVE)),
            _ => Some(net(0)),
        },
    }
}

/// Two sides, the source at 10.0.0.2 and the collector at 10.0.0.1 of another host unless a test
/// says else.
struct Case {
    source_host: Host,
    seen: Option<IpAddr>,
    offers: Vec<ProviderOffer>,
    missing: Vec<WhyNot>,
    failed: Vec<FailedPath>,
    rules: PathRules,
    collector: Vec<Result<ProviderOffer, WhyNot>>,
}

fn why_not(provider: &str, reason: &str) -> WhyNot {
    WhyNot { provider: provider.to_owned(), reason: reason.to_owned() }
}

/// A case where each side has exactly these.
fn case(source: &[&str], collector: &[&str]) -> Case {
    let lacks = |has: &[&str]| -> Vec<WhyNot> {
        let lacked = ["ibverbs"].iter().filter(|name| !has.contains(name));
        lacked.map(|name| why_not(name, NO_LIBRARY)).collect()
    };
    let missing = lacks(collector).into_iter().map(Err);
    Case {
        source_host: elsewhere(),
        seen: Some(IpAddr::from([10, 0, 0, 2])),
        offers: source.iter().map(|name| offer(name, "10.0.0.2")).collect(),
        missing: lacks(source),
        failed: Vec::new(),
        rules: PathRules::default(),
        collector: collector
            .iter()
            .map(|name| Ok(offer(name, "10.0.0.1")))
            .chain(missing)
            .collect(),
    }
}

impl Case {
    fn decide(&self) -> Result<PathChoice, PathError> {
        let here = host();
        let mut asked = Vec::new();
        let mut offer = |provider: &str| {
            asked.push(provider.to_owned());
            let found = self.collector.iter().find_map(|one| match one {
                Ok(offer) if offer.name == provider => Some(Ok(offer.clone())),
                Err(why) if why.provider == provider => Some(Err(why.reason.clone())),
                Ok(_) | Err(_) => None,
            });
            found.unwrap_or(Err("not there".to_owned()))
        };
        let known = samples::known();
        let mut collector =
            CollectorFacts { known: &known, host: &here, rules: &self.rules, offer: &mut offer };
        let source = SourceFacts {
            host: &self.source_host,
            offers: &self.offers,
            missing: &self.missing,
            failed: &self.failed,
            seen: self.seen,
        };
        let choice = choose(&mut collector, &source);
        if let Ok(choice) = &choice {
            let last = asked.last().map(String::as_str);
            assert_eq!(last, Some(choice.path.collector.as_str()), "opened too much");
        }
        choice
    }

    #[track_caller]
    fn takes(&self, source: &str, collector: &str) -> PathChoice {
        let choice = self.decide().unwrap();
        let seen = (choice.path.source.as_str(), choice.path.collector.as_str());
        assert_eq!(seen, (source, collector), "{}", choice.reason);
        choice
    }

    #[track_caller]
    fn fails(&self, words: &str) -> Refusal {
        let error = self.decide().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let refusal = error.refusal();
        assert_eq!(refusal.code, RefusalCode::NoPath);
        assert!(!refusal.remedy.is_empty());
        refusal
    }
}

impl PathChoice {
    #[track_caller]
    fn says(&self, words: &str) {
        assert!(self.reason.contains(words), "{}", self.reason);
    }
}

fn failed(choice: &PathChoice, path_mtu: Option<u32>, reason: &str) -> FailedPath {
    FailedPath { path: SessionPath { path_mtu, ..choice.path.clone() }, reason: reason.to_owned() }
}

#[test]
fn the_best_pair_that_both_have_is_taken() {
    let all: &[&str] = &["shm", "ibverbs", "roce"];
    let soft: &[&str] = &["shm", "roce"];
    case(all, all).takes("ibverbs", "ibverbs");
    case(all, soft).takes("ibverbs", "roce");
    case(soft, all).takes("roce", "ibverbs");
    case(soft, soft).takes("roce", "roce");
    let here = Case { source_host: host(), ..case(all, all) };
    here.takes("shm", "shm");
}

#[test]
fn one_host_and_user_take_shm_and_say_why() {
    let here = Case { source_host: host(), ..case(&["shm"], &["shm"]) };
    let choice = here.takes("shm", "shm");
    assert_eq!(choice.path.source_gid, here.offers[0].gid);
    assert_eq!((choice.path.path_mtu, choice.recovery), (None, None));
    assert_eq!(choice.reason, "same host, network namespace and user");
}

#[test]
fn the_reason_says_what_each_side_uses_and_why_nothing_better() {
    let choice = case(&["shm", "roce"], &["shm", "ibverbs", "roce"]).takes("roce", "ibverbs");
    assert_eq!(
        choice.reason,
        "RoCEv2 from 10.0.0.2 (roce) to 10.0.0.1 (ibverbs mlx5_0), path MTU 4096, go-back-N; \
         not shm: the source is on another host (boot id ffff, collector 2b1f); \
         not ibverbs at the source: libibverbs.so.1 is not installed \
         (apt install libibverbs1 ibverbs-providers)"
    );
    assert_eq!(choice.recovery, Some(Recovery::GoBackN));
    let soft = case(&["shm", "roce"], &["shm", "roce"]).takes("roce", "roce");
    soft.says("; not ibverbs: libibverbs.so.1 is not installed");
    soft.says("selective repeat");
}

#[test]
fn another_host_namespace_or_user_is_named_with_both_values() {
    let cases = [
        (elsewhere(), "shm: the source is on another host (boot id ffff, collector 2b1f)"),
        (
            Host { netns: 5, ..host() },
            "shm: the source is in another network namespace (inode 5, collector 4026531840)",
        ),
        (Host { uid: 0, ..host() }, "shm: other user (uid 0, collector uid 1000)"),
    ];
    for (source_host, words) in cases {
        let case = Case { source_host, ..case(&["shm"], &["shm"]) };
        assert!(case.fails(words).is_permanent());
    }
}

#[test]
fn a_side_obeys_its_own_rules_and_quotes_them() {
    let all: &[&str] = &["shm", "ibverbs", "roce"];
    let with = |rules: PathRules| Case { rules, ..case(all, all) };
    let require = with(PathRules { require: names(&["roce"]), ..PathRules::default() });
    require.takes("ibverbs", "roce").says(
        ", required by the collector's rules; not shm, not ibverbs at the collector: \
         the collector requires roce",
    );
    let prefer = with(PathRules { prefer: names(&["roce"]), ..PathRules::default() });
    prefer.takes("ibverbs", "roce").says("preferred");
    let forbid = with(PathRules { forbid: names(&["ibverbs", "roce"]), ..PathRules::default() });
    forbid.fails("roce at the collector: forbidden by the collector's rules");
    // What the source does not want it does not offer, and says so.
    let mut offered = case(&["roce"], all);
    offered.missing = vec![why_not("ibverbs", "forbidden by the source's rules")];
    let choice = offered.takes("roce", "ibverbs");
    choice.says("not ibverbs at the source: forbidden by the source's rules");
    // What it prefers stands first among its offers.
    case(&["roce", "ibverbs", "shm"], all).takes("roce", "ibverbs");
}

#[test]
fn an_rnic_is_reached_at_its_port_only() {
    let elsewhere = |side: &mut ProviderOffer| side.net.as_mut().unwrap().udp_port = 40_000;
    let mut source = case(&["roce"], &["ibverbs"]);
    elsewhere(&mut source.offers[0]);
    source.fails(
        "roce to ibverbs: the source's roce listens on UDP port 40000, \
         and an RNIC knows only 4791",
    );
    let mut collector = case(&["ibverbs"], &["roce"]);
    elsewhere(collector.collector[0].as_mut().unwrap());
    collector.fails("ibverbs to roce: the collector's roce listens on UDP port 40000");
    let mut both = case(&["roce"], &["roce"]);
    elsewhere(&mut both.offers[0]);
    elsewhere(both.collector[0].as_mut().unwrap());
    both.takes("roce", "roce");
    let mut silent = case(&["roce"], &["ibverbs"]);
    silent.offers[0].net = None;
    silent.fails("the source does not say what its roce takes");
}

#[test]
fn authenticated_packets_go_between_two_that_both_have_them() {
    let authenticated = |offer: &mut ProviderOffer| {
        offer.net = offer.net.map(|net| NetEnd { extensions: NetEnd::AUTHENTICATED, ..net });
    };
    let mut both = case(&["roce"], &["roce"]);
    authenticated(&mut both.offers[0]);
    both.fails("the source takes authenticated packets only, and the collector's roce sends none");
    both.collector.iter_mut().flatten().for_each(authenticated);
    both.takes("roce", "roce");
    let mut one = case(&["ibverbs"], &["roce"]);
    one.collector.iter_mut().flatten().for_each(authenticated);
    one.fails(
        "the collector takes authenticated packets only, and the source's ibverbs sends none",
    );
}

#[test]
fn the_path_mtu_is_the_smaller_one() {
    let mut case = case(&["roce"], &["ibverbs"]);
    case.offers[0].net.as_mut().unwrap().path_mtu = 1024;
    assert_eq!(case.takes("roce", "ibverbs").path.path_mtu, Some(1024));
}

#[test]
fn what_was_tried_without_success_is_not_tried_again() {
    let all: &[&str] = &["ibverbs", "roce"];
    let mut case = case(all, all);
    let first = case.takes("ibverbs", "ibverbs");
    case.failed = vec![failed(&first, None, "no answer")];
    let second = case.takes("ibverbs", "roce");
    second.says("not ibverbs: no answer");
    // Packets of this size did not pass: smaller ones may.
    case.failed.push(failed(&second, Some(4096), "4096 did not pass"));
    let third = case.takes("ibverbs", "roce");
    assert_eq!(third.path.path_mtu, Some(1024));
    for path_mtu in [1024, 512, 256] {
        case.failed.push(failed(&third, Some(path_mtu), "neither"));
    }
    let fourth = case.takes("roce", "ibverbs");
    fourth.says("not ibverbs to roce: neither");
    case.failed.push(failed(&fourth, None, "no answer"));
    let fifth = case.takes("roce", "roce");
    case.failed.push(failed(&fifth, None, "firewall"));
    // Somebody may open the firewall: the source must come back.
    let refusal = case.fails("roce: firewall");
    assert_eq!(refusal.retry_after_ms, Some(2_000));
    assert!(refusal.remedy.contains("fix the network"), "{refusal}");
}

#[test]
fn a_failure_of_another_address_says_nothing() {
    let mut case = case(&["roce"], &["roce"]);
    let mut other = failed(&case.takes("roce", "roce"), None, "no answer");
    other.path.source_gid = Gid::from_ip(IpAddr::from([10, 9, 9, 9]));
    case.failed = vec![other];
    case.takes("roce", "roce");
}

#[test]
fn several_addresses_of_one_provider_are_tried_in_their_order() {
    let mut case = case(&["roce"], &["roce"]);
    case.seen = None;
    case.offers.insert(0, offer("roce", "fd00::2"));
    let choice = case.takes("roce", "roce");
    assert_eq!(choice.path.source_gid, case.offers[1].gid);
    choice.says("two families");
}

#[test]
fn every_offer_gets_a_reason() {
    let refusal = case(&["shm", "efa"], &["shm"]).fails("efa: the collector does not know it");
    for words in [
        "shm: the source is on another host",
        "roce at the source: not offered",
        "ibverbs at the source: libibverbs.so.1 is not installed",
    ] {
        assert!(refusal.reason.contains(words), "{refusal}");
    }
}

#[test]
fn a_rule_that_names_nothing_known_is_an_error() {
    let case = Case {
        rules: PathRules { require: names(&["smh"]), ..PathRules::default() },
        ..case(&["shm"], &["shm"])
    };
    assert_eq!(
        case.decide().unwrap_err().to_string(),
        "require names provider \"smh\", known: shm, ibverbs, roce"
    );
}

#[test]
fn an_address_that_is_translated_on_the_way_is_named() {
    let seen = |ip: [u8; 4]| Case { seen: Some(IpAddr::from(ip)), ..case(&["roce"], &["roce"]) };
    seen([10, 0, 0, 2]).takes("roce", "roce");
    seen([10, 0, 0, 5]).fails("roce: the source has address 10.0.0.2 and comes from 10.0.0.5");
    // On one host the control connection may take another way than the packets.
    let here = Case {
        source_host: host(),
        seen: Some(IpAddr::from([127, 0, 0, 1])),
        ..case(&["ibverbs"], &["ibverbs"])
    };
    here.takes("ibverbs", "ibverbs");
}

#[test]
fn addresses_that_cannot_reach_each_other_are_named() {
    let mut families = case(&["roce"], &["roce"]);
    families.offers = vec![offer("roce", "fd00::2")];
    families.fails("roce: the source has address fd00::2, the collector 10.0.0.1: two families");
    let mut loopback = case(&["roce"], &["roce"]);
    loopback.seen = Some(IpAddr::from([127, 0, 0, 1]));
    loopback.offers = vec![offer("roce", "127.0.0.1")];
    loopback.fails("roce: a loopback address does not leave its host");
    let mut taken = case(&["roce"], &[]);
    taken.collector = vec![Err(why_not("roce", "UDP port 4791 is taken"))];
    taken.fails("roce at the collector: UDP port 4791 is taken");
}

#[test]
fn the_order_of_rules_is_that_of_preference() {
    let known = samples::known();
    let rules =
        PathRules { prefer: names(&["roce"]), forbid: names(&["shm"]), ..PathRules::default() };
    assert_eq!(rules.order(&known), ["roce", "ibverbs"]);
    assert!(rules.names("roce") && !rules.names("ibverbs"));
    let usual = PathRules::default().order(&known);
    assert_eq!(usual, known.names().collect::<Vec<_>>());
    assert_eq!(usual, ["shm", "ibverbs", "roce"]);
}

/// An agent shares memory with its applications, and its device may send packets: `shm` with a network stands for it.
#[test]
fn memory_whose_device_sends_packets_at_both_ends_needs_no_common_host() {
    let mut agents = case(&["shm"], &["shm"]);
    let net = offer("roce", "10.0.0.2").net;
    agents.offers[0].net = net;
    for source_host in [elsewhere(), host()] {
        let one = Case { source_host, ..agents };
        one.fails("shm: the source's shm sends packets, the collector's shm does not");
        agents = one;
    }
    if let Ok(ours) = &mut agents.collector[0] {
        ours.net = net;
    }
    let choice = agents.takes("shm", "shm");
    assert!(
        choice.path.path_mtu.is_some() && choice.reason.contains("RoCEv2"),
        "{}",
        choice.reason
    );
}
