//! What became of what the links have sent: the controller finds a link that carries less than it was told by it.
use super::Machine;
use catchment_control::admission::source_side::Input;
use catchment_verbs::Delivery;

/// Totals over all links since the start.
#[derive(Default)]
pub(super) struct Reports {
    /// Of links that have ended.
    before: Delivery,
    /// Of this one.
    now: Delivery,
    due_ns: u64,
    /// The provider of this link does not see losses.
    is_blind: bool,
}

impl Reports {
    /// Goes on with another link.
    pub(super) fn end(&mut self) {
        self.before = self.sum();
        self.now = Delivery::default();
        self.is_blind = false;
    }

    const fn sum(&self) -> Delivery {
        let (before, now) = (self.before, self.now);
        Delivery {
            acknowledged_bytes: before.acknowledged_bytes.saturating_add(now.acknowledged_bytes),
            resent_bytes: before.resent_bytes.saturating_add(now.resent_bytes),
        }
    }

    /// Takes what the provider counts: what it takes back of it was told.
    fn note(&mut self, seen: Delivery) {
        let Delivery { acknowledged_bytes, resent_bytes } = seen;
        self.now.acknowledged_bytes = self.now.acknowledged_bytes.max(acknowledged_bytes);
        self.now.resent_bytes = self.now.resent_bytes.max(resent_bytes);
    }
}

impl Machine {
    /// Tells the controller's end what has arrived and what was lost, now and then while something goes.
    pub(super) fn report_delivery(&mut self) {
        let now_ns = self.now_ns();
        let Some(link) = &self.link else { return };
        if self.delivery.is_blind || now_ns < self.delivery.due_ns {
            return;
        }
        let Some(seen) = link.sender.delivery() else {
            self.delivery.is_blind = true;
            return;
        };
        self.delivery.note(seen);
        self.delivery.due_ns = now_ns.saturating_add(self.side.delivery_pause_ns());
        let Delivery { acknowledged_bytes, resent_bytes } = self.delivery.sum();
        self.tell(Input::Delivered { acknowledged_bytes, resent_bytes });
    }

    /// Returns when that is due again.
    pub(super) fn delivery_due_ns(&self) -> Option<u64> {
        let goes = self.link.is_some() && !self.delivery.is_blind && !self.moving.is_empty();
        goes.then_some(self.delivery.due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_over_links_and_never_back() {
        let seen = |acknowledged_bytes, resent_bytes| Delivery { acknowledged_bytes, resent_bytes };
        let mut reports = Reports::default();
        reports.note(seen(100, 8));
        // One that counted as lost had arrived.
        reports.note(seen(120, 4));
        assert_eq!(reports.sum(), seen(120, 8));
        reports.end();
        reports.note(seen(7, 1));
        assert_eq!(reports.sum(), seen(127, 9));
    }
}
