//! Other settings, while the controller grants.
use super::{GivingUp, Grants};
use crate::config::Settings;
use catchment_control::admission::controller_side::{ControllerSide, Input};
use catchment_control::admission::{Config, LinkId};

impl Grants {
    /// Lets other settings hold: at once, or, where links, paths or classes are others, as soon as most of what was granted by
    /// those of before is over. Until then nothing is granted.
    pub(super) fn reload(&mut self, new: Box<Settings>) {
        match &mut self.giving_up {
            Some(GivingUp::End(_)) => {}
            Some(GivingUp::Renewal(settings, _)) => *settings = new,
            None if self.settings.is_network_other(&new) => {
                self.side.handle(self.now_ns(), Input::GiveUp);
                self.giving_up = Some(GivingUp::Renewal(new, Vec::new()));
            }
            None => self.adjust(*new),
        }
    }

    /// Takes over what the machine takes while it grants.
    fn adjust(&mut self, new: Settings) {
        let now_ns = self.now_ns();
        let Config { classes, rules, .. } = new.admission();
        for (link, (old, new)) in (0..).zip(self.settings.links.iter().zip(&new.links)) {
            if old.capacity_bps != new.capacity_bps {
                let (link, capacity_bps) = (LinkId(link), new.capacity_bps);
                self.side.handle(now_ns, Input::Capacity { link, capacity_bps });
            }
        }
        if self.settings.classes != new.classes {
            self.side.handle(now_ns, Input::Classes(classes));
        }
        if self.settings.policy != new.policy {
            self.side.handle(now_ns, Input::Rules(rules));
        }
        self.settings = new;
    }

    /// Begins as a controller that takes over from itself, in the same term: it knows no source, so that a hint lets each
    /// register again, and grants nothing before what was granted is over, in `left_ns`.
    pub(super) fn begin_anew(&mut self, new: Settings, left_ns: Option<u64>) {
        let now_ns = self.now_ns();
        // What it has granted is known, or it recovers when it leads.
        let config = Config { recovering: false, ..new.admission() };
        let side = match ControllerSide::new(now_ns, 0, config) {
            Ok(side) => side,
            Err(error) => return tracing::error!(%error, "settings that were checked are wrong"),
        };
        let stands_by = self.side.stands_by();
        (self.side, self.settings) = (side, new);
        self.known.clear();
        if !stands_by {
            self.side.handle(now_ns, Input::Lead { term: self.term, left_ns });
        }
        tracing::info!("other links, paths or classes hold: sources register again");
    }
}
