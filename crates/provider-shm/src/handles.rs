//! An open device and a protection domain, as held by the application and their objects: all keep
//! the device open. `context` opens devices, and creates objects from them.
use crate::state::State;
use catchment_verbs::event;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// The application's open device. The last handle ends the service thread.
#[derive(Clone)]
pub(crate) struct ShmContext(Arc<Opened>);

struct Opened {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl ShmContext {
    pub(crate) fn of(state: Arc<State>, thread: JoinHandle<()>) -> Self {
        Self(Arc::new(Opened { state, thread: Some(thread) }))
    }

    /// Returns what its objects share.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.0.state
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        event::ring(&self.state.wake);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A protection domain.
#[derive(Clone)]
pub(crate) struct ShmPd {
    pub(crate) id: u64,
    pub(crate) context: ShmContext,
}

impl ShmPd {
    pub(crate) fn state(&self) -> &Arc<State> {
        self.context.state()
    }
}
