//! A transfer at its source: its windows, how far it is, what the controller knows of it.
mod end;
mod growth;
mod riding;

use super::flight::Flight;
use super::idle::Idle;
use crate::admission::round_trip::Repeat;
use crate::admission::transfer::{duration_ns, sent_bytes};
use crate::admission::wire::{ControllerRecord, SourceState, Told};
use std::collections::VecDeque;

/// So many chunks may be on their way, however small: one that leaves, and one that is acknowledged.
const IN_FLIGHT_LEAST: usize = 2;
/// A part of a chunk that is worth a WRITE, where a whole one does not fit.
const PART_BYTES_MIN: u64 = 1 << 16;
/// How late a chunk may begin and still count as begun in time.
const LATE_NS: u64 = 200_000;
/// A chunk begins before the one before it has left, by as much and by such a part of the time that this one takes at most:
/// whose source wakes up late has the line busy all the same.
const EARLY_PARTS: u64 = 4;

/// Leave to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) rate_bps: u64,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    /// 0 for one of an earlier term.
    pub(super) revision: u32,
}

/// A chunk that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) bytes: u64,
    pub(super) rate_bps: u64,
    begun_ns: u64,
    /// When it should have left.
    pub(super) leaves_ns: u64,
    revision: u32,
    /// Under no grant.
    alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Live,
    Done,
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) born_ns: u64,
    pub(super) class: u8,
    pub(super) course: Course,
    /// What has not begun, and how much of that is not there yet.
    left_bytes: u64,
    ahead_bytes: u64,
    chunks: VecDeque<Chunk>,
    /// So many of them, the oldest, are acknowledged, and their time is not over.
    acked_chunks: usize,
    /// Of these chunks, and with how much more may begin.
    in_flight_bytes: u64,
    flight_bytes: u64,
    window: Option<Window>,
    /// Takes the window's place when it begins.
    next: Option<Window>,
    /// Begins no chunk: was told to pause, or its window is over.
    stopping: bool,
    /// When the next chunk should begin, and when the line is free.
    paced_ns: u64,
    busy_ns: u64,
    /// It begins sooner by this, while the line is busy.
    early_ns: u64,
    /// Its state, as it is told.
    pub(super) revision: u32,
    /// What the controller has seen of it.
    pub(super) acked: u32,
    /// The newest revision of the controller, in its term.
    pub(super) seen: u32,
    progress_ns: Option<u64>,
    /// The window was long enough for what was left.
    suffices: bool,
    /// It is cancelled, and chunks that have begun go on.
    ending: bool,
    /// It goes at the rate of its device, and the controller is not told of it.
    riding: bool,
    /// The controller counts on an earlier window until it hears that it is not used any more.
    confirms: bool,
    /// It is not dropped.
    pub(super) finish: bool,
    pub(super) missed: bool,
    /// Is to be told.
    pub(super) ready: bool,
    pub(super) repeat: Option<Repeat>,
    /// The controller is to say that it is there.
    pub(super) asks: bool,
    /// When this revision was told first, unless it was repeated since.
    pub(super) told_ns: Option<u64>,
}

impl Transfer {
    pub(super) fn new(bytes: u64, born_ns: u64, class: u8) -> Self {
        Self {
            born_ns,
            class,
            course: Course::Live,
            left_bytes: bytes,
            ahead_bytes: 0,
            chunks: VecDeque::new(),
            acked_chunks: 0,
            in_flight_bytes: 0,
            flight_bytes: 0,
            window: None,
            next: None,
            stopping: false,
            paced_ns: 0,
            busy_ns: 0,
            early_ns: 0,
            revision: 1,
            acked: 0,
            seen: 0,
            progress_ns: None,
            suffices: false,
            ending: false,
            riding: false,
            confirms: false,
            finish: false,
            missed: false,
            ready: true,
            repeat: None,
            asks: false,
            told_ns: None,
        }
    }

    /// A part of its frame was sent: it is not dropped.
    pub(super) fn finish(self) -> Self {
        Self { finish: true, ..self }
    }

    /// So much of it is not there yet.
    pub(super) fn ahead(self, bytes: u64) -> Self {
        Self { ahead_bytes: bytes.min(self.left_bytes), ..self }
    }

    /// Returns what can begin.
    const fn there_bytes(&self) -> u64 {
        self.left_bytes - self.ahead_bytes
    }

    /// Returns its state as it is told.
    pub(super) fn state(&self, now_ns: u64) -> SourceState {
        let left_bytes = self.left_bytes + self.leaving_bytes(now_ns);
        let chunk = self.chunks.iter().find(|chunk| !chunk.alone);
        match (self.course, self.current(), chunk) {
            (Course::Done, ..) => SourceState::Done,
            (Course::Cancelled, ..) if !self.ending => SourceState::Cancelled,
            (_, Some(Window { rate_bps, until_ns, .. }), _) => {
                SourceState::Running { left_bytes, rate_bps, until_ns }
            }
            (_, None, Some(Chunk { rate_bps, .. })) => {
                SourceState::Running { left_bytes, rate_bps: *rate_bps, until_ns: self.busy_ns }
            }
            // What is cancelled and idle is revised with the next step.
            (_, None, None) => SourceState::Waiting { left_bytes: left_bytes.max(1) },
        }
    }

    /// Returns what is not acknowledged.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes + self.in_flight_bytes
    }

    /// Returns what of the chunks that have begun has not left yet, at their rates: what has left needs no window while its
    /// acknowledgement is on the way.
    fn leaving_bytes(&self, now_ns: u64) -> u64 {
        let leaving = self.chunks.iter().rev().take_while(|chunk| chunk.leaves_ns > now_ns);
        let bytes = |chunk: &Chunk| {
            let rest = sent_bytes(chunk.leaves_ns - now_ns, chunk.rate_bps).saturating_add(1);
            rest.min(chunk.bytes)
        };
        leaving.map(bytes).sum()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn current(&self) -> Option<Window> {
        self.window.or(self.next)
    }

    pub(super) fn has_window(&self, now_ns: u64) -> bool {
        let later = |window: &Window| window.until_ns > now_ns;
        self.course == Course::Live && [self.window, self.next].iter().flatten().any(later)
    }

    /// Returns until when it has a window.
    pub(super) fn last_ns(&self) -> Option<u64> {
        [self.window, self.next].iter().flatten().map(|window| window.until_ns).max()
    }

    /// Returns whether no window of an earlier revision than the newest is used.
    pub(super) fn obeys(&self) -> bool {
        let newest = |revision: u32| revision == self.seen;
        self.chunks.iter().all(|chunk| newest(chunk.revision))
            && self.current().is_none_or(|window| newest(window.revision))
    }

    /// Notes which of its states the controller has seen, at a time and with a lease; returns when that was told, if it is the
    /// newest and was not repeated.
    pub(super) fn note_acked(&mut self, seen: u32, (now_ns, lease_ns): (u64, u64)) -> Option<u64> {
        if seen <= self.acked || seen > self.revision {
            return None;
        }
        self.acked = seen;
        let told_ns = self.told_ns.take();
        if seen < self.revision {
            return None;
        }
        // Nothing of it is to be told again but that it goes on.
        self.repeat = Some(Repeat::going_on(now_ns, lease_ns));
        told_ns
    }

    /// Has a new state, which the controller is to see.
    pub(super) fn revise(&mut self) {
        self.revision += 1;
        self.ready = true;
        self.repeat = None;
        self.told_ns = None;
    }

    /// The oldest chunk is acknowledged; returns how long after it has begun. It may have left sooner than its own rate says:
    /// the queue pair goes at the sum of all rates, or at a higher one by now.
    pub(super) fn sent(&mut self, now_ns: u64) -> Option<u64> {
        let chunk = self.chunks.get(self.acked_chunks)?;
        let delay_ns = now_ns.saturating_sub(chunk.begun_ns);
        self.acked_chunks += 1;
        self.retire(now_ns);
        Some(delay_ns)
    }

    /// Forgets chunks that have left. One that was faster than its window's rate, as in shared memory, counts as on its way
    /// until its time is over: others would have what it used already.
    fn retire(&mut self, now_ns: u64) {
        let over = |chunk: &Chunk| chunk.alone || chunk.leaves_ns <= now_ns;
        while self.acked_chunks > 0 && self.chunks.front().is_some_and(over) {
            let chunk = self.chunks.pop_front();
            self.in_flight_bytes -= chunk.map_or(0, |chunk| chunk.bytes);
            self.acked_chunks -= 1;
        }
    }

    /// Returns when a chunk that is acknowledged has left.
    fn retires_ns(&self) -> Option<u64> {
        self.chunks.front().filter(|_| self.acked_chunks > 0).map(|chunk| chunk.leaves_ns)
    }

    /// What has begun does not leave any more.
    pub(super) fn lose_chunks(&mut self) {
        self.chunks.clear();
        (self.acked_chunks, self.in_flight_bytes) = (0, 0);
    }

    pub(super) fn cancel(&mut self) {
        if self.course == Course::Live {
            self.course = Course::Cancelled;
            (self.left_bytes, self.ahead_bytes) = (0, 0);
            (self.window, self.next) = (None, None);
            self.ending = true;
        }
    }

    /// Takes what the controller told last. Records that are not newer say nothing.
    pub(super) fn obey(&mut self, now_ns: u64, record: &ControllerRecord) {
        if record.revision <= self.seen || self.course != Course::Live {
            self.seen = self.seen.max(record.revision);
            return;
        }
        self.seen = record.revision;
        match record.told {
            Told::Granted { rate_bps, from_ns, until_ns } => {
                let revision = record.revision;
                self.grant(now_ns, Window { rate_bps, from_ns, until_ns, revision });
            }
            Told::Paused => {
                self.next = None;
                self.progress_ns = None;
                self.stopping = true;
            }
            Told::Waiting
            | Told::Ended
            | Told::Dropped
            | Told::Refused(_)
            | Told::Rate { .. }
            | Told::Renewed { .. } => {}
        }
        if self.current().is_none() {
            // It cannot be used, or was for a window that is over: the controller is to know.
            self.stopping = true;
        }
    }

    fn grant(&mut self, now_ns: u64, window: Window) {
        if window.until_ns <= now_ns {
            return;
        }
        self.stopping = false;
        let before = self.window;
        let less =
            |before: Window| before.rate_bps > window.rate_bps || before.until_ns > window.until_ns;
        self.confirms = before.is_some_and(less)
            || self.chunks.iter().any(|chunk| chunk.rate_bps > window.rate_bps);
        if window.from_ns > now_ns && before.is_some() {
            self.next = Some(window);
        } else {
            (self.window, self.next) = (Some(window), None);
        }
        let begins_ns = window.from_ns.max(now_ns);
        self.suffices = self.fits(window, begins_ns);
        self.progress_ns = (!self.suffices).then(|| begins_ns.midpoint(window.until_ns));
    }

    /// In a new term revisions of the controller begin again; windows stand.
    pub(super) fn change_term(&mut self) {
        (self.seen, self.acked) = (0, 0);
        for window in [&mut self.window, &mut self.next].into_iter().flatten() {
            window.revision = 0;
        }
        self.chunks.iter_mut().for_each(|chunk| chunk.revision = 0);
        self.revise();
    }

    /// Does what is due; returns a chunk that begins.
    pub(super) fn step(&mut self, now_ns: u64, flight: Flight) -> Option<Chunk> {
        self.retire(now_ns);
        let rate_bps = self.chunks.back().map(|chunk| chunk.rate_bps);
        let rate_bps = self.window.map(|window| window.rate_bps).or(rate_bps);
        self.flight_bytes = flight.bytes(rate_bps.unwrap_or(0));
        if self.riding {
            return None;
        }
        if self.course != Course::Live {
            if self.is_idle() && std::mem::take(&mut self.ending) {
                self.revise();
            }
            return None;
        }
        if let Some(next) = self.next.filter(|next| next.from_ns <= now_ns) {
            (self.window, self.next, self.stopping) = (Some(next), None, false);
        }
        if let Some(chunk) = self.begin(now_ns, flight) {
            if self.falls_short() {
                self.suffices = false;
                self.progress_ns = Some(now_ns);
            }
            return Some(chunk);
        }
        if self.left_bytes == 0 && self.is_idle() {
            self.course = Course::Done;
            (self.window, self.next) = (None, None);
            self.revise();
        } else if self.stopping && self.is_idle() {
            (self.stopping, self.window, self.progress_ns) = (false, None, None);
            if self.next.is_none() {
                self.revise();
            }
        } else if self.obeys() && self.window.is_some() {
            if self.end_window(now_ns, flight) {
                return None;
            }
            let due = self.progress_due_ns().is_some_and(|progress_ns| progress_ns <= now_ns);
            if due || self.confirms {
                self.confirms = false;
                self.progress_ns = self.progress_ns.filter(|_| !due);
                self.revise();
            }
        }
        None
    }

    /// Returns whether its window is not long enough any more, since the chunk that has just begun was late, or there is more than
    /// what was asked for. That is said at once: the end would wait for a window behind one that is granted already.
    fn falls_short(&self) -> bool {
        let window = self.window.filter(|_| self.suffices && self.next.is_none());
        window.is_some_and(|window| !self.fits(window, self.busy_ns))
    }

    /// Returns whether what has not begun fits into a window from a time on.
    fn fits(&self, window: Window, begins_ns: u64) -> bool {
        let room_ns = window.until_ns.saturating_sub(begins_ns.max(self.busy_ns));
        duration_ns(self.left_bytes, window.rate_bps) <= room_ns
    }

    /// Returns when it says how far it is, which prolongs its window: not while it has nothing to send, as others
    /// could use that.
    fn progress_due_ns(&self) -> Option<u64> {
        self.progress_ns.filter(|_| self.there_bytes() > 0 || !self.is_idle())
    }

    fn begin(&mut self, now_ns: u64, flight: Flight) -> Option<Chunk> {
        let window = self.window?;
        let free = self.wants_to_begin() && !self.stopping;
        let start_ns = now_ns.max(self.busy_ns);
        if !free || now_ns < self.begins_ns(window) {
            return None;
        }
        let until_ns = self.next.map_or(window.until_ns, |next| window.until_ns.min(next.from_ns));
        let room = sent_bytes(until_ns.saturating_sub(start_ns), window.rate_bps);
        let wanted = flight.part_bytes(window.rate_bps).min(self.there_bytes());
        let bytes = if room >= wanted { wanted } else { room / 4096 * 4096 };
        if bytes < wanted.min(PART_BYTES_MIN) {
            // The window is over; or nothing more fits before the next one begins.
            if self.next.is_some_and(|next| next.from_ns <= window.until_ns) {
                self.window = None;
            } else {
                self.stopping = true;
            }
            return None;
        }
        let Window { rate_bps, revision, .. } = window;
        let leaves_ns = start_ns.saturating_add(duration_ns(bytes, rate_bps));
        let begun_ns = now_ns;
        let chunk = Chunk { bytes, rate_bps, begun_ns, leaves_ns, revision, alone: false };
        Some(self.pace(now_ns, chunk))
    }

    /// Returns when the next chunk may begin in a window.
    fn begins_ns(&self, window: Window) -> u64 {
        window.from_ns.max(self.paced_ns.saturating_sub(self.early_ns))
    }

    fn pace(&mut self, now_ns: u64, chunk: Chunk) -> Chunk {
        let due_ns =
            if now_ns.saturating_sub(self.paced_ns) < LATE_NS { self.paced_ns } else { now_ns };
        let takes_ns = duration_ns(chunk.bytes, chunk.rate_bps);
        self.paced_ns = due_ns.saturating_add(takes_ns);
        self.early_ns = LATE_NS.min(takes_ns / EARLY_PARTS);
        self.busy_ns = chunk.leaves_ns;
        self.push(chunk)
    }

    fn push(&mut self, chunk: Chunk) -> Chunk {
        self.left_bytes -= chunk.bytes;
        self.in_flight_bytes += chunk.bytes;
        self.chunks.push_back(chunk);
        chunk
    }

    /// Begins a chunk without a window.
    pub(super) fn begin_alone(&mut self, now_ns: u64, chunk_bytes: u64, rate_bps: u64) -> Chunk {
        let bytes = chunk_bytes.min(self.there_bytes());
        let leaves_ns = now_ns.max(self.busy_ns).saturating_add(duration_ns(bytes, rate_bps));
        let (begun_ns, revision) = (now_ns, self.seen);
        self.pace(now_ns, Chunk { bytes, rate_bps, begun_ns, leaves_ns, revision, alone: true })
    }

    pub(super) fn wants_to_begin(&self) -> bool {
        !self.riding && self.can_begin()
    }

    fn can_begin(&self) -> bool {
        let is_room =
            self.chunks.len() < IN_FLIGHT_LEAST || self.in_flight_bytes < self.flight_bytes;
        self.course == Course::Live && self.there_bytes() > 0 && is_room
    }

    /// Returns the rate of its window that goes unused at this time, and why.
    pub(super) fn idle(&self, now_ns: u64) -> Option<(u64, Idle)> {
        let in_force = |window: &Window| (window.from_ns..window.until_ns).contains(&now_ns);
        let window = self.window.filter(in_force).filter(|_| self.busy_ns <= now_ns)?;
        let why = match () {
            () if self.stopping => Idle::Stopping,
            () if self.there_bytes() == 0 => Idle::Begun,
            () if !self.wants_to_begin() => Idle::Full,
            () => Idle::Due,
        };
        Some((window.rate_bps, why))
    }

    /// Returns when something is due, repeats not counted.
    pub(super) fn next_ns(&self) -> Option<u64> {
        if self.course != Course::Live {
            return self.retires_ns();
        }
        let begins = self.window.filter(|_| self.wants_to_begin() && !self.stopping);
        let begins_ns = begins.map(|window| self.begins_ns(window));
        let progress_ns = self.progress_due_ns().filter(|_| self.window.is_some() && self.obeys());
        let next_ns = self.next.map(|next| next.from_ns);
        // Chunks that have left are forgotten when the next one begins: that comes first, and needs no wake-up of its own.
        let retires_ns = self.retires_ns().filter(|_| begins_ns.is_none());
        [begins_ns, progress_ns, next_ns, retires_ns].into_iter().flatten().min()
    }
}
