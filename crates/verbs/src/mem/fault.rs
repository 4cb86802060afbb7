//! Pages of a region that the system does not have (SIGBUS), survived.
//!
//! Sealed memory cannot be truncated, yet a touch of it can fail: whoever may write it may punch a hole
//! into it, and where the system promises no more memory than it has (`vm.overcommit_memory` = 2) there
//! may be no page for the hole; memory modules and swap devices fail too. The signal would end the
//! process. Here it ends the use of one region: the handler puts spare pages in the place, which are
//! there already, and marks the region as broken. A SIGBUS anywhere else goes to the handler that was
//! there before.
use super::MemError;
use super::error::os_error;
use crate::event;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// Spare pages put in place at once: a region of gigabytes needs fewer mappings than a process may have.
const SPARE_BYTES: usize = 1 << 16;

/// What the handler needs, made before it is installed.
struct Setup {
    spare: OwnedFd,
    page_bytes: usize,
    previous: libc::sigaction,
    /// Rung after a region broke. Never read: watch it edge-triggered.
    broken: OwnedFd,
}

static SETUP: OnceLock<Setup> = OnceLock::new();
/// All ranges that were ever watched. A list without a lock: the handler may interrupt anything.
static RANGES: AtomicPtr<Range> = AtomicPtr::new(null_mut());
/// A region has broken since the process began: lets the check of a sound one stay in one cache line.
static ANY: AtomicBool = AtomicBool::new(false);

/// Memory whose faults are survived. Never freed, but used again for another region.
struct Range {
    /// Even while it is nobody's or changes. Another region has another number.
    turn: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    writable: AtomicBool,
    broken: AtomicBool,
    taken: AtomicBool,
    next: AtomicPtr<Self>,
}

/// A region's place in the list.
pub(super) struct Watched(&'static Range);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("broken", &self.is_broken()).finish()
    }
}

impl Watched {
    /// Survives faults of these bytes from now on, until [`Watched::end`].
    pub(super) fn begin(start: usize, bytes: usize, writable: bool) -> Result<Self, MemError> {
        let setup = setup()?;
        let range = Range::take();
        range.start.store(start, Ordering::Relaxed);
        let end = (start + bytes).next_multiple_of(setup.page_bytes);
        range.end.store(end, Ordering::Relaxed);
        range.writable.store(writable, Ordering::Relaxed);
        range.broken.store(false, Ordering::Relaxed);
        range.turn.fetch_add(1, Ordering::Release);
        Ok(Self(range))
    }

    /// Returns the place of the same memory, for a part of it that keeps it mapped.
    pub(super) fn again(&self) -> Self {
        Self(self.0)
    }

    /// Before the memory is unmapped.
    pub(super) fn end(&self) {
        self.0.turn.fetch_add(1, Ordering::AcqRel);
        self.0.taken.store(false, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        ANY.load(Ordering::Relaxed) && self.0.broken.load(Ordering::Acquire)
    }
}

impl Range {
    /// Returns a range that is nobody's.
    fn take() -> &'static Self {
        let free = ranges().find(|range| {
            let (from, to) = (Ordering::Acquire, Ordering::Relaxed);
            range.taken.compare_exchange(false, true, from, to).is_ok()
        });
        free.unwrap_or_else(Self::new)
    }

    /// Adds one to the list.
    fn new() -> &'static Self {
        let range: &'static Self = Box::leak(Box::new(Self {
            turn: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            writable: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            taken: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
        }));
        let mut first = RANGES.load(Ordering::Relaxed);
        loop {
            range.next.store(first, Ordering::Relaxed);
            let new = std::ptr::from_ref(range).cast_mut();
            match RANGES.compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return range,
                Err(seen) => first = seen,
            }
        }
    }

    /// Returns its end and whether it may be written, if `addr` is inside. A range that changes
    /// meanwhile is none that somebody touches.
    fn holds(&self, addr: usize) -> Option<(usize, bool)> {
        let turn = self.turn.load(Ordering::Acquire);
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let writable = self.writable.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let settled = turn % 2 == 1 && self.turn.load(Ordering::Relaxed) == turn;
        (settled && (start..end).contains(&addr)).then_some((end, writable))
    }
}

fn ranges() -> impl Iterator<Item = &'static Range> {
    let at = |range: &AtomicPtr<Range>| {
        // SAFETY: null, or a range that was leaked before it was published.
        unsafe { range.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(at(&RANGES), move |range| at(&range.next))
}

/// Returns what becomes readable once more whenever a region of this process breaks. Nobody reads it:
/// watch it edge-triggered. `None` before the first region.
pub fn broken_event() -> Option<BorrowedFd<'static>> {
    SETUP.get().map(|setup| setup.broken.as_fd())
}

/// Returns what the handler needs, and installs it at the first call.
fn setup() -> Result<&'static Setup, MemError> {
    if let Some(setup) = SETUP.get() {
        return Ok(setup);
    }
    // Of two threads that come here at once, both install the handler, and one set remains. Its
    // `previous` is right: nobody installs before a set is there.
    let _ = SETUP.set(Setup::new()?);
    let mut action = empty_action();
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a valid action, whose handler only does what a signal handler may.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) } != 0 {
        return Err(last_error("sigaction(SIGBUS)"));
    }
    Ok(SETUP.get().expect("it was set before"))
}

impl Setup {
    fn new() -> Result<Self, MemError> {
        let os = |call| move |e| os_error(call, SPARE_BYTES, e);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let spare =
            rustix::fs::memfd_create("catchment-spare", flags).map_err(os("memfd_create"))?;
        // Written, not only reserved: the pages are there when they are needed.
        let zeros = vec![0; SPARE_BYTES];
        let written = rustix::io::pwrite(&spare, &zeros, 0).map_err(os("pwrite"))?;
        if written < SPARE_BYTES {
            return Err(os("pwrite")(rustix::io::Errno::NOSPC));
        }
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&spare, seals).map_err(os("fcntl(F_ADD_SEALS)"))?;
        let broken = event::event_fd().map_err(|source| MemError::Os {
            call: "eventfd",
            bytes: SPARE_BYTES,
            source,
        })?;
        let mut previous = empty_action();
        // SAFETY: asks only; `previous` is a valid place for the answer.
        if unsafe { libc::sigaction(libc::SIGBUS, null(), &raw mut previous) } != 0 {
            return Err(last_error("sigaction(SIGBUS)"));
        }
        Ok(Self { spare, page_bytes: rustix::param::page_size(), previous, broken })
    }

    /// Puts spare pages where `addr` is, if that is in a region.
    fn replace(&self, addr: usize) -> bool {
        let found = ranges().find_map(|range| Some((range, range.holds(addr)?)));
        let Some((range, (end, writable))) = found else { return false };
        let page = addr & !(self.page_bytes - 1);
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        let (flags, bytes) = (MapFlags::SHARED | MapFlags::FIXED, SPARE_BYTES.min(end - page));
        // SAFETY: the range lies in the mapping of a region, which lasts at least as long as the access
        // that brought us here. Nobody has references to its bytes.
        let done =
            unsafe { rustix::mm::mmap(page as *mut c_void, bytes, prot, flags, &self.spare, 0) };
        if done.is_err() {
            return false;
        }
        range.broken.store(true, Ordering::Release);
        ANY.store(true, Ordering::Release);
        event::ring(&self.broken);
        true
    }
}

/// The handler. What it calls takes no lock and no memory: atomics, mmap(2), write(2), sigaction(2).
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the errno of this thread, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the system passes a valid description of the signal.
    let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if let Some(setup) = SETUP.get() {
        // Not above zero: sent by a process, without an address.
        if code <= 0 || !setup.replace(addr) {
            pass_on(setup, signal, info, context);
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Does with a signal that is not ours what would have been done without us.
fn pass_on(setup: &Setup, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = setup.previous;
    // SAFETY: `info` is that of the handler.
    let sent = unsafe { (*info).si_code <= 0 };
    if previous.sa_sigaction == libc::SIG_IGN && sent {
        return;
    }
    if previous.sa_sigaction == libc::SIG_DFL || previous.sa_sigaction == libc::SIG_IGN {
        let mut action = empty_action();
        action.sa_sigaction = libc::SIG_DFL;
        // SAFETY: restores the default. The access is then tried again and ends the process, with the
        // right address; a signal that was sent is raised again.
        unsafe {
            libc::sigaction(signal, &raw const action, null_mut());
            if sent {
                libc::raise(signal);
            }
        }
    } else if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the action that the process had installed has this signature, as its flag says.
        unsafe {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(previous.sa_sigaction);
            handler(signal, info, context);
        }
    } else {
        // SAFETY: as above, without the flag.
        unsafe {
            let handler: extern "C" fn(c_int) = std::mem::transmute(previous.sa_sigaction);
            handler(signal);
        }
    }
}

fn empty_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid action: the default, no flags, no signals blocked.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn last_error(call: &'static str) -> MemError {
    MemError::Os { call, bytes: SPARE_BYTES, source: std::io::Error::last_os_error() }
}
