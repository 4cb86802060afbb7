//! Settings that change while the controller runs.
use crate::config::Settings;
use crate::grants::Command;
use crate::serve::Context;
use catchment_control::admission::ConfigError;
use std::sync::PoisonError;

/// A link that carries more or less than before.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NewCapacity {
    /// Its name.
    pub link: String,
    /// What it carried: bits a second.
    pub before_bps: u64,
    /// What it carries now: bits a second.
    pub capacity_bps: u64,
}

/// What a reload has changed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reloaded {
    /// Links with another capacity.
    pub capacities: Vec<NewCapacity>,
    /// Whether another policy holds.
    pub policy: bool,
    /// Whether classes are served otherwise.
    pub classes: bool,
    /// Whether who may do what has changed; it holds for registrations from now on.
    pub allow: bool,
    /// Whether links, paths or classes are others: sources register again, and have windows by these once those of before
    /// are over, within a lease.
    pub network: bool,
}

/// Settings that cannot be taken over while the controller runs. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The first that differs, of what stays as it was at the start.
    #[error(
        "{0} cannot change while the controller runs; nothing has changed: restart it, or leave it as it was"
    )]
    Fixed(&'static str),
    /// No link has this name.
    #[error("no link is called {0:?}; nothing has changed")]
    NoLink(String),
    /// They contradict themselves.
    #[error("{0}; nothing has changed")]
    Settings(#[from] ConfigError),
}

impl Context {
    /// Takes over other settings; what is granted stands.
    pub(crate) fn reload(&self, new: Settings) -> Result<Reloaded, ReloadError> {
        self.change(|_| Ok(new))
    }

    /// Says what a link carries; `None` if there is none of the name.
    pub(crate) fn set_capacity(&self, link: &str, capacity_bps: u64) -> Option<NewCapacity> {
        let changed = self.change(|settings| {
            let mut new = settings.clone();
            let known = new.links.iter_mut().find(|known| known.name == link);
            known.ok_or_else(|| ReloadError::NoLink(link.to_owned()))?.capacity_bps = capacity_bps;
            Ok(new)
        });
        let same = NewCapacity { link: link.to_owned(), before_bps: capacity_bps, capacity_bps };
        changed.ok().map(|reloaded| reloaded.capacities.into_iter().next().unwrap_or(same))
    }

    /// Changes settings one after the other, whoever asks for it.
    fn change(
        &self,
        new: impl FnOnce(&Settings) -> Result<Settings, ReloadError>,
    ) -> Result<Reloaded, ReloadError> {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = new(&settings)?;
        new.listen = settings.listen.clone();
        if let Some(what) = settings.fixed_difference(&new) {
            return Err(ReloadError::Fixed(what));
        }
        new.admission().check()?;
        let before = |name: &str| settings.links.iter().find(|link| link.name == name);
        let capacities = new.links.iter().filter_map(|link| {
            let (before_bps, capacity_bps) = (before(&link.name)?.capacity_bps, link.capacity_bps);
            let change = NewCapacity { link: link.name.clone(), before_bps, capacity_bps };
            (before_bps != capacity_bps).then_some(change)
        });
        let reloaded = Reloaded {
            capacities: capacities.collect(),
            policy: settings.policy != new.policy,
            classes: settings.classes != new.classes,
            allow: settings.allow != new.allow,
            network: settings.is_network_other(&new),
        };
        // While the lock is held: who registers by the new settings is registered after this.
        self.grants.tell(Command::Reload(Box::new(new.clone())));
        *settings = new;
        Ok(reloaded)
    }
}
