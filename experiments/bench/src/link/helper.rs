//! The thread that a mechanism asks for, on the core of its role.
use super::Pace;
use crate::job::Wait;
use crate::sys;
use anyhow::{Context as _, Result};
use catchment_mechanisms::Helper;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

/// The mechanism's own thread, on the core of its role.
pub(crate) struct HelperThread {
    pace: Arc<AtomicU8>,
    noted: Arc<Mutex<Option<Vec<u64>>>>,
    id: i32,
    urgent: bool,
    thread: Option<JoinHandle<()>>,
}

const ENDED: u8 = 3;

impl HelperThread {
    pub(crate) fn start(helper: Box<dyn Helper>, wait: Wait) -> Result<Self> {
        let pace = Arc::new(AtomicU8::new(Pace::Parked as u8));
        let noted = Arc::default();
        let (theirs, notes) = (Arc::clone(&pace), Arc::clone(&noted));
        let (say, hear) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // Whoever started us has ended if nobody hears it.
            let _ = say.send(rustix::thread::gettid().as_raw_nonzero().get());
            if let Err(error) = help(helper, wait, &theirs, &notes) {
                eprintln!("the mechanism's own thread: {error:#}");
            }
        });
        Ok(Self {
            pace,
            noted,
            id: hear.recv().context("the mechanism's own thread")?,
            urgent: false,
            thread: Some(thread),
        })
    }

    /// Notes from now on when it found something; says what was noted before.
    pub(super) fn note(&self) -> Vec<u64> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.replace(Vec::new()).unwrap_or_default()
    }

    pub(crate) fn set(&mut self, pace: Pace) -> Result<()> {
        let urgent = pace == Pace::Urgent;
        if urgent != self.urgent {
            sys::set_realtime_of(self.id, urgent).context("real-time priority of a thread")?;
            self.urgent = urgent;
        }
        self.pace.store(pace as u8, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        Ok(())
    }
}

fn help(
    mut helper: Box<dyn Helper>,
    wait: Wait,
    pace: &AtomicU8,
    noted: &Mutex<Option<Vec<u64>>>,
) -> Result<()> {
    loop {
        match pace.load(Ordering::Acquire) {
            ENDED => return Ok(()),
            // Somebody else is measured meanwhile.
            parked if parked == Pace::Parked as u8 => std::thread::park(),
            _ if helper.step()? => {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(noted) = noted.as_mut() {
                    noted.push(sys::monotonic_ns());
                }
            }
            _ if wait == Wait::Sleep => wait.pause(),
            // It shares its core with the one who claims blocks.
            _ => rustix::thread::sched_yield(),
        }
    }
}

impl Drop for HelperThread {
    fn drop(&mut self) {
        self.pace.store(ENDED, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
