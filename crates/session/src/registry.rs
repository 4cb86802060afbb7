//! Which session owns which device. Pure, without a clock.
use crate::identity::Instance;
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
    instance: Instance,
    attempt: u64,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Assigns the devices of `hello` to `session`, a number that the caller never reuses. The source
    /// process must have proven that the Hello is its own.
    ///
    /// A device of the same source process (`instance`) moves over to its later attempt: its connection
    /// broke and the collector has not noticed yet. Returns the sessions that lost devices, each once;
    /// revoke them with code `superseded`.
    ///
    /// # Errors
    /// Another source process owns one of the devices, or a later attempt of the same process, which
    /// has abandoned this one. Nothing has changed then.
    pub fn claim(&mut self, session: u64, hello: &Hello) -> Result<Vec<u64>, Refusal> {
        let superseded = self.in_the_way(session, hello)?;
        let owner = Owner { session, instance: hello.instance, attempt: hello.attempt };
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
            if owner.session == session {
                continue;
            }
            if owner.attempt >= hello.attempt {
                return Err(superseded_refusal());
            }
            if !superseded.contains(&owner.session) {
                superseded.push(owner.session);
            }
        }
        Ok(superseded)
    }

    /// Returns the session of another source process that has a device of `hello`.
    pub fn other_owner(&self, hello: &Hello) -> Option<u64> {
        let mut owners = hello.devices.iter().filter_map(|device| self.owners.get(&device.name));
        owners.find(|owner| owner.instance != hello.instance).map(|owner| owner.session)
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
        "a later attempt of the same source process has its devices",
        "none needed; the source retries automatically",
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
    use crate::identity::Hex;
    use crate::samples::hello;

    fn hello_of(instance: u8, attempt: u64, names: &[&str]) -> Hello {
        let template = hello();
        let device = |name: &&str| crate::message::Device {
            name: name.parse().unwrap(),
            ..template.devices[0].clone()
        };
        let instance = Instance(Hex([instance; 32]));
        Hello { instance, attempt, devices: names.iter().map(device).collect(), ..template.clone() }
    }

    #[test]
    fn the_second_live_source_of_a_device_is_refused_and_nothing_changes() {
        let mut registry = Registry::new();
        assert_eq!(registry.claim(1, &hello_of(7, 1, &["a", "b"])), Ok(vec![]));
        let refusal = registry.claim(2, &hello_of(8, 2, &["c", "b"])).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::DeviceInUse);
        assert!(refusal.reason.contains("device b"), "{refusal}");
        assert_eq!(registry.owner(&"c".parse().unwrap()), None);
        registry.release(1);
        assert_eq!(registry.claim(2, &hello_of(8, 2, &["c", "b"])), Ok(vec![]));
    }

    #[test]
    fn a_reconnect_of_the_same_process_takes_its_devices_over() {
        let mut registry = Registry::new();
        registry.claim(1, &hello_of(7, 1, &["a", "b"])).unwrap();
        assert_eq!(registry.claim(2, &hello_of(7, 2, &["a", "b"])), Ok(vec![1]));
        registry.release(1);
        assert_eq!(registry.owner(&"a".parse().unwrap()), Some(2));
    }

    /// An attempt that the source gave up must not take the devices back, however late it is read.
    #[test]
    fn an_attempt_that_was_overtaken_gets_nothing() {
        let mut registry = Registry::new();
        registry.claim(1, &hello_of(7, 5, &["a"])).unwrap();
        for attempt in [4, 5] {
            let refusal = registry.claim(2, &hello_of(7, attempt, &["a"])).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::Superseded);
            assert!(refusal.retry_after_ms.is_some(), "{refusal}");
        }
        assert_eq!(registry.owner(&"a".parse().unwrap()), Some(1));
        assert_eq!(registry.claim(2, &hello_of(7, 6, &["a"])), Ok(vec![1]));
    }
}
