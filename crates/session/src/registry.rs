//! Which session owns which device. Pure, without a clock.
use crate::message::Hello;
use crate::names::DeviceName;
use crate::refusal::{Refusal, RefusalCode};
use std::collections::BTreeMap;

/// The devices of all sessions of one collector.
#[derive(Debug, Default)]
pub struct Registry {
    owners: BTreeMap<DeviceName, Owner>,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    session: u64,
    instance: u64,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Assigns the devices of `hello` to `session`, a number that the caller never reuses; later
    /// connections have higher ones.
    ///
    /// A device of the same source process (`instance`) moves over: its connection broke and the
    /// collector has not noticed yet. Returns the sessions that lost devices, each once; revoke them
    /// with code `superseded`.
    ///
    /// # Errors
    /// Another source process owns one of the devices, or a later session of the same process, which
    /// has abandoned this one. Nothing has changed then.
    pub fn claim(&mut self, session: u64, hello: &Hello) -> Result<Vec<u64>, Refusal> {
        let superseded = self.in_the_way(session, hello)?;
        let owner = Owner { session, instance: hello.instance };
        for device in &hello.devices {
            self.owners.insert(device.name.clone(), owner);
        }
        Ok(superseded)
    }

    /// Returns the other sessions of the same source process with devices of `hello`, each once.
    /// Changes nothing: a caller can wait for their end before it claims.
    ///
    /// # Errors
    /// As for [`Registry::claim`].
    pub fn in_the_way(&self, session: u64, hello: &Hello) -> Result<Vec<u64>, Refusal> {
        let mut superseded = Vec::new();
        for device in &hello.devices {
            let Some(owner) = self.owners.get(&device.name) else { continue };
            if owner.instance != hello.instance {
                return Err(in_use(&device.name));
            }
            if owner.session > session {
                return Err(superseded_refusal());
            }
            if owner.session != session && !superseded.contains(&owner.session) {
                superseded.push(owner.session);
            }
        }
        Ok(superseded)
    }

    /// Frees the devices that `session` still owns.
    pub fn release(&mut self, session: u64) {
        self.owners.retain(|_, owner| owner.session != session);
    }

    /// Returns the session that owns `device`.
    pub fn owner(&self, device: &DeviceName) -> Option<u64> {
        self.owners.get(device).map(|owner| owner.session)
    }
}

/// Returns the refusal for a session whose source has opened a newer one.
pub fn superseded_refusal() -> Refusal {
    Refusal::new(
        RefusalCode::Superseded,
        "a newer session of the same source has its devices",
        "nothing: the newer session goes on",
    )
}

fn in_use(device: &DeviceName) -> Refusal {
    Refusal::new(
        RefusalCode::DeviceInUse,
        format!("another live source sends device {device}"),
        "stop that source, or give this device another name",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::hello;

    fn hello_of(instance: u64, names: &[&str]) -> Hello {
        let template = hello();
        let device = |name: &&str| crate::message::Device {
            name: name.parse().unwrap(),
            ..template.devices[0].clone()
        };
        Hello { instance, devices: names.iter().map(device).collect(), ..template.clone() }
    }

    #[test]
    fn the_second_live_source_of_a_device_is_refused_and_nothing_changes() {
        let mut registry = Registry::new();
        assert_eq!(registry.claim(1, &hello_of(7, &["a", "b"])), Ok(vec![]));
        let refusal = registry.claim(2, &hello_of(8, &["c", "b"])).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::DeviceInUse);
        assert!(refusal.reason.contains("device b"), "{refusal}");
        assert_eq!(registry.owner(&"c".parse().unwrap()), None);
        registry.release(1);
        assert_eq!(registry.claim(2, &hello_of(8, &["c", "b"])), Ok(vec![]));
    }

    #[test]
    fn a_reconnect_of_the_same_process_takes_its_devices_over() {
        let mut registry = Registry::new();
        registry.claim(1, &hello_of(7, &["a", "b"])).unwrap();
        assert_eq!(registry.claim(2, &hello_of(7, &["a", "b"])), Ok(vec![1]));
        registry.release(1);
        assert_eq!(registry.owner(&"a".parse().unwrap()), Some(2));
    }

    /// An older connection whose Hello was held up must not take the devices back.
    #[test]
    fn a_session_that_was_overtaken_gets_nothing() {
        let mut registry = Registry::new();
        registry.claim(2, &hello_of(7, &["a"])).unwrap();
        let refusal = registry.claim(1, &hello_of(7, &["a"])).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Superseded);
        assert_eq!(registry.owner(&"a".parse().unwrap()), Some(2));
    }
}
