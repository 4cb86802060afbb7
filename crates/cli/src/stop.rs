//! Requests to end: Ctrl-C, SIGTERM, or the end of the process that started us.
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::say;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Exit code after a second Ctrl-C: 128 and the number of SIGINT, as shells count.
const INTERRUPTED_TWICE: i32 = 130;
/// Signals that come this soon after the first one say the same.
const ONE_REQUEST: Duration = Duration::from_secs(1);
const ORPHAN_POLL: Duration = Duration::from_millis(50);

/// Set once, when the command must end.
#[derive(Debug)]
pub(crate) struct Stop {
    asked: AtomicBool,
    /// Readable from then on.
    bell: OwnedFd,
    /// What SIGHUP does in place of ending the command.
    on_hangup: OnceLock<Hook>,
    /// Whether the command was started in a terminal: then SIGHUP may also say that this has gone.
    in_terminal: bool,
}

#[derive(derive_more::Debug)]
#[debug("Hook")]
struct Hook(Arc<dyn Fn() + Send + Sync>);

/// Returns whether this process has a terminal. The kernel takes it away before it sends SIGHUP.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            asked: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
            on_hangup: OnceLock::new(),
            in_terminal: has_terminal(),
        })
    }

    /// Makes SIGHUP call `then` from now on, unless it says that the terminal has gone.
    pub(crate) fn on_hangup(&self, then: Arc<dyn Fn() + Send + Sync>) {
        let _ = self.on_hangup.set(Hook(then));
    }

    /// Does what SIGHUP is for; returns whether the command goes on.
    fn survives_hangup(&self) -> bool {
        match self.on_hangup.get() {
            Some(Hook(then)) if !self.in_terminal || has_terminal() => {
                then();
                true
            }
            Some(_) | None => false,
        }
    }

    fn set(&self) {
        self.asked.store(true, Ordering::Release);
        // Fails only after 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(crate) fn is_set(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Sleeps until `time`, or until asked to end. Returns whether it was asked.
    pub(crate) fn wait_until(&self, time: Instant) -> bool {
        loop {
            let left = time.saturating_duration_since(Instant::now());
            if self.is_set() || left.is_zero() {
                return self.is_set();
            }
            let mut bell = [PollFd::new(&self.bell, PollFlags::IN)];
            // A signal ends it early; a time beyond what the kernel takes is no limit.
            let _ = poll(&mut bell, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// Sleeps for `time`, or until asked to end. Returns whether it was asked.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        self.wait_until(Instant::now() + time)
    }
}

/// Makes signals set the [`Stop`] and call `then` from now on, instead of killing this process.
/// With `until_stdin_closes`, the end of stdin does the same.
pub(crate) fn watch(
    until_stdin_closes: bool,
    then: impl Fn() + Send + Sync + 'static,
) -> Result<Arc<Stop>, Failure> {
    let stop = Arc::new(Stop::new().or_fail(Code::Failed)?);
    let asked = {
        let stop = stop.clone();
        Arc::new(move || {
            stop.set();
            then();
        })
    };
    watch_signals(stop.clone(), asked.clone())?;
    if until_stdin_closes {
        let parent = parent_id();
        spawn("stdin", move || {
            // Nothing is ever written to it: it only shows that the other side lives.
            let _ = std::io::stdin().lock().read(&mut [0; 64]);
            asked();
            end_when_orphaned(parent);
        })?;
    }
    Ok(stop)
}

/// Exits once the process that started us is gone: no orderly end is needed then. It closes stdin
/// shortly before.
fn end_when_orphaned(parent: u32) {
    while parent_id() == parent {
        // The kernel gives no event for this.
        std::thread::sleep(ORPHAN_POLL);
    }
    std::process::exit(Code::Failed as i32);
}

fn watch_signals(
    stop: Arc<Stop>,
    asked: Arc<impl Fn() + Send + Sync + 'static>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.or_fail(Code::Failed)?;
    let listen = |kind| {
        let _inside = runtime.enter();
        signal(kind).or_fail(Code::Failed)
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    spawn("signals", move || {
        let mut wait_for_one = || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => return,
                        _ = terminate.recv() => return,
                        _ = hangup.recv() => {}
                    }
                    if !stop.survives_hangup() {
                        return;
                    }
                }
            });
        };
        wait_for_one();
        asked();
        let first = Instant::now();
        // timeout(1) signals its child and then the child's group: that is one request.
        while first.elapsed() < ONE_REQUEST {
            wait_for_one();
        }
        say!("ended without waiting");
        std::process::exit(INTERRUPTED_TWICE);
    })
}

/// Runs `run` on a thread that nothing waits for.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).or_fail(Code::Failed)
}
