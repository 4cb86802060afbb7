//! The conformance suite between two network namespaces, over a virtual cable.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use catchment_conformance::{Bench, CASES, processes};
use catchment_netns::{Namespace, VethPair, with_privilege};
use catchment_provider_roce::{RoceContext, RoceProvider};
use catchment_verbs::{Context, DeviceInfo, Provider, VerbsError};
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, iter};

const DEVICE: &str = "either end";
/// Paths of the namespaces and the IP version, for the second process of a case.
const ENDS: &str = "CATCHMENT_TEST_ENDS";

/// Opens a device at the one end, then at the other, and so on.
struct Ends {
    roce: RoceProvider,
    ends: [(Namespace, IpAddr); 2],
    opened: AtomicUsize,
}

impl Provider for Ends {
    fn name(&self) -> &'static str {
        "roce"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        Ok(vec![DeviceInfo {
            name: DEVICE.into(),
            description: "both ends of a virtual cable".into(),
        }])
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        if device != DEVICE {
            return Err(VerbsError::NoDevice { name: device.into(), known: vec![DEVICE.into()] });
        }
        let at = self.opened.fetch_add(1, Ordering::Relaxed) % 2;
        let (namespace, address) = &self.ends[at];
        let open = || self.roce.open_device(&address.to_string());
        let context: Result<Arc<RoceContext>, _> =
            namespace.run(open).map_err(|error| VerbsError::Invalid(error.to_string()))?;
        Ok(context?)
    }
}

fn bench(paths: [&str; 2], ipv6: bool, first: usize) -> Bench {
    let addresses = if ipv6 {
        [VethPair::LEFT_V6, VethPair::RIGHT_V6]
    } else {
        [VethPair::LEFT_V4, VethPair::RIGHT_V4]
    };
    let ends = iter::zip(paths, addresses)
        .map(|(path, address)| (Namespace::open(path).unwrap(), address))
        .collect::<Vec<_>>();
    let provider = Ends {
        roce: RoceProvider::new(common::any_port()),
        ends: ends.try_into().ok().unwrap(),
        opened: AtomicUsize::new(first),
    };
    Bench::new(Arc::new(provider), DEVICE)
}

/// The second process of a case; it begins at the other end.
#[test]
fn conformance_child() {
    let Ok(ends) = env::var(ENDS) else { return };
    let words: Vec<&str> = ends.split(' ').collect();
    processes::child(&bench([words[0], words[1]], words[2] == "6", 1));
}

/// One case, in a process of its own, which knows the namespaces from its environment.
#[test]
fn one_case() {
    let (Ok(ends), Ok(name)) = (env::var(ENDS), env::var("CATCHMENT_TEST_CASE")) else { return };
    let words: Vec<&str> = ends.split(' ').collect();
    let (_, case) = CASES.iter().find(|(case, _)| *case == name).unwrap();
    case(&bench([words[0], words[1]], words[2] == "6", 0));
}

fn every_case(version: &str) {
    let pair = VethPair::new(9000).unwrap();
    let ends = format!("{} {} {version}", pair.left.path(), pair.right.path());
    assert!(CASES.len() > 50);
    for (name, _) in CASES {
        let done = Command::new(env::current_exe().unwrap())
            .args(["--exact", "one_case", "--nocapture"])
            .env(ENDS, &ends)
            .env("CATCHMENT_TEST_CASE", name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name}:\n{text}");
    }
}

#[test]
fn the_suite_passes_between_two_namespaces_over_ipv4() {
    with_privilege("the_suite_passes_between_two_namespaces_over_ipv4", || every_case("4"));
}

#[test]
fn the_suite_passes_between_two_namespaces_over_ipv6() {
    with_privilege("the_suite_passes_between_two_namespaces_over_ipv6", || every_case("6"));
}
