//! What is in force in a world, held against every capacity at every moment.
use super::world::{Force, World};
use std::collections::BTreeMap;

/// How much of a capacity rounding may take.
const ROUNDING: f64 = 1e-9;

impl World {
    /// Holds what changed against the capacities that it uses.
    pub(super) fn put_in_force(&mut self, host: u32) {
        let rates = self.hosts[host as usize].rates().to_vec();
        let sent: f64 = rates.iter().map(|rate| rate.1).sum();
        let capacity = self.population.members[host as usize].send;
        // A host holds its own sending by itself; a breach counts as one of a second.
        self.over += (sent - capacity * (1.0 + ROUNDING)).max(0.0);
        let mut old = std::mem::take(&mut self.force[host as usize]);
        let mut new = BTreeMap::new();
        for (number, rate) in rates {
            let known = old.remove(&number);
            let member = &self.population.members[host as usize];
            let ends = member.applications.get(&number).map(|known| &known.destinations[..]);
            let ends = ends.unwrap_or_default();
            let same = known.as_ref().is_some_and(|old| old.rate == rate && old.ends == ends);
            let now = Force { rate, ends: ends.to_vec() };
            if !same {
                known.iter().for_each(|old| self.use_completions(old, -1.0));
                self.use_completions(&now, 1.0);
            }
            new.insert(number, now);
        }
        old.values().for_each(|old| self.use_completions(old, -1.0));
        self.force[host as usize] = new;
    }

    pub(super) fn use_completions(&mut self, force: &Force, sign: f64) {
        for to in &force.ends {
            self.used[to.host as usize] += sign * force.rate * to.completions;
            self.touched.push(to.host);
        }
    }

    pub(super) fn hold_all(&mut self) {
        while let Some(host) = self.touched.pop() {
            self.hold_against(host);
        }
    }

    /// Counts what is above a capacity while it is.
    fn hold_against(&mut self, host: u32) {
        let granted = self.granted.get(&host).filter(|(_, until)| self.now < *until);
        let capacity = self.population.members[host as usize].completion;
        let capacity = granted.map_or(capacity, |(most, _)| capacity.max(*most));
        let over = self.used[host as usize] - capacity * (1.0 + ROUNDING);
        if let Some((since, much)) = self.over_since.remove(&host) {
            self.over += much * (self.now - since) as f64 * 1e-9;
        }
        if over > 0.0 {
            // Even for no time at all.
            self.over += over * 1e-12;
            self.over_since.insert(host, (self.now, over));
        }
    }
}
