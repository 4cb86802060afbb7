//! The choice of a pair.
use super::rules::Side;
use super::{
    About, Because, CollectorFacts, KnownProviders, PathChoice, PathError, PathRules, Recovery,
    SourceFacts, Why, Wire, against, join,
};
use crate::check::REASON_CHARS_MAX;
use crate::message::{FailedPath, ProviderOffer, SessionPath};
use crate::names::fit;

/// Remedy when the source offers nothing for a pair.
const OFFER_IT: &str = "allow it at the source";

/// One pair to try.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    source: &'a str,
    /// What the source has of it.
    offer: Option<&'a ProviderOffer>,
    collector: &'static str,
}

/// Chooses the path between `source` and `collector`.
///
/// Devices of the collector are opened in the order of the candidates, and only as far as needed.
///
/// # Errors
/// No pair is possible, with the reasons; or a rule names an unknown provider.
pub fn choose(
    collector: &mut CollectorFacts<'_>,
    source: &SourceFacts<'_>,
) -> Result<PathChoice, PathError> {
    let known = collector.known;
    collector.rules.check(known)?;
    let mut whys: Vec<Why> = Vec::new();
    for candidate in candidates(source, collector.rules, known) {
        match examine(candidate, collector, source) {
            Ok((ours, path_mtu)) => {
                let theirs = candidate.offer.cloned().unwrap_or_else(|| ours.clone());
                return Ok(chosen(theirs, ours, path_mtu, collector, &whys));
            }
            Err(why) if whys.contains(&why) => {}
            Err(why) => whys.push(why),
        }
    }
    whys.extend(source.offers.iter().filter_map(|offer| unknown(offer, known)));
    Err(PathError::no_path(merged(whys)))
}

/// Returns the reason against an offer of an unknown provider, which a later version may have.
fn unknown(offer: &ProviderOffer, known: &KnownProviders) -> Option<Why> {
    if known.get(&offer.name).is_some() {
        return None;
    }
    let because = Because::new(
        "the collector does not know it",
        "update the collector, or offer one that it knows",
    )?;
    Some(Why::new(About::Both(offer.name.clone()), because))
}

/// Returns all pairs with one wire, in the order of trial: by the collector's preference, then the
/// source's, then rank. Pairs without an offer of the source keep their place, for the reasons.
fn candidates<'a>(
    source: &SourceFacts<'a>,
    rules: &PathRules,
    known: &KnownProviders,
) -> Vec<Candidate<'a>> {
    let offered = source.offers.iter().map(|o| (o.name.as_str(), Some(o)));
    let absent = known.names().filter(|name| {
        let mut offers = source.offers.iter();
        !offers.any(|offer| offer.name == **name)
    });
    let ours: Vec<_> = offered.chain(absent.map(|name| (name, None))).collect();
    let mut all = Vec::new();
    for (source_name, offer) in ours {
        for collector in known.names() {
            let wire = known.wire(source_name);
            if wire.is_some() && wire == known.wire(collector) {
                all.push(Candidate { source: source_name, offer, collector });
            }
        }
    }
    all.sort_by_key(|pair| {
        let place = source.place(pair.source, known);
        (rules.place(pair.collector), place, rank(*pair, known))
    });
    all
}

/// Returns the place of a pair without rules: shared memory, then the more RNICs the better.
fn rank(pair: Candidate<'_>, known: &KnownProviders) -> usize {
    known.place(pair.source).unwrap_or(usize::MAX / 2) + known.place(pair.collector).unwrap_or(0)
}

/// Returns the collector's end of the pair and the path MTU, if nothing rules the pair out.
fn examine(
    pair: Candidate<'_>,
    collector: &mut CollectorFacts<'_>,
    source: &SourceFacts<'_>,
) -> Result<(ProviderOffer, Option<u32>), Why> {
    let wire = collector.known.wire(pair.collector);
    let at_collector =
        |because| Why::new(About::at(Side::Collector, pair.collector, wire), because);
    let at_source = |because| Why::new(About::at(Side::Source, pair.source, wire), because);
    if let Some(because) = collector.rules.against(Side::Collector, pair.collector) {
        return Err(at_collector(because));
    }
    let Some(theirs) = pair.offer else { return Err(at_source(source.lack(pair.source))) };
    let ours = (collector.offer)(pair.collector).map_err(|reason| {
        at_collector(Because {
            remedy: "use a provider that both sides have".to_owned(),
            reason,
            may_pass: false,
        })
    })?;
    let of_pair = |because| Why::new(About::pair(pair.source, pair.collector), because);
    let against = match wire {
        Some(Wire::Memory) | None => match (ours.net, theirs.net) {
            // The device of an agent may send packets: then its applications share memory with it alone.
            (Some(_), Some(_)) => None,
            (None, None) => against::memory(collector.host, source.host),
            (Some(_), None) | (None, Some(_)) => against::packets_of_one(&ours, theirs),
        },
        Some(Wire::RoceV2) => against::packets((collector, &ours), (source, theirs)),
    };
    if let Some(because) = against {
        return Err(of_pair(because));
    }
    let failed: Vec<&FailedPath> =
        source.failed.iter().filter(|failed| is_of(&failed.path, theirs, pair.collector)).collect();
    let path_mtu = against::path_mtu(&ours, theirs, &failed).map_err(of_pair)?;
    Ok((ours, path_mtu))
}

fn is_of(path: &SessionPath, source: &ProviderOffer, collector: &str) -> bool {
    path.source == source.name && path.source_gid == source.gid && path.collector == collector
}

impl SourceFacts<'_> {
    /// Returns the place of a provider in the source's order; for one that it does not offer, the
    /// place by rank.
    fn place(&self, name: &str, known: &KnownProviders) -> (usize, usize) {
        let usual = |name: &str| known.place(name).unwrap_or(usize::MAX);
        if let Some(place) = self.offers.iter().position(|offer| offer.name == name) {
            return (place, usize::MAX);
        }
        // Before the first offer that is worse.
        let worse = self.offers.iter().position(|offer| usual(&offer.name) > usual(name));
        (worse.unwrap_or(self.offers.len()), usual(name))
    }

    /// Returns why the source does not offer a provider, as far as it says.
    fn lack(&self, name: &str) -> Because {
        let told = self.missing.iter().find(|why| why.provider == name);
        Because {
            reason: told.map_or("not offered".to_owned(), |why| why.reason.clone()),
            remedy: OFFER_IT.to_owned(),
            may_pass: false,
        }
    }
}

/// Merges reasons that are the same for both sides.
fn merged(whys: Vec<Why>) -> Vec<Why> {
    let mut merged: Vec<Why> = Vec::new();
    for why in whys {
        let twin = merged.iter_mut().find(|other| {
            other.because.reason == why.because.reason && other.about.is_counterpart(&why.about)
        });
        match twin {
            Some(twin) => twin.about = twin.about.of_both(),
            None => merged.push(why),
        }
    }
    merged
}

fn chosen(
    source: ProviderOffer,
    collector: ProviderOffer,
    path_mtu: Option<u32>,
    facts: &CollectorFacts<'_>,
    whys: &[Why],
) -> PathChoice {
    let known = facts.known;
    let recovery = Recovery::of(source.net, collector.net);
    let what = match (path_mtu, recovery) {
        (Some(mtu), Some(recovery)) => format!(
            "RoCEv2 from {} to {}, path MTU {mtu}, {recovery}",
            end(&source, known),
            end(&collector, known)
        ),
        _ => "same host, network namespace and user".to_owned(),
    };
    let rule = facts.rules.in_favour(&collector.name);
    let whys = merged(whys.to_vec());
    let not = if whys.is_empty() { String::new() } else { format!("; {}", join(&whys, "not ")) };
    PathChoice {
        path: SessionPath {
            source: source.name.clone(),
            source_gid: source.gid,
            collector: collector.name.clone(),
            path_mtu,
        },
        reason: fit(&format!("{what}{rule}{not}"), REASON_CHARS_MAX),
        recovery,
        source,
        collector,
    }
}

/// Describes one end of a path: `10.0.0.2 (ibverbs mlx5_0)`.
fn end(offer: &ProviderOffer, known: &KnownProviders) -> String {
    let ip = offer.gid.ip();
    match &offer.device {
        Some(device) if known.is_hardware(&offer.name) => format!("{ip} ({} {device})", offer.name),
        _ => format!("{ip} ({})", offer.name),
    }
}
