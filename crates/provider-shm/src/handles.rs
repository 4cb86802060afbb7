//! An open device and a protection domain, as the application and their objects hold them: they keep
//! each other alive. `context` opens devices, and has what they make.
use crate::state::State;
use catchment_verbs::event;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// An open device, as the application holds it. The last handle ends the service thread.
pub(crate) struct ShmContext {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    myself: Weak<ShmContext>,
}

impl ShmContext {
    pub(crate) fn of(state: Arc<State>, thread: JoinHandle<()>) -> Arc<ShmContext> {
        Arc::new_cyclic(|myself| ShmContext {
            state,
            thread: Some(thread),
            myself: Weak::clone(myself),
        })
    }

    /// What its objects share.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(crate) fn strong(&self) -> Arc<ShmContext> {
        self.myself.upgrade().expect("a context that is used is alive")
    }
}

impl Drop for ShmContext {
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
pub(crate) struct ShmPd {
    id: u64,
    context: Arc<ShmContext>,
    myself: Weak<ShmPd>,
}

impl ShmPd {
    pub(crate) fn new(id: u64, context: Arc<ShmContext>) -> Arc<ShmPd> {
        Arc::new_cyclic(|myself| ShmPd { id, context, myself: Weak::clone(myself) })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.context.state
    }

    pub(crate) fn strong(&self) -> Arc<ShmPd> {
        self.myself.upgrade().expect("a protection domain that is used is alive")
    }
}
