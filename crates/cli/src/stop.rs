//! Asked to end: by Ctrl-C, by SIGTERM, or because the process that started us is gone.
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::say;
use std::io::Read as _;
use std::os::unix::process::parent_id;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Exit code after a second Ctrl-C: 128 and the number of SIGINT, as shells count.
const INTERRUPTED_TWICE: i32 = 130;
const ORPHAN_LOOK: Duration = Duration::from_millis(50);

/// Set once, when the command must end.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn asked(&self) -> MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        *self.asked() = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.asked()
    }

    /// Sleeps until `time`, or until asked to end. Returns whether it was asked.
    pub(crate) fn wait_until(&self, time: Instant) -> bool {
        self.wait(time.saturating_duration_since(Instant::now()))
    }

    /// Sleeps for `time`, or until asked to end. Returns whether it was asked.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.asked(), time, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// From now on signals do not kill this process: they set the [`Stop`], then call `then`.
/// With `until_stdin_closes`, the end of stdin does the same.
pub(crate) fn watch(
    until_stdin_closes: bool,
    then: impl Fn() + Send + Sync + 'static,
) -> Result<Arc<Stop>, Failure> {
    let stop = Arc::<Stop>::default();
    let asked = {
        let stop = stop.clone();
        Arc::new(move || {
            stop.set();
            then();
        })
    };
    watch_signals(asked.clone())?;
    if until_stdin_closes {
        let parent = parent_id();
        spawn("stdin", move || {
            // Nothing is ever written to it: it only tells that the other side lives.
            let _ = std::io::stdin().lock().read(&mut [0; 64]);
            asked();
            end_when_orphaned(parent);
        })?;
    }
    Ok(stop)
}

/// With the process that started us gone, nobody waits for a good end. It closes stdin shortly
/// before it is gone.
fn end_when_orphaned(parent: u32) {
    while parent_id() == parent {
        // The kernel gives no event for this.
        std::thread::sleep(ORPHAN_LOOK);
    }
    std::process::exit(Code::Failed as i32);
}

fn watch_signals(asked: Arc<impl Fn() + Send + Sync + 'static>) -> Result<(), Failure> {
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
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
        };
        wait_for_one();
        asked();
        wait_for_one();
        say!("ended without waiting");
        std::process::exit(INTERRUPTED_TWICE);
    })
}

/// Runs `run` on a thread that nothing waits for.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).or_fail(Code::Failed)
}
