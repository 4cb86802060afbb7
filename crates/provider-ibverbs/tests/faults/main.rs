//! The error texts for a faulty device, port, address, limit or peer.
//!
//! The tests make and remove RDMA devices of their own, which takes root and the kernel's rdma_rxe.
//! So they run only where `CATCHMENT_IBVERBS_FAULTS` is set: in the lab's virtual machine.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod cases;

use libtest_mimic::{Arguments, Trial};

const ALLOWED: &str = "CATCHMENT_IBVERBS_FAULTS";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    if std::env::var_os(ALLOWED).is_some() {
        for (name, case) in cases::CASES {
            trials.push(Trial::test(*name, move || {
                case();
                Ok(())
            }));
        }
    } else {
        eprintln!(
            "\n!!! NOTHING WAS RUN: these tests make and remove RDMA devices, so they wait for \
             {ALLOWED}=1, which `cargo xtask lab verbs` sets in its virtual machine\n"
        );
    }
    libtest_mimic::run(&arguments, trials).exit();
}
