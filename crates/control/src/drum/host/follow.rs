//! After a change: one exchange to tell and to hear of loads, then steps.

/// Changes that are followed at most, before so many steps.
const MOST_FOLLOWED: u32 = 3;
const LEAST_STEPS: u32 = 5;

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Tell, and move nothing.
    Offer,
    /// Begin from what was heard.
    Follow,
    /// Go on from the round before.
    Step,
}

/// Where a host stands after a change. However often there are changes, steps take place as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follow {
    stage: Stage,
    followed: u32,
    steps: u32,
}

impl Default for Follow {
    fn default() -> Self {
        Self { stage: Stage::Offer, followed: 0, steps: 0 }
    }
}

impl Follow {
    /// Something changed.
    pub(super) fn restart(&mut self) {
        if self.followed < MOST_FOLLOWED {
            self.stage = Stage::Offer;
        }
    }

    /// Whether no step took place since the change.
    pub(super) fn is_following(&self) -> bool {
        self.stage != Stage::Step || self.steps == 0
    }

    /// Returns what the next round is.
    pub(super) fn next(&mut self) -> Stage {
        let stage = self.stage;
        match stage {
            Stage::Offer => self.stage = Stage::Follow,
            Stage::Follow => {
                (self.stage, self.steps) = (Stage::Step, 0);
                self.followed += 1;
            }
            Stage::Step => {
                self.steps = self.steps.saturating_add(1);
                if self.steps == LEAST_STEPS {
                    self.followed = 0;
                }
            }
        }
        stage
    }

    /// As [`Self::next`], for who has heard of loads already when it hears of a change.
    pub(super) fn next_heard(&mut self) -> Stage {
        if self.stage == Stage::Offer {
            self.stage = Stage::Follow;
        }
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_often_something_changes_steps_take_place() {
        let mut follow = Follow::default();
        let stages: Vec<Stage> = (0..100)
            .map(|_| {
                follow.restart();
                follow.next_heard()
            })
            .collect();
        let steps = stages.iter().filter(|stage| **stage == Stage::Step).count();
        assert!(steps >= 60, "{stages:?}");
    }
}
