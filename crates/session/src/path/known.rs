//! The providers of a program, for the choice of a path.
use catchment_verbs::{ProviderInfo, Wire};
use std::sync::Arc;

/// The providers of a program, the best first. The choice works on their wires and their order, and
/// on no name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownProviders(Arc<[ProviderInfo]>);

impl KnownProviders {
    /// Sorts providers by rank.
    pub fn new(providers: impl IntoIterator<Item = ProviderInfo>) -> Self {
        let mut providers: Vec<_> = providers.into_iter().collect();
        providers.sort_by_key(|provider| provider.rank);
        Self(providers.into())
    }

    /// Returns the providers, the best first.
    pub fn iter(&self) -> impl Iterator<Item = &ProviderInfo> {
        self.0.iter()
    }

    /// Returns their names, the best first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|provider| provider.name)
    }

    /// Returns the one with this name.
    pub fn get(&self, name: &str) -> Option<&ProviderInfo> {
        self.0.iter().find(|provider| provider.name == name)
    }

    /// Returns what the provider with this name speaks; `None` for an unknown one.
    pub fn wire(&self, name: &str) -> Option<Wire> {
        self.get(name).map(|provider| provider.wire)
    }

    /// Returns whether the provider with this name is an RNIC's.
    pub fn is_hardware(&self, name: &str) -> bool {
        self.get(name).is_some_and(|provider| provider.is_hardware)
    }

    /// Returns the place in the order of ranks.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.names().position(|known| known == name)
    }
}
