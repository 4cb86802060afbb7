//! Choice of the provider between two peers. Pure: the same facts give the same choice.
//!
//! The order without rules is that in which the source offers, by default [`KNOWN_PROVIDERS`]. What the rules name is obeyed or refused
//! with a reason, and the reason of a choice says why no better one was taken: nothing is silently
//! slower.

use std::{fmt, net::IpAddr};

use catchment_verbs::Gid;

use super::check::REASON_CHARS_MAX;
use super::host::Host;
use super::message::ProviderOffer;
use super::names::printable;
use super::refusal::{Refusal, RefusalCode};

/// The providers that this library knows, the best first.
pub const KNOWN_PROVIDERS: [&str; 2] = ["shm", "roce"];

/// What a user demands of the choice. Names are those of [`KNOWN_PROVIDERS`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathRules {
    /// Only these may be taken. Empty: any.
    pub require: Vec<String>,
    /// These come first, in this order.
    pub prefer: Vec<String>,
    /// These may not be taken.
    pub forbid: Vec<String>,
}

/// One side of the choice.
#[derive(Debug, Clone, Copy)]
pub struct PathSide<'a> {
    /// Where it runs.
    pub host: &'a Host,
    /// What it can move bytes with.
    pub providers: &'a [ProviderOffer],
    /// Why it does not have what it could have. Of a source this is not known: empty.
    pub missing: &'a [WhyNot],
    /// Where its control connection comes from, as the other side sees it. `None` over a unix
    /// socket, and for the side that chooses.
    pub seen: Option<IpAddr>,
}

/// The provider for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChoice {
    /// Its name.
    pub provider: String,
    /// Why this one, for people.
    pub reason: String,
    /// The source's address in it.
    pub source_gid: Gid,
}

/// Why one provider cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyNot {
    /// Name of the provider.
    pub provider: String,
    /// The reason, for people.
    pub reason: String,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.provider, self.reason)
    }
}

/// No provider can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Each provider has a reason against it.
    #[error("no way to move frames between source and collector: {}", join(whys))]
    NoPath {
        /// One entry per known or offered provider.
        whys: Vec<WhyNot>,
        /// What to do.
        remedy: String,
    },
    /// A rule names a provider that does not exist.
    #[error("{list} names provider \"{seen}\", known: {}", KNOWN_PROVIDERS.join(", "))]
    UnknownProvider {
        /// `require`, `prefer` or `forbid`.
        list: &'static str,
        /// The name.
        seen: String,
    },
}

fn join(whys: &[WhyNot]) -> String {
    let lines: Vec<String> = whys.iter().map(WhyNot::to_string).collect();
    lines.join("; ")
}

impl PathError {
    /// What to tell the source.
    pub fn refusal(&self) -> Refusal {
        let (code, remedy) = match self {
            PathError::NoPath { remedy, .. } => (RefusalCode::NoPath, remedy.as_str()),
            PathError::UnknownProvider { .. } => (
                RefusalCode::Internal,
                "correct the path rules of the collector",
            ),
        };
        Refusal::new(code, self.to_string(), remedy)
    }
}

/// A reason against a provider, and what would remove it.
struct Against {
    reason: String,
    remedy: String,
}

impl Against {
    fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Option<Against> {
        Some(Against {
            reason: reason.into(),
            remedy: remedy.into(),
        })
    }
}

/// Chooses the provider between `source` and `collector` by `rules`.
///
/// # Errors
/// No provider is possible, with the reason against each; or a rule names an unknown one.
pub fn choose(
    collector: PathSide<'_>,
    source: PathSide<'_>,
    rules: &PathRules,
) -> Result<PathChoice, PathError> {
    rules.check()?;
    let mut whys = Vec::new();
    let mut remedy = String::new();
    for name in candidates(source, rules) {
        match against(&name, collector, source, rules) {
            None => return Ok(choice(name, collector, source, rules, &whys)),
            Some(why) => {
                if remedy.is_empty() || KNOWN_PROVIDERS.contains(&name.as_str()) {
                    remedy = why.remedy;
                }
                let (provider, reason) = (name, why.reason);
                whys.push(WhyNot { provider, reason });
            }
        }
    }
    Err(PathError::NoPath { whys, remedy })
}

impl PathRules {
    /// The known providers that these rules allow, in the order of preference.
    pub fn order(&self) -> Vec<&'static str> {
        let allowed = |name: &&str| {
            let named = |list: &[String]| list.iter().any(|entry| entry == name);
            !named(&self.forbid) && (self.require.is_empty() || named(&self.require))
        };
        let place = |name: &&str| self.prefer.iter().position(|entry| entry == name);
        let mut names: Vec<_> = KNOWN_PROVIDERS.into_iter().filter(allowed).collect();
        names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
        names
    }

    /// Checks the names.
    ///
    /// # Errors
    /// [`PathError::UnknownProvider`] for the first name that no provider has.
    pub fn check(&self) -> Result<(), PathError> {
        let lists = [
            ("require", &self.require),
            ("prefer", &self.prefer),
            ("forbid", &self.forbid),
        ];
        for (list, names) in lists {
            for name in names {
                if !KNOWN_PROVIDERS.contains(&name.as_str()) {
                    let seen = printable(name, 32);
                    return Err(PathError::UnknownProvider { list, seen });
                }
            }
        }
        Ok(())
    }
}

/// Names in the order of trial: those that the collector prefers, then as the source offers them,
/// then what only the collector knows (to give a reason against each of them).
fn candidates(source: PathSide<'_>, rules: &PathRules) -> Vec<String> {
    let offered = source.providers.iter().map(|offer| offer.name.clone());
    let known = KNOWN_PROVIDERS.iter().map(|&name| name.to_owned());
    let mut names: Vec<String> = Vec::new();
    for name in rules.prefer.iter().cloned().chain(offered).chain(known) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn against(
    name: &str,
    collector: PathSide<'_>,
    source: PathSide<'_>,
    rules: &PathRules,
) -> Option<Against> {
    let named = |list: &[String]| list.iter().any(|entry| entry == name);
    if named(&rules.forbid) {
        return Against::new(
            "forbidden by the collector's rules",
            format!("do not forbid {name} at the collector"),
        );
    }
    if !rules.require.is_empty() && !named(&rules.require) {
        return Against::new(
            format!("the collector requires {}", rules.require.join(", ")),
            format!("require {name} too at the collector"),
        );
    }
    let Some(theirs) = source.gid(name) else {
        return Against::new("the source does not offer it", "allow it at the source");
    };
    let Some(ours) = collector.gid(name) else {
        let missing = collector.missing.iter().find(|why| why.provider == name);
        let because = missing.map_or(String::new(), |why| format!(": {}", why.reason));
        return Against::new(
            format!("the collector does not have it{because}"),
            "use a provider that both sides have",
        );
    };
    match name {
        "shm" => against_shm(collector.host, source.host),
        "roce" => against_roce((collector.host, ours.ip()), (source, theirs.ip())),
        _ => None,
    }
}

impl PathSide<'_> {
    fn gid(&self, provider: &str) -> Option<Gid> {
        let mut offers = self.providers.iter();
        Some(offers.find(|offer| offer.name == provider)?.gid)
    }
}

/// shm needs one kernel (one memory), one network namespace (its sockets have abstract names) and
/// one user (peers are checked by their credentials).
fn against_shm(collector: &Host, source: &Host) -> Option<Against> {
    if source.boot_id != collector.boot_id {
        return Against::new(
            format!(
                "the source is on another host (boot id {}, collector {})",
                source.boot_id, collector.boot_id
            ),
            "allow a provider that works between hosts",
        );
    }
    if source.netns != collector.netns {
        return Against::new(
            format!(
                "the source is in another network namespace (inode {}, collector {})",
                source.netns, collector.netns
            ),
            "run both containers in one network namespace (one pod, or --network container:NAME)",
        );
    }
    if source.uid != collector.uid {
        return Against::new(
            format!(
                "other user (uid {}, collector uid {})",
                source.uid, collector.uid
            ),
            "run source and collector as the same user",
        );
    }
    None
}

/// RoCEv2 needs addresses of one family that reach each other, and that nobody translates.
fn against_roce(
    (collector_host, collector): (&Host, IpAddr),
    (side, source): (PathSide<'_>, IpAddr),
) -> Option<Against> {
    let source_host = side.host;
    if collector.is_ipv4() != source.is_ipv4() {
        return Against::new(
            format!("the source has address {source}, the collector {collector}: two families"),
            "connect to an address of the collector of the family that the source has",
        );
    }
    if let Some(seen) = side.seen
        && seen != source
        && !(seen.is_loopback() && source.is_loopback())
    {
        return Against::new(
            format!(
                "the source has address {source} and comes from {seen}: \
                 an address translation (NAT) lies between, and RoCEv2 does not pass it"
            ),
            "give the source an address of the network (for a container: --network host)",
        );
    }
    let here =
        source_host.boot_id == collector_host.boot_id && source_host.netns == collector_host.netns;
    if !here && (collector.is_loopback() || source.is_loopback()) {
        return Against::new(
            format!(
                "a loopback address does not leave its host (source {source}, collector {collector})"
            ),
            "connect to an address of the collector's network device",
        );
    }
    None
}

fn choice(
    name: String,
    collector: PathSide<'_>,
    source: PathSide<'_>,
    rules: &PathRules,
    whys: &[WhyNot],
) -> PathChoice {
    let source_gid = source.gid(&name).unwrap_or_default();
    let what = match (name.as_str(), collector.gid(&name)) {
        ("roce", Some(gid)) => {
            format!("RoCEv2 over UDP from {} to {}", source_gid.ip(), gid.ip())
        }
        _ => "same host, network namespace and user".to_owned(),
    };
    let rule = if rules.require.contains(&name) {
        ", required by the collector's rules"
    } else if rules.prefer.contains(&name) {
        ", preferred by the collector's rules"
    } else {
        ""
    };
    let not: String = whys.iter().map(|why| format!("; not {why}")).collect();
    PathChoice {
        reason: printable(&format!("{what}{rule}{not}"), REASON_CHARS_MAX - 1),
        source_gid,
        provider: name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            boot_id: "2b1f".to_owned(),
            netns: 4_026_531_840,
            uid: 1_000,
            pid: 7,
        }
    }

    fn offers(names: &[&str]) -> Vec<ProviderOffer> {
        let offer = |name: &&str| ProviderOffer {
            name: (*name).to_owned(),
            gid: Gid::from_ip(IpAddr::from([10, 0, 0, 7])),
        };
        names.iter().map(offer).collect()
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn decide(source: &Host, offered: &[&str], rules: &PathRules) -> Result<PathChoice, PathError> {
        let (ours, theirs) = (offers(&["shm"]), offers(offered));
        let collector = PathSide {
            host: &host(),
            providers: &ours,
            missing: &[],
            seen: None,
        };
        let source = PathSide {
            host: source,
            providers: &theirs,
            missing: &[],
            seen: None,
        };
        choose(collector, source, rules)
    }

    #[test]
    fn one_host_and_user_take_shm_and_say_why() {
        let choice = decide(&host(), &["shm"], &PathRules::default()).unwrap();
        assert_eq!(choice.provider, "shm");
        assert_eq!(choice.source_gid, offers(&["shm"])[0].gid);
        assert!(choice.reason.contains("same host"), "{}", choice.reason);
    }

    #[test]
    fn another_host_namespace_or_user_is_named_with_both_values() {
        let cases = [
            (
                Host {
                    boot_id: "ffff".to_owned(),
                    ..host()
                },
                "shm: the source is on another host (boot id ffff, collector 2b1f)",
            ),
            (
                Host { netns: 5, ..host() },
                "shm: the source is in another network namespace (inode 5, collector 4026531840)",
            ),
            (
                Host { uid: 0, ..host() },
                "shm: other user (uid 0, collector uid 1000)",
            ),
        ];
        for (source, expected) in cases {
            let error = decide(&source, &["shm"], &PathRules::default()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            let refusal = error.refusal();
            assert_eq!(refusal.code, RefusalCode::NoPath);
            assert!(!refusal.remedy.is_empty());
        }
    }

    #[test]
    fn rules_are_obeyed_and_quoted() {
        let forbid = PathRules {
            forbid: names(&["shm"]),
            ..PathRules::default()
        };
        let error = decide(&host(), &["shm"], &forbid).unwrap_err();
        assert!(error.to_string().contains("shm: forbidden"), "{error}");
        let require = PathRules {
            require: names(&["shm"]),
            ..PathRules::default()
        };
        let choice = decide(&host(), &["shm"], &require).unwrap();
        assert!(choice.reason.contains("required"), "{}", choice.reason);
        let prefer = PathRules {
            prefer: names(&["shm"]),
            ..PathRules::default()
        };
        let choice = decide(&host(), &["shm"], &prefer).unwrap();
        assert!(choice.reason.contains("preferred"), "{}", choice.reason);
    }

    #[test]
    fn every_offer_gets_a_reason() {
        let error = decide(&host(), &["ibverbs", "roce"], &PathRules::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("shm: the source does not offer it"), "{text}");
        assert!(
            text.contains("ibverbs: the collector does not have it"),
            "{text}"
        );
        assert!(
            text.contains("roce: the collector does not have it"),
            "{text}"
        );
    }

    #[test]
    fn a_rule_that_names_nothing_known_is_an_error() {
        let rules = PathRules {
            require: names(&["smh"]),
            ..PathRules::default()
        };
        let error = decide(&host(), &["shm"], &rules).unwrap_err();
        assert_eq!(
            error.to_string(),
            "require names provider \"smh\", known: shm, roce"
        );
    }

    fn decide_at(
        source: (&Host, &str),
        collector_ip: Option<&str>,
        rules: &PathRules,
    ) -> Result<PathChoice, PathError> {
        decide_seen(source, None, collector_ip, rules)
    }

    fn decide_seen(
        (source, source_ip): (&Host, &str),
        seen: Option<&str>,
        collector_ip: Option<&str>,
        rules: &PathRules,
    ) -> Result<PathChoice, PathError> {
        let offer = |name: &str, ip: &str| ProviderOffer {
            name: name.to_owned(),
            gid: Gid::from_ip(ip.parse().unwrap()),
        };
        let mut ours = offers(&["shm"]);
        ours.extend(collector_ip.map(|ip| offer("roce", ip)));
        let missing = [WhyNot {
            provider: "roce".to_owned(),
            reason: "UDP port 4791 is taken".to_owned(),
        }];
        let theirs = [offer("shm", "::"), offer("roce", source_ip)];
        let collector = PathSide {
            host: &host(),
            providers: &ours,
            missing: &missing,
            seen: None,
        };
        let source = PathSide {
            host: source,
            providers: &theirs,
            missing: &[],
            seen: seen.map(|ip| ip.parse().unwrap()),
        };
        choose(collector, source, rules)
    }

    fn elsewhere() -> Host {
        Host {
            boot_id: "ffff".to_owned(),
            ..host()
        }
    }

    #[test]
    fn between_hosts_roce_is_taken_and_the_reason_says_why_not_shm() {
        let source = elsewhere();
        let rules = PathRules::default();
        let choice = decide_at((&source, "10.0.0.2"), Some("10.0.0.1"), &rules).unwrap();
        assert_eq!(choice.provider, "roce");
        assert_eq!(
            choice.reason,
            "RoCEv2 over UDP from 10.0.0.2 to 10.0.0.1; \
             not shm: the source is on another host (boot id ffff, collector 2b1f)"
        );
    }

    #[test]
    fn on_one_host_roce_comes_after_shm_unless_a_rule_says_else() {
        let here = host();
        let default = decide_at(
            (&here, "127.0.0.2"),
            Some("127.0.0.1"),
            &PathRules::default(),
        );
        assert_eq!(default.unwrap().provider, "shm");
        let rules = PathRules {
            require: names(&["roce"]),
            ..PathRules::default()
        };
        let required = decide_at((&here, "127.0.0.2"), Some("127.0.0.1"), &rules).unwrap();
        assert_eq!(required.provider, "roce");
        assert!(
            required.reason.contains("required by the collector"),
            "{}",
            required.reason
        );
    }

    #[test]
    fn an_address_that_is_translated_on_the_way_is_named() {
        let (source, rules) = (elsewhere(), PathRules::default());
        let decide = |seen| decide_seen((&source, "172.17.0.2"), seen, Some("10.0.0.1"), &rules);
        let error = decide(Some("10.0.0.5")).unwrap_err().to_string();
        let words = "roce: the source has address 172.17.0.2 and comes from 10.0.0.5";
        assert!(error.contains(words), "{error}");
        assert_eq!(decide(Some("172.17.0.2")).unwrap().provider, "roce");
        let here = decide_seen(
            (&host(), "127.0.0.1"),
            Some("::1"),
            Some("127.0.0.1"),
            &rules,
        );
        assert!(here.is_ok(), "two loopback addresses: {here:?}");
    }

    #[test]
    fn addresses_that_cannot_reach_each_other_are_named() {
        let source = elsewhere();
        let rules = PathRules::default();
        for (theirs, ours, words) in [
            (
                "fd00::2",
                Some("10.0.0.1"),
                "roce: the source has address fd00::2, the collector 10.0.0.1: two families",
            ),
            (
                "127.0.0.1",
                Some("127.0.0.1"),
                "roce: a loopback address does not leave its host",
            ),
            (
                "10.0.0.2",
                None,
                "roce: the collector does not have it: UDP port 4791 is taken",
            ),
        ] {
            let error = decide_at((&source, theirs), ours, &rules).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
