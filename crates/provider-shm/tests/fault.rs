//! A page of shared memory that cannot be had: SIGBUS, at either side of a session.
//!
//! Accepted memory has no such pages on a machine that promises more memory than it has, so these tests put
//! pages behind the end of a file in their place. `second.rs` has the case with a real peer.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_conformance::{Bench, Options, Side, connected, eventually};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, QpState, SendOp, WcStatus};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::sync::Arc;

fn bench() -> Bench {
    Bench::new(Arc::new(ShmProvider::new()), "shm0")
}

fn take_pages(at: u64, bytes: usize) {
    let file = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: replaces pages of a region of ours, which only this test knows.
    unsafe { rustix::mm::mmap(at as *mut _, bytes, prot, flags, &file, 0) }.unwrap();
}

fn assert_told(context: &dyn Context) {
    eventually("the event", || {
        std::iter::from_fn(|| context.async_event()).any(|e| format!("{e:?}").contains("SIGBUS"))
    });
}

/// A collector with two sources: those of one session, and the source of the other.
fn sessions() -> (Side, Side, (Side, Side)) {
    let (bench, options) = (bench(), Options::default());
    let collector = bench.open();
    let (a, b) = connected((bench.open(), &options), (collector.clone(), &options));
    (a, b, connected((bench.open(), &options), (collector, &options)))
}

#[test]
fn issue_13_a_source_survives_a_page_that_its_collector_lacks() {
    let (mut a, b, (mut other, other_ring)) = sessions();
    let remote = b.remote(0);
    let window = a.qp.map_remote(remote.addr, 1 << 20, remote.rkey).unwrap();
    take_pages(window.memory.memory().addr() + 65_536, 4096);
    let sge = a.sge(0, 4096);
    a.run_ok(SendOp::Read(remote), &[sge]);
    let status = a.run_failing(SendOp::Read(b.remote(65_536)), &[sge]);
    assert_eq!((status, a.qp.state()), (WcStatus::RemoteOperation, QpState::Err));
    assert!(!window.bell.is_valid());
    assert_told(&*a.context);
    other.run_ok(SendOp::Write(other_ring.remote(0)), &[other.sge(0, 4096)]);
}

#[test]
fn issue_13_a_collector_survives_a_page_that_a_source_took_from_its_ring() {
    let (_a, b, (mut other, other_ring)) = sessions();
    take_pages(b.mr.addr() + 8192, 4096);
    assert_eq!(b.get(0, 16_384).len(), 16_384);
    eventually("the error state", || b.qp.state() == QpState::Err);
    assert_told(&*b.context);
    assert_eq!(other_ring.qp.state(), QpState::Rts);
    other.run_ok(SendOp::Write(other_ring.remote(0)), &[other.sge(0, 4096)]);
}
