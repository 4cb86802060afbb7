//! The registry: which providers a program has.
use super::{Ends, ShmOptions};
use catchment_observe::RoceSnapshot;
use catchment_provider_ibverbs::IbverbsOptions;
use catchment_provider_roce::RoceOptions;
use catchment_session::path::{KnownProviders, PathRules};
use catchment_verbs::{Context, ProviderInfo, Wire};
use std::fmt;
use std::sync::Arc;

/// Why packets cannot be authenticated without certificates.
pub const KEYS_IN_CLEAR: &str = "the keys of authenticated packets go over the session, which is not \
     encrypted: give certificates (--cert, --key, --ca; `catchment cert` makes them)";

/// A provider as sources and collectors use it: it finds the device that reaches a peer.
pub trait PathProvider: Send + Sync {
    /// What the choice of a path knows of it.
    fn info(&self) -> ProviderInfo;

    /// Opens the device that reaches the peer of a control connection with these ends, or returns
    /// the one that is open.
    ///
    /// # Errors
    /// Why there is none, as sent to the peer.
    fn open_for(&self, ends: Ends) -> Result<Found, String>;

    /// Whether [`PathProvider::open_for`] may succeed again without a change of settings, such as
    /// when a cable is plugged in.
    fn may_return(&self, _: Ends) -> bool {
        false
    }

    /// Takes the events of its devices, logs those of interest, and returns whether there were any:
    /// then some queue pair may have failed. Called now and then.
    fn take_events(&self) -> bool;

    /// Returns what its devices have counted, where they count packets.
    fn counters(&self) -> Vec<RoceSnapshot> {
        Vec::new()
    }
}

/// Drops the events of a software device, whose queue pairs say in the log why they fail. Returns
/// whether there were any.
pub(super) fn drain_events(context: &dyn Context) -> bool {
    std::iter::from_fn(|| context.async_event()).count() > 0
}

/// A device that reaches a peer.
pub struct Found {
    /// Its name, where people know it by one.
    pub device: Option<String>,
    /// The open device.
    pub context: Arc<dyn Context>,
}

/// Settings of one provider, from which it is made.
pub trait ProviderOptions: fmt::Debug + Send + Sync {
    /// What the choice of a path knows of the provider.
    fn info(&self) -> ProviderInfo;

    /// Makes the provider. Devices that depend on the peer are opened later.
    fn provider(&self) -> Arc<dyn PathProvider>;

    /// Whether its packets are authenticated.
    fn authenticates(&self) -> bool {
        false
    }
}

/// The providers that a source or collector may use, their settings, and the user's rules.
#[derive(Debug, Clone)]
pub struct ProviderSet {
    /// Which of them may be used.
    pub rules: PathRules,
    options: Vec<Arc<dyn ProviderOptions>>,
}

impl Default for ProviderSet {
    /// Returns all providers of this library with their usual settings. A new provider is one line
    /// more here.
    fn default() -> Self {
        Self {
            rules: PathRules::default(),
            options: vec![
                Arc::new(ShmOptions),
                Arc::new(IbverbsOptions::default()),
                Arc::new(RoceOptions::default()),
            ],
        }
    }
}

impl ProviderSet {
    /// Sets the options of a provider; adds the provider if it is not in the set.
    #[must_use]
    pub fn with(mut self, options: impl ProviderOptions + 'static) -> Self {
        self.set(options);
        self
    }

    /// As [`ProviderSet::with`], in place.
    pub fn set(&mut self, options: impl ProviderOptions + 'static) {
        let name = options.info().name;
        self.options.retain(|other| other.info().name != name);
        self.options.push(Arc::new(options));
    }

    /// Obeys these rules.
    #[must_use]
    pub fn rules(self, rules: PathRules) -> Self {
        Self { rules, ..self }
    }

    /// Returns what the choice of a path knows of them.
    pub fn known(&self) -> KnownProviders {
        KnownProviders::new(self.options.iter().map(|options| options.info()))
    }

    /// Returns whether packets are authenticated: those that are not are out of the question then.
    pub fn authenticates(&self) -> bool {
        self.options.iter().any(|options| options.authenticates())
    }

    /// Makes the providers, in the order of their ranks.
    pub(super) fn providers(&self) -> Vec<Arc<dyn PathProvider>> {
        let authenticates = self.authenticates();
        let may = |options: &&Arc<dyn ProviderOptions>| {
            let has_packets = options.info().wire == Wire::RoceV2;
            !authenticates || !has_packets || options.authenticates()
        };
        let mut options: Vec<_> = self.options.iter().filter(may).collect();
        options.sort_by_key(|options| options.info().rank);
        options.iter().map(|options| options.provider()).collect()
    }
}
