//! The conformance suite on an RDMA device: the one that `CATCHMENT_IBVERBS_DEVICE` names, else the
//! first that can be opened. On a machine without any, nothing is run, and a line reports it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
use catchment_conformance::{Bench, CASES, Deviation, processes};
use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_verbs::Provider as _;
use libtest_mimic::{Arguments, Trial};
use std::sync::Arc;

const DEVICE: &str = "CATCHMENT_IBVERBS_DEVICE";
/// What a case calls the test in which its second process works.
const CHILD: &str = "conformance_child";

fn provider() -> IbverbsProvider {
    IbverbsProvider::new(IbverbsOptions::default())
}

fn device() -> Result<String, String> {
    if let Ok(device) = std::env::var(DEVICE) {
        return Ok(device);
    }
    let provider = provider();
    let mut reasons = Vec::new();
    for device in provider.devices().map_err(|error| error.to_string())? {
        match provider.open(&device.name) {
            Ok(_) => return Ok(device.name),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(reasons.join("; "))
}

/// Where the device is known to deviate from the standard.
fn deviations(device: &str) -> Vec<Deviation> {
    let name = device.split('/').next();
    let is_rxe = provider().report().devices.unwrap_or_default().iter().any(|report| {
        Some(report.name.as_str()) == name && report.driver.as_deref() == Some("rdma_rxe")
    });
    if is_rxe {
        vec![
            Deviation::LongMessageBreaksTheQueuePair,
            Deviation::WrongKeyBreaksTheQueuePair,
            Deviation::InvalidationIsAcknowledgedFirst,
        ]
    } else {
        Vec::new()
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let device = match device() {
        Ok(device) => device,
        Err(reason) => {
            eprintln!(
                "\n!!! NOTHING WAS RUN: the conformance suite of ibverbs needs an RDMA device, and \
                 none can be opened here: {reason}\n\
                 !!! `cargo xtask lab verbs` runs it in a virtual machine that has one\n"
            );
            libtest_mimic::run(&arguments, Vec::new()).exit();
        }
    };
    let deviations = deviations(&device);
    let bench = move || Bench {
        deviations: deviations.clone(),
        ..Bench::new(Arc::new(provider()), &device)
    };
    if arguments.filter.as_deref() == Some(CHILD) {
        processes::child(&bench());
        return;
    }
    let trials = CASES.iter().map(|(name, case)| {
        let bench = bench.clone();
        Trial::test(name.replace(' ', ""), move || {
            case(&bench());
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
