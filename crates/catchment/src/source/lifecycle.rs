//! How a source lives: connected or not, closing, ended. What changes a few times in a session, and
//! the sleep of those who wait for it; no frame that finds a link and a free block comes here.
use super::SourceError;
use super::link::Link;
use crate::observe::Unaccounted;
use catchment_verbs::sync::{Condvar, Mutex};
use catchment_verbs::wait::EventCount;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// The state of a source, and who waits for it to change.
#[derive(Default)]
pub(super) struct Lifecycle {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether `state` says that no new frame is accepted. Filling threads read only this.
    pub(super) closed: AtomicBool,
    /// Changes when some backlog got a frame; the pump sleeps on it.
    pump: EventCount,
    /// Wakes the control thread.
    pub(super) control: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Why the source takes no more frames.
    ended: Option<Arc<SourceError>>,
    closing: bool,
    /// The collector is done with every accepted frame, and has said how many of them are lost.
    finished: Option<Finished>,
    stopped: bool,
    /// What the last try to connect said.
    last_failure: Option<String>,
    was_connected: bool,
}

/// How many frames are lost, unless both sides disagree about some.
pub(super) type Finished = Result<u64, Unaccounted>;

impl State {
    fn is_closed(&self) -> bool {
        self.closing || self.ended.is_some()
    }
}

impl Lifecycle {
    /// The link, if the source is connected.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.state.lock().link.clone()
    }

    /// Publishes a new link, or that there is none.
    pub(super) fn set_link(&self, link: Option<Arc<Link>>) {
        let mut state = self.state.lock();
        state.was_connected |= link.is_some();
        state.link = link;
        self.notify(state);
    }

    /// Ends the source: filling threads get `error` from now on.
    pub(super) fn end(&self, error: SourceError) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(Arc::new(error));
        self.notify(state);
    }

    /// Notes why the last try to connect failed.
    pub(super) fn connect_failed(&self, reason: String) {
        self.state.lock().last_failure = Some(reason);
    }

    /// Says that the application wants to close.
    pub(super) fn begin_closing(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.notify(state);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Says that the collector is done with everything: all is with its sinks but for the lost frames.
    pub(super) fn set_finished(&self, finished: Finished) {
        let mut state = self.state.lock();
        state.finished = Some(finished);
        self.notify(state);
    }

    /// Lets all threads of the source end.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.ended.get_or_insert(Arc::new(SourceError::Closed));
        self.notify(state);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.lock().finished.is_some()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    pub(super) fn ended(&self) -> Option<Arc<SourceError>> {
        self.state.lock().ended.clone()
    }

    fn notify(&self, state: MutexGuard<'_, State>) {
        self.closed.store(state.is_closed(), Ordering::Release);
        drop(state);
        self.changed.notify_all();
        self.ring_pump();
        self.control.notify_one();
    }

    /// Sleeps until the first session is ready.
    pub(super) fn wait_connected(
        &self,
        collector: &str,
        patience: Option<Duration>,
    ) -> Result<(), SourceError> {
        let started = Instant::now();
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.ended.take() {
                // Only one caller sees it: the source is dropped now.
                return Err(Arc::try_unwrap(error).unwrap_or_else(SourceError::Ended));
            }
            if state.was_connected {
                return Ok(());
            }
            let left = patience.map(|p| p.saturating_sub(started.elapsed()));
            if left == Some(Duration::ZERO) {
                let reason = state.last_failure.take();
                return Err(SourceError::Unreachable {
                    collector: collector.to_owned(),
                    waited: patience.unwrap_or_default(),
                    reason: reason.unwrap_or_else(|| "no answer yet".to_owned()),
                });
            }
            state = self.sleep(state, left);
        }
    }

    /// Sleeps until the collector is done with everything, the source has ended, or the time is over.
    /// Returns how many frames are lost, if the collector is done.
    pub(super) fn wait_finished(&self, deadline: Instant) -> Option<Finished> {
        let mut state = self.state.lock();
        while state.finished.is_none() && state.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.sleep(state, Some(left));
        }
        state.finished.clone()
    }

    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let timeout = timeout.unwrap_or(Duration::from_secs(3600));
        self.changed.wait_timeout(state, timeout)
    }

    /// Returns why no new frame is accepted, if so.
    pub(super) fn check_open(&self) -> Result<(), SourceError> {
        let state = self.state.lock();
        match &state.ended {
            Some(error) => Err(SourceError::Ended(error.clone())),
            None if state.closing => Err(SourceError::Closed),
            None => Ok(()),
        }
    }

    /// Sleeps until the link or the end changes, or the time is over.
    pub(super) fn wait_for_link(&self, timeout: Duration) {
        let state = self.state.lock();
        if state.link.is_none() && state.ended.is_none() {
            drop(self.changed.wait_timeout(state, timeout));
        }
    }

    pub(super) fn ring_pump(&self) {
        self.pump.notify();
    }

    /// Sleeps until rung since `seen`; returns the new count. Frames that wait, another link and the
    /// end ring.
    pub(super) fn wait_for_pump(&self, seen: u32) -> u32 {
        self.pump.wait(seen, None)
    }
}
