//! Work that waits for a time to pass: streams whose sink refused a frame.
use catchment_verbs::sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an entry rests.
const REST: Duration = Duration::from_millis(100);
/// When nothing rests.
const NEVER: u64 = u64::MAX;

/// What rests, and until when: the first is due first. Checking that nothing is due takes no lock.
pub(super) struct Resting<T> {
    entries: Mutex<VecDeque<(u64, T)>>,
    /// When the first is due, in nanoseconds since `begin`.
    due: AtomicU64,
    begin: Instant,
}

impl<T> Resting<T> {
    /// Creates a place where nothing rests.
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), due: AtomicU64::new(NEVER), begin: Instant::now() }
    }

    /// Lets an entry rest from now on.
    pub(super) fn add(&self, entry: T) {
        let mut entries = self.entries.lock();
        entries.push_back((self.now() + REST.as_nanos() as u64, entry));
        self.note(&entries);
    }

    /// Returns when the first entry is due.
    pub(super) fn first_due(&self) -> Option<Instant> {
        let due = self.due.load(Ordering::SeqCst);
        (due != NEVER).then(|| self.begin + Duration::from_nanos(due))
    }

    /// Returns what has rested long enough.
    pub(super) fn wake_due(&self, mut schedule: impl FnMut(T)) {
        while let Some(entry) = self.take_due() {
            schedule(entry);
        }
    }

    fn take_due(&self) -> Option<T> {
        let due = self.due.load(Ordering::SeqCst);
        if due == NEVER || self.now() < due {
            return None;
        }
        let mut entries = self.entries.lock();
        if entries.front()?.0 > self.now() {
            return None;
        }
        let entry = entries.pop_front();
        self.note(&entries);
        entry.map(|(_, entry)| entry)
    }

    /// Takes all that rests.
    pub(super) fn drain(&self) -> Vec<T> {
        let mut entries = self.entries.lock();
        self.due.store(NEVER, Ordering::SeqCst);
        entries.drain(..).map(|(_, entry)| entry).collect()
    }

    fn note(&self, entries: &VecDeque<(u64, T)>) {
        let due = entries.front().map_or(NEVER, |(due, _)| *due);
        self.due.store(due, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}
