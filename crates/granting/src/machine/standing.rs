//! How a source stands with its controller.
use super::{Fallback, Machine, Moving, RETRY_MOST};
use crate::register::RETRY_LEAST;
use catchment_control::admission::source_side::LocalId;
use catchment_observe::{Granting, Standing};
use std::time::{Duration, Instant};

impl Machine {
    /// Returns how many blocks may not go now, and whether others go.
    fn blocks(&self) -> (usize, bool) {
        let goes = |(id, moving): &(&LocalId, &Moving)| {
            !moving.parts.is_empty() || self.parts.iter().any(|(part, _)| part == *id)
        };
        let refused = self.refused.iter().map(|(_, moving)| moving.blocks.len());
        let waiting = self.moving.iter().filter(|one| !goes(one));
        let waiting = waiting.map(|(_, moving)| moving.blocks.len());
        (waiting.chain(refused).sum(), self.moving.iter().any(|one| goes(&one)))
    }

    pub(super) fn say_standing(&mut self) {
        let (waiting, goes) = self.blocks();
        let can = self.fallback == Fallback::SafeRate && self.safe_rate_bps > 0;
        let goes_on = self.side.goes_on();
        let now = match (self.term, self.side.is_alone() || goes_on) {
            (_, true) if self.fallback == Fallback::Free => Standing::Free,
            (0, _) => Standing::Unregistered,
            (_, false) if waiting > 0 && !goes => Standing::Waiting,
            (_, false) => Standing::Granted,
            (_, true) if can => Standing::SafeRate,
            (_, true) => Standing::Stopped,
        };
        let is_alone = |of| matches!(of, Standing::SafeRate | Standing::Stopped | Standing::Free);
        // Who goes on has just registered.
        if is_alone(now) && !goes_on {
            // A hint may be lost, or the way to the controller another one by now.
            let pause = match (self.wish.has_others(), self.unheard) {
                (true, _) => Duration::ZERO,
                (false, 0) => RETRY_MOST,
                (false, _) => RETRY_LEAST,
            };
            self.register_at.get_or_insert_with(|| Instant::now() + pause);
        }
        self.told.stands(Granting {
            standing: now,
            blocks_waiting: waiting as u64,
            grants: self.side.counts().grants,
            safe_rate_bps: if can { self.safe_rate_bps } else { 0 },
        });
        let before = std::mem::replace(&mut self.said, now);
        if before == now {
            return;
        }
        let (controller, rate_bps) = (self.wish.address(), self.safe_rate_bps);
        match now {
            Standing::SafeRate => {
                tracing::warn!(%controller, rate_bps, "no controller answers: sending at the safe rate");
            }
            Standing::Stopped => tracing::warn!(%controller, "no controller answers: frames wait"),
            Standing::Free => {
                tracing::warn!(%controller, "no controller answers: sending without leave");
            }
            Standing::Granted | Standing::Waiting if is_alone(before) => {
                tracing::warn!(%controller, "the controller answers again");
            }
            Standing::Granted | Standing::Waiting | Standing::Unregistered => {}
        }
    }
}
