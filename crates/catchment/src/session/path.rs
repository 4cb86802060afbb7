//! Choice of the provider between two peers. Pure: the same facts give the same choice.
//!
//! The order without rules is shm, and later the providers between hosts. What the rules name is
//! obeyed or refused with a reason, never replaced silently by something slower.

use std::fmt;

use catchment_verbs::Gid;

use super::host::Host;
use super::message::ProviderOffer;
use super::names::printable;
use super::refusal::{Refusal, RefusalCode};

/// The providers that this library knows, the best first.
pub const KNOWN_PROVIDERS: [&str; 1] = ["shm"];

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
    remedy: &'static str,
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
    let mut remedy = "";
    for name in candidates(source, rules) {
        match against(&name, collector, source, rules) {
            None => return Ok(choice(name, source, rules)),
            Some(why) => {
                if remedy.is_empty() || KNOWN_PROVIDERS.contains(&name.as_str()) {
                    remedy = why.remedy;
                }
                let (provider, reason) = (name, why.reason);
                whys.push(WhyNot { provider, reason });
            }
        }
    }
    let remedy = remedy.to_owned();
    Err(PathError::NoPath { whys, remedy })
}

impl PathRules {
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

/// Names in the order of trial: preferred ones, known ones, then what only the source has (to
/// give a reason against each of them).
fn candidates(source: PathSide<'_>, rules: &PathRules) -> Vec<String> {
    let offered = source.providers.iter().map(|offer| offer.name.clone());
    let known = KNOWN_PROVIDERS.iter().map(|&name| name.to_owned());
    let mut names: Vec<String> = Vec::new();
    for name in rules.prefer.iter().cloned().chain(known).chain(offered) {
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
    let has = |side: PathSide<'_>| side.providers.iter().any(|offer| offer.name == name);
    if named(&rules.forbid) {
        return Some(Against {
            reason: "forbidden by the collector's rules".to_owned(),
            remedy: "take it off the list forbid of the collector",
        });
    }
    if !rules.require.is_empty() && !named(&rules.require) {
        return Some(Against {
            reason: format!("the collector requires {}", rules.require.join(", ")),
            remedy: "add it to the list require of the collector",
        });
    }
    if !has(collector) {
        return Some(Against {
            reason: "the collector does not have it".to_owned(),
            remedy: "use a provider that both sides have",
        });
    }
    if !has(source) {
        return Some(Against {
            reason: "the source does not offer it".to_owned(),
            remedy: "allow it at the source",
        });
    }
    (name == "shm").then(|| against_shm(collector.host, source.host))?
}

/// shm needs one kernel (one memory), one network namespace (its sockets have abstract names) and
/// one user (peers are checked by their credentials).
fn against_shm(collector: &Host, source: &Host) -> Option<Against> {
    if source.boot_id != collector.boot_id {
        return Some(Against {
            reason: format!(
                "the source is on another host (boot id {}, collector {})",
                source.boot_id, collector.boot_id
            ),
            remedy: "run source and collector on one host; shm is the only provider of this version",
        });
    }
    if source.netns != collector.netns {
        return Some(Against {
            reason: format!(
                "the source is in another network namespace (inode {}, collector {})",
                source.netns, collector.netns
            ),
            remedy: "run both containers in one network namespace (one pod, or --network container:NAME)",
        });
    }
    if source.uid != collector.uid {
        return Some(Against {
            reason: format!(
                "other user (uid {}, collector uid {})",
                source.uid, collector.uid
            ),
            remedy: "run source and collector as the same user",
        });
    }
    None
}

fn choice(name: String, source: PathSide<'_>, rules: &PathRules) -> PathChoice {
    let offer = source.providers.iter().find(|offer| offer.name == name);
    let rule = if rules.require.contains(&name) {
        ", required by the collector's rules"
    } else if rules.prefer.contains(&name) {
        ", preferred by the collector's rules"
    } else {
        ""
    };
    PathChoice {
        reason: format!("same host, network namespace and user{rule}"),
        source_gid: offer.map_or_else(Gid::default, |offer| offer.gid),
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
            gid: Gid([7; 16]),
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
        };
        let source = PathSide {
            host: source,
            providers: &theirs,
        };
        choose(collector, source, rules)
    }

    #[test]
    fn one_host_and_user_take_shm_and_say_why() {
        let choice = decide(&host(), &["shm"], &PathRules::default()).unwrap();
        assert_eq!(choice.provider, "shm");
        assert_eq!(choice.source_gid, Gid([7; 16]));
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
            "require names provider \"smh\", known: shm"
        );
    }
}
