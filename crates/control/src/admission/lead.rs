//! How far a device is ahead of the others that want something: what it was granted beyond the [level](super::level) of
//! a link. Where all is granted that is wanted this says nothing; where more is wanted than there is, it tells who has had
//! more of it.
use super::DeviceId;
use super::controller::Controller;
use super::transfer::Key;

impl Controller {
    /// Notes that a device begins to want something of its links, or no longer does.
    pub(super) fn count_wanting(&mut self, id: DeviceId, wants: bool) {
        let device = self.devices.known(id);
        for link in &self.paths[usize::from(device.path.0)].links {
            let link = &mut self.links[*link];
            link.level.advance(self.now_ns, link.pool.usable_bps());
            link.level.count(device.weight, wants);
        }
    }

    /// Notes that a device was granted bytes, or gives some back that it was granted.
    pub(super) fn note_served(&mut self, id: DeviceId, bytes: u64, back: bool) {
        let device = self.devices.known(id);
        let bits = bytes as f64 * 8.0 / f64::from(device.weight);
        let path = usize::from(device.path.0);
        for place in 0..self.paths[path].links.len() {
            let link = &mut self.links[self.paths[path].links[place]];
            link.level.advance(self.now_ns, link.pool.usable_bps());
            let before = self.devices.lead(id, place);
            let mark = if back { before - bits } else { link.level.raise(before, bits) };
            self.devices.set_lead(id, place, mark);
        }
    }

    /// Returns whether a transfer that waits gives way to a late one: its device is so far ahead of the late one's, by
    /// what both were granted of a link.
    pub(super) fn must_give_way(&self, at: u32) -> bool {
        let Some(shares) = self.config.rules.shares.filter(|_| self.config.rules.demotion) else {
            return false;
        };
        let transfer = &self.transfers[at];
        let id = transfer.id.device;
        let path = &self.paths[usize::from(self.path_of(id).0)];
        path.links.iter().enumerate().any(|(place, link)| {
            let ahead_ns = self.ahead_ns(id, place);
            ahead_ns > shares.device_ahead_ns
                && self.first_late(*link, transfer.key).is_some_and(|(other, place)| {
                    ahead_ns > self.ahead_ns(other, place).saturating_add(shares.device_ahead_ns)
                })
        })
    }

    /// Returns how long a link takes for what a device was granted beyond its part of it.
    fn ahead_ns(&self, id: DeviceId, place: usize) -> u64 {
        let device = self.devices.known(id);
        let link = &self.links[self.paths[usize::from(device.path.0)].links[place]];
        let capacity_bps = link.pool.usable_bps().max(1);
        let bits = link.level.below(self.devices.lead(id, place), self.now_ns, capacity_bps);
        (bits * f64::from(device.weight) / capacity_bps as f64 * 1e9) as u64
    }

    /// Returns the device of the first transfer that goes behind because it is late, of no lower class than that of a
    /// key, and the place of the link on its path.
    fn first_late(&self, link: usize, key: Key) -> Option<(DeviceId, usize)> {
        let paths = self.parts[self.links[link].part].paths.iter();
        let late = paths.filter_map(|path| {
            let place = self.paths[*path].links.iter().position(|one| *one == link)?;
            let mut cursor = self.queues.from(*path, Key::LATE);
            let (late, at) = self.queues.next(*path, &mut cursor)?;
            Some((late, self.transfers[at].id.device, place))
        });
        let (late, device, place) = late.min_by_key(|(late, ..)| *late)?;
        (late.class() <= key.class()).then_some((device, place))
    }
}
