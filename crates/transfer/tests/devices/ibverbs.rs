//! RDMA devices, which `CATCHMENT_IBVERBS_DEVICE` names: one for all ends, or two with a comma
//! between, which the ends take in turn.
use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_verbs::{Context, Provider};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static OPENED: AtomicUsize = AtomicUsize::new(0);

/// A device of its own for every end.
pub(crate) fn context() -> Arc<dyn Context> {
    device(OPENED.fetch_add(1, Ordering::Relaxed))
}

/// Devices of two ends that can reach each other: the same two in every process.
pub(crate) fn two_devices() -> [Arc<dyn Context>; 2] {
    [device(0), device(1)]
}

fn device(number: usize) -> Arc<dyn Context> {
    let names = std::env::var("CATCHMENT_IBVERBS_DEVICE");
    let names = names.expect("CATCHMENT_IBVERBS_DEVICE names one RDMA device or two");
    let names: Vec<&str> = names.split(',').collect();
    IbverbsProvider::new(IbverbsOptions::default()).open(names[number % names.len()]).unwrap()
}
