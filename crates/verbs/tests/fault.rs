//! Real SIGBUS signals in and beside regions. Each case is a process of its own: one that fails dies of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_verbs::mem::{Region, RegionOptions, VolatileSlice, broken_event};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_int;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const CASE: &str = "CATCHMENT_FAULT_CASE";
const PAGE: usize = 4096;

/// Runs one of the cases below in a process of its own.
fn run(case: &str) -> ExitStatus {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["case_in_a_process_of_its_own", "--nocapture", "--test-threads=1"]);
    process.env(CASE, case).status().unwrap()
}

#[test]
fn case_in_a_process_of_its_own() {
    match std::env::var(CASE).as_deref() {
        Ok("survive") => survive(),
        Ok("kernel") => kernel_finds_no_page(),
        Ok("many") => many_threads(),
        Ok("reused") => reused_ranges(),
        Ok("foreign") => fault_in_foreign_memory(),
        Ok("handler") => handler_of_others(),
        Ok("sent") => sent_by_a_process(),
        _ => {}
    }
}

fn region(bytes: usize) -> Arc<Region> {
    Region::alloc(bytes, RegionOptions::default()).unwrap()
}

/// Puts pages in the place of these that nobody can have: they are behind the end of a file.
fn take_pages(at: u64, bytes: usize) {
    let file = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: replaces pages of a mapping of ours, or makes some at an address that we mapped.
    unsafe { rustix::mm::mmap(at as *mut _, bytes, prot, flags, &file, 0) }.unwrap();
}

#[test]
fn issue_13_a_page_that_cannot_be_had_breaks_its_region_only() {
    assert!(run("survive").success());
}

fn survive() {
    let (whole, other) = (region(64 * PAGE), region(PAGE));
    whole.whole().fill(7).unwrap();
    take_pages(whole.addr() + 8 * PAGE as u64, PAGE);
    assert!(!whole.is_broken(), "nobody touched it");
    let mut seen = vec![0; 64 * PAGE];
    whole.whole().read_at(0, &mut seen).unwrap();
    assert!(whole.is_broken() && !other.is_broken());
    assert!(seen[..8 * PAGE].iter().all(|byte| *byte == 7), "what came before is right");
    let broken = broken_event().unwrap();
    let mut poll = [PollFd::new(&broken, PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut poll, None), Ok(1));
    // Writing and atomics too, and a region that may only be read.
    take_pages(whole.addr(), 64 * PAGE);
    whole.whole().fill(1).unwrap();
    take_pages(whole.addr(), 64 * PAGE);
    whole.whole().atomic_u64(0).unwrap().fetch_add(1, Ordering::SeqCst);
    let read_only = Region::from_peer(other.read_only_fd().unwrap(), PAGE, false).unwrap();
    take_pages(read_only.addr(), PAGE);
    assert_eq!(read_only.whole().to_vec().len(), PAGE);
    assert!(read_only.is_broken() && !other.is_broken());
    other.whole().write_at(0, b"sound").unwrap();
}

#[test]
fn a_system_call_that_finds_no_page_goes_on() {
    assert!(run("kernel").success());
}

fn kernel_finds_no_page() {
    let whole = region(4 * PAGE);
    let file = rustix::fs::memfd_create("sink", MemfdFlags::CLOEXEC).unwrap();
    let pieces = [whole.slice(0, PAGE).unwrap(), whole.slice(2 * PAGE, PAGE).unwrap()];
    take_pages(whole.addr(), PAGE);
    assert_eq!(VolatileSlice::write_all_to_fd(&pieces, file.as_fd()).unwrap(), 2 * PAGE);
    assert!(whole.is_broken());
    take_pages(whole.addr(), PAGE);
    assert_eq!(whole.whole().write_to_fd(file.as_fd()).unwrap(), 4 * PAGE);
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
    take_pages(whole.addr(), PAGE);
    assert_eq!(whole.whole().read_from_fd(file.as_fd()).unwrap(), 4 * PAGE);
}

#[test]
fn threads_fault_at_once_while_regions_come_and_go() {
    assert!(run("many").success());
}

fn many_threads() {
    let shared = region(1 << 20);
    take_pages(shared.addr(), 1 << 20);
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let shared = &shared;
            scope.spawn(move || {
                for _ in 0..200 {
                    let own = region(4 * PAGE);
                    take_pages(own.addr(), 4 * PAGE);
                    own.whole().fill(n).unwrap();
                    assert!(own.is_broken());
                }
                shared.whole().fill(n).unwrap();
            });
        }
    });
    assert!(shared.is_broken());
}

#[test]
fn a_new_region_is_sound_where_an_old_one_broke() {
    assert!(run("reused").success());
}

fn reused_ranges() {
    for _ in 0..100 {
        let one = region(PAGE);
        assert!(!one.is_broken());
        take_pages(one.addr(), PAGE);
        one.whole().fill(1).unwrap();
        assert!(one.is_broken());
    }
}

#[test]
fn a_fault_elsewhere_ends_the_process_as_before() {
    assert_eq!(run("foreign").signal(), Some(libc::SIGBUS));
}

/// An address that is no region's and has no page.
fn foreign() -> *mut u8 {
    let (prot, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
    // SAFETY: a new mapping.
    let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE, prot, flags) };
    let at = at.unwrap().cast();
    take_pages(at as u64, PAGE);
    at
}

fn fault_in_foreign_memory() {
    let _region = region(PAGE);
    // SAFETY: mapped; the signal ends the process.
    unsafe { foreign().read_volatile() };
}

#[test]
fn the_handler_that_was_there_before_gets_the_signals_of_others() {
    assert_eq!(run("handler").code(), Some(77));
}

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: ends the process at once; allowed in a handler.
    unsafe { libc::_exit(77) };
}

fn handler_of_others() {
    // SAFETY: a handler that only does what it may.
    unsafe { libc::signal(libc::SIGBUS, count as *const () as usize) };
    survive();
    assert_eq!(SEEN.load(Ordering::Relaxed), 0);
    fault_in_foreign_memory();
}

#[test]
fn a_signal_that_a_process_sent_is_not_taken_for_a_fault() {
    assert_eq!(run("sent").signal(), Some(libc::SIGBUS));
}

fn sent_by_a_process() {
    // SAFETY: as it is at the start of a process that has no handler.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let _region = region(PAGE);
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::BUS).unwrap();
    // Until the signal ends the process, which nothing in it can wait for.
    std::thread::sleep(std::time::Duration::from_secs(60));
}
