//! Choice of the path between two peers. Pure: the same facts lead to the same choice.
//!
//! Each side has a provider of its own, and the two must use one [`Wire`]: RNICs and software RoCE
//! do. Without rules the best pair is taken, by the ranks of the providers ([`KnownProviders`]):
//! shared memory, then RNICs on both sides, on one side, on none. Rules are obeyed or refused with a
//! reason, and the reason of a choice says why no better one was taken: nothing is silently slower.
mod against;
mod agreed;
mod choose;
mod known;
mod rules;
#[cfg(test)]
mod tests;

pub use choose::choose;
pub use known::KnownProviders;
pub use rules::{PathRules, Side};

use std::net::IpAddr;

use crate::host::Host;
use crate::message::{FailedPath, ProviderOffer, SessionPath, WhyNot};
use crate::refusal::{Refusal, RefusalCode};
use catchment_verbs::NetEnd;
pub use catchment_verbs::Wire;

/// When a source may retry after all candidates failed: one may have been repaired.
const TRY_AGAIN_MS: u32 = 2_000;

/// How lost packets are recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{}", self.as_str())]
pub enum Recovery {
    /// Only lost packets are sent again; an extension of our own.
    SelectiveRepeat,
    /// The lost packet and all after it are sent again, as in the standard.
    GoBackN,
}

impl Recovery {
    /// Returns the recovery between two ends; `None` where there are no packets.
    pub fn of(source: Option<NetEnd>, collector: Option<NetEnd>) -> Option<Self> {
        let (source, collector) = source.zip(collector)?;
        let both = source.extensions & collector.extensions;
        Some(if both & NetEnd::SELECTIVE_REPEAT != 0 {
            Self::SelectiveRepeat
        } else {
            Self::GoBackN
        })
    }

    /// Returns the name, in text and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SelectiveRepeat => "selective repeat",
            Self::GoBackN => "go-back-N",
        }
    }
}

/// What a source reports in its Hello, and what its connection shows.
#[derive(Debug, Clone, Copy)]
pub struct SourceFacts<'a> {
    /// Where it runs.
    pub host: &'a Host,
    /// The providers it can use, in order of preference.
    pub offers: &'a [ProviderOffer],
    /// The providers it cannot use, and why.
    pub missing: &'a [WhyNot],
    /// Paths that failed.
    pub failed: &'a [FailedPath],
    /// Where its control connection comes from, as the collector sees it. `None` over a unix
    /// socket.
    pub seen: Option<IpAddr>,
}

/// Properties of the collector.
pub struct CollectorFacts<'a> {
    /// Where it runs.
    pub host: &'a Host,
    /// The providers of its program.
    pub known: &'a KnownProviders,
    /// Rules of its user.
    pub rules: &'a PathRules,
    /// Opens the device of a provider for this source, or says why there is none.
    pub offer: &'a mut dyn FnMut(&str) -> Result<ProviderOffer, String>,
}

/// The chosen path of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChoice {
    /// The path, as in Welcome.
    pub path: SessionPath,
    /// Why this one and no better one, as text.
    pub reason: String,
    /// How losses are recovered; `None` where there are no packets.
    pub recovery: Option<Recovery>,
    /// The source's end.
    pub source: ProviderOffer,
    /// The collector's end.
    pub collector: ProviderOffer,
}

/// A reason against a provider or pair, and what would remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// The reason.
    pub reason: String,
    /// What would remove it.
    pub remedy: String,
    /// It was tried and failed, which can change without a change of settings.
    may_pass: bool,
}

impl Because {
    fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Option<Self> {
        Some(Self { reason: reason.into(), remedy: remedy.into(), may_pass: false })
    }
}

/// What a reason is about.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
enum About {
    /// A provider at one side.
    #[display("{_1} at the {}", _0.name())]
    At(Side, String),
    /// A provider at both sides.
    #[display("{_0}")]
    Both(String),
    /// The network between the source's provider and the collector's.
    #[display("{_0} to {_1}")]
    Between(String, String),
}

impl About {
    /// Names a provider at one side; both sides of shared memory are one.
    fn at(side: Side, provider: &str, wire: Option<Wire>) -> Self {
        match wire {
            Some(Wire::Memory) => Self::Both(provider.to_owned()),
            Some(Wire::RoceV2) | None => Self::At(side, provider.to_owned()),
        }
    }

    fn pair(source: &str, collector: &str) -> Self {
        if source == collector {
            Self::Both(source.to_owned())
        } else {
            Self::Between(source.to_owned(), collector.to_owned())
        }
    }

    /// Returns whether `other` is the same provider at the other side.
    fn is_counterpart(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::At(a, name), Self::At(b, other)) => a != b && name == other,
            _ => false,
        }
    }

    fn of_both(&self) -> Self {
        match self {
            Self::At(_, name) => Self::Both(name.clone()),
            Self::Both(_) | Self::Between(..) => self.clone(),
        }
    }
}

/// Why something was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    about: About,
    because: Because,
}

impl Why {
    fn new(about: About, because: Because) -> Self {
        Self { about, because }
    }
}

/// No path can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Each pair of providers has a reason against it.
    #[error("no path between source and collector: {}", join(whys, ""))]
    NoPath {
        /// The reasons, each once.
        whys: Vec<Why>,
        /// What to do.
        remedy: String,
        /// Whether some pair was tried and failed, which can change without intervention.
        may_pass: bool,
    },
    /// A rule names a provider that does not exist.
    #[error("{list} names provider \"{seen}\", known: {}", known.join(", "))]
    UnknownProvider {
        /// `require`, `prefer` or `forbid`.
        list: &'static str,
        /// The name.
        seen: String,
        /// The known names.
        known: Vec<&'static str>,
    },
}

/// Joins reasons, each once, behind all that it is against: these with `not` before each.
fn join(whys: &[Why], not: &str) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Why { about, because } in whys {
        let about = format!("{not}{about}");
        match reasons.iter_mut().find(|(reason, _)| *reason == because.reason) {
            Some((_, all)) => all.push(about),
            None => reasons.push((&because.reason, vec![about])),
        }
    }
    let lines = reasons.iter().map(|(reason, all)| format!("{}: {reason}", all.join(", ")));
    lines.collect::<Vec<_>>().join("; ")
}

impl PathError {
    fn no_path(whys: Vec<Why>) -> Self {
        // A path that was tried, else the last, which works nearly everywhere.
        let tried = whys.iter().find(|why| why.because.may_pass);
        let remedy = tried.or(whys.last()).map(|why| why.because.remedy.clone());
        Self::NoPath { may_pass: tried.is_some(), remedy: remedy.unwrap_or_default(), whys }
    }

    /// Returns the refusal for the source.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::NoPath { remedy, may_pass, .. } => {
                let refusal = Refusal::new(RefusalCode::NoPath, self.to_string(), remedy);
                if *may_pass { refusal.retry_after_ms(TRY_AGAIN_MS) } else { refusal }
            }
            Self::UnknownProvider { .. } => Refusal::new(
                RefusalCode::Internal,
                self.to_string(),
                "correct the path rules of the collector",
            ),
        }
    }
}
