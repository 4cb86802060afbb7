//! Rules of a user about the provider that a side uses.
use super::{Because, KnownProviders, PathError};
use crate::names::printable;

/// Rules of a user. Names are those of [`KnownProviders`]. The rules of a side are about the provider
/// that this side uses; the other side has rules of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathRules {
    /// Only these may be used. Empty: any.
    pub require: Vec<String>,
    /// These come first, in this order.
    pub prefer: Vec<String>,
    /// These may not be used.
    pub forbid: Vec<String>,
}

/// The side that a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that sends frames.
    Source,
    /// The one that has the ring.
    Collector,
}

impl Side {
    /// Returns its name, in text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Collector => "collector",
        }
    }
}

fn named(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| entry == name)
}

impl PathRules {
    /// Returns the known providers that these rules allow, in order of preference.
    pub fn order(&self, known: &KnownProviders) -> Vec<&'static str> {
        let mut names: Vec<_> =
            known.names().filter(|name| self.against(Side::Source, name).is_none()).collect();
        names.sort_by_key(|name| self.place(name));
        names
    }

    /// Returns the place among the preferred; the last for others.
    pub(super) fn place(&self, name: &str) -> usize {
        self.prefer.iter().position(|entry| entry == name).unwrap_or(usize::MAX)
    }

    /// Returns whether the rules name this provider as required or preferred.
    pub fn names(&self, name: &str) -> bool {
        named(&self.require, name) || named(&self.prefer, name)
    }

    /// Returns what the rules of this side have against a provider.
    pub fn against(&self, side: Side, name: &str) -> Option<Because> {
        let at = side.name();
        if named(&self.forbid, name) {
            return Because::new(
                format!("forbidden by the {at}'s rules"),
                format!("do not forbid {name} at the {at}"),
            );
        }
        if !self.require.is_empty() && !named(&self.require, name) {
            return Because::new(
                format!("the {at} requires {}", self.require.join(", ")),
                format!("require {name} too at the {at}"),
            );
        }
        None
    }

    /// Describes what the rules say in favour of a provider that was taken.
    pub(super) fn in_favour(&self, name: &str) -> &'static str {
        if named(&self.require, name) {
            ", required by the collector's rules"
        } else if named(&self.prefer, name) {
            ", preferred by the collector's rules"
        } else {
            ""
        }
    }

    /// Checks the names.
    ///
    /// # Errors
    /// [`PathError::UnknownProvider`] for the first name that no provider has.
    pub fn check(&self, known: &KnownProviders) -> Result<(), PathError> {
        let lists =
            [("require", &self.require), ("prefer", &self.prefer), ("forbid", &self.forbid)];
        for (list, names) in lists {
            for name in names {
                if known.get(name).is_none() {
                    let seen = printable(name, 32);
                    let known = known.names().collect();
                    return Err(PathError::UnknownProvider { list, seen, known });
                }
            }
        }
        Ok(())
    }
}
