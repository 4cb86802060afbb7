//! Settings that change while the controller runs.
use crate::config::Settings;
use crate::grants::Command;
use crate::serve::Context;
use catchment_control::admission::LinkId;
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
}

/// Settings that cannot be taken over while the controller runs. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} cannot change while the controller runs; nothing has changed: restart it, or leave it as it was"
)]
pub struct ReloadError {
    /// The first that differs.
    pub what: &'static str,
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
            known.ok_or(ReloadError { what: "the links" })?.capacity_bps = capacity_bps;
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
            return Err(ReloadError { what });
        }
        let classes = settings.classes != new.classes;
        let (allow, policy) = (settings.allow != new.allow, settings.policy != new.policy);
        let mut reloaded = Reloaded { capacities: Vec::new(), policy, classes, allow };
        for (at, (old, new)) in (0..).zip(settings.links.iter().zip(&new.links)) {
            if old.capacity_bps != new.capacity_bps {
                self.grants.tell(Command::Capacity(LinkId(at), new.capacity_bps));
                reloaded.capacities.push(NewCapacity {
                    link: new.name.clone(),
                    before_bps: old.capacity_bps,
                    capacity_bps: new.capacity_bps,
                });
            }
        }
        if classes {
            self.grants.tell(Command::Classes(new.admission().classes));
        }
        if policy {
            self.grants.tell(Command::Rules(new.admission().rules));
        }
        *settings = new;
        Ok(reloaded)
    }
}
