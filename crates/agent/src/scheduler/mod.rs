//! Who is served next: deficit rounds at decided rates, without I/O or a clock.
//!
//! An application has a *share* of the device and any number of connections; a connection has requests in
//! order. A request longer than a chunk is served in chunks where it can be split (WRITE, READ), so that
//! nobody waits for more than a chunk of anybody else. Only who is alone gets longer pieces
//! ([`LONGEST_PIECE`]).
//!
//! In each round every application that waits gets a *deficit* in proportion to its share, a whole chunk for
//! the largest, and is served while its deficit pays for its next chunk (Shreedhar and Varghese, SIGCOMM
//! 1995). So while applications wait, what each has been served differs from its share of the total by less
//! than a chunk each. Only an application whose part of the window is less than a chunk may get more, a chunk for
//! each window of the others. An application that has nothing to send loses its deficit: the others get its share
//! at once, and it cannot save up for later. Its connections take turns, a chunk each.
//!
//! What is in the device's hands is bounded, so that the order here decides and not the device: for a
//! connection by its free places, for an application by its part of the window. What waits for a receive of
//! its peer holds up its own application only: no round begins while somebody who waits is at his bound and
//! the device is at work for others, so that the pace of the device shifts no shares; but whoever gets
//! nothing done while the device does two windows for others is stuck, and rounds go on without him.
//!
//! Where applications have *rates* ([`Scheduler::set_rate`]), each is served what its rate gives in the time that
//! [`Scheduler::refill`] is told of, and no more; rounds go on without who has used that up.
mod application;
mod arrivals;
mod pace;
mod parts;

use application::{Application, Connection};
use arrivals::{Arrivals, Request};
pub use parts::{ApplicationId, Chunk, ConnectionId, Served};
use std::collections::VecDeque;

/// What a request costs at least, in bytes: a device is not free to those who send nothing long.
pub const LEAST_COST_BYTES: u64 = 64;

/// The longest piece that is served at once while nobody else is served: who comes waits for no more.
pub const LONGEST_PIECE: u64 = 1 << 20;

/// Bits of the fraction in which deficits are counted, so that odd shares do not add up to an error.
const FRACTION: u32 = 16;
/// The whole of all shares.
const WHOLE: f64 = 4_294_967_296.0;

/// See the module.
#[derive(Debug)]
pub struct Scheduler {
    chunk: u64,
    window: u64,
    applications: Vec<Option<Application>>,
    connections: Vec<Option<Connection>>,
    arrivals: Arrivals,
    /// Applications with requests.
    active: Vec<usize>,
    cursor: usize,
    /// Bytes that the device has done and has in its hands, for all.
    done: u64,
    in_flight: u64,
    /// The shares of those who wait or have something in the device's hands.
    busy_shares: u64,
    /// The bytes of the window that one of these shares gives, times 2^32.
    window_of_one: u128,
}

fn cost(bytes: u64) -> u64 {
    bytes.max(LEAST_COST_BYTES)
}

/// Puts a value into the first free place, and returns the place.
fn insert<T>(all: &mut Vec<Option<T>>, value: T) -> usize {
    let free = all.iter().position(Option::is_none).unwrap_or_else(|| {
        all.push(None);
        all.len() - 1
    });
    all[free] = Some(value);
    free
}

impl Scheduler {
    /// Creates a scheduler without applications. Requests are split into chunks of `chunk_bytes`; all
    /// applications together have about `window_bytes` in the device's hands.
    #[must_use]
    pub fn new(chunk_bytes: u32, window_bytes: u64) -> Self {
        let chunk = u64::from(chunk_bytes).max(LEAST_COST_BYTES);
        Self {
            chunk,
            window: window_bytes.clamp(chunk, 1 << 40),
            applications: Vec::new(),
            connections: Vec::new(),
            arrivals: Arrivals::default(),
            active: Vec::new(),
            cursor: 0,
            done: 0,
            in_flight: 0,
            busy_shares: 0,
            window_of_one: 0,
        }
    }

    /// Creates one that knows no shares: requests are served whole, in the order in which they come, and nothing
    /// but the places of their connections bounds what is in the device's hands. What applications get through
    /// an agent without an order of its own, to compare with.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { arrivals: Arrivals::counting(), ..Self::new(0, u64::MAX) }
    }

    /// Adds an application without a share: [`Scheduler::set_shares`] must follow.
    pub fn add_application(&mut self) -> ApplicationId {
        ApplicationId(insert(
            &mut self.applications,
            Application { share: 1, ..Application::default() },
        ))
    }

    /// Sets the shares of applications: rates in any unit, above 0, the same for all. An application that is
    /// not named keeps its share.
    pub fn set_shares(&mut self, rates: &[(ApplicationId, f64)]) {
        let sum: f64 = rates.iter().map(|(_, rate)| rate).sum();
        for (id, rate) in rates {
            // A rate that is not a number becomes the least share.
            let share = (rate / sum * WHOLE) as u64;
            self.uncount(id.0);
            self.application(id.0).share = share.max(1);
            self.count(id.0);
        }
    }

    /// Takes the share of an application out of the sum.
    fn uncount(&mut self, owner: usize) {
        let application = self.application(owner);
        if std::mem::take(&mut application.counted) {
            self.busy_shares -= self.application(owner).share;
            self.window_of_one = 0;
        }
    }

    /// Notes whether an application has something to do.
    #[inline]
    fn count(&mut self, owner: usize) {
        let application = self.application(owner);
        let is_busy = application.waiting > 0 || application.in_flight > 0;
        if is_busy == application.counted {
            return;
        }
        if is_busy {
            application.counted = true;
            self.busy_shares += self.application(owner).share;
            self.window_of_one = 0;
        } else {
            self.uncount(owner);
        }
    }

    /// Removes an application and its connections.
    pub fn remove_application(&mut self, id: ApplicationId) {
        for slot in &mut self.connections {
            if slot.as_ref().is_some_and(|connection| connection.application == id.0) {
                *slot = None;
            }
        }
        let connections = &self.connections;
        self.arrivals.forget(|at| connections[at].is_none());
        self.deactivate(id.0);
        // What it has in the device's hands keeps nobody waiting any more.
        let in_flight = self.application(id.0).in_flight;
        self.landed(id.0, in_flight);
        self.uncount(id.0);
        self.applications[id.0] = None;
    }

    /// Adds a connection that may have so many chunks in the device's hands.
    pub fn add_connection(&mut self, application: ApplicationId, places: u32) -> ConnectionId {
        let (requests, application) = (VecDeque::new(), application.0);
        let (offset, paused, queued) = (0, false, false);
        let connection = Connection { application, requests, offset, places, paused, queued };
        ConnectionId(insert(&mut self.connections, connection))
    }

    /// Removes a connection with its requests. What it has in the device's hands counts as done.
    pub fn remove_connection(&mut self, id: ConnectionId, in_flight_bytes: u64) {
        self.clear(id, in_flight_bytes, 0);
        self.unqueue(id.0);
        self.connections[id.0] = None;
    }

    /// Forgets the requests of a connection, and the chunks that it has in the device's hands: so many
    /// bytes, counted as [`Scheduler::done`] does, and places.
    pub fn clear(&mut self, id: ConnectionId, in_flight_bytes: u64, places: u32) {
        let connection = self.connection(id.0);
        let forgotten = connection.requests.len() as u64;
        connection.requests.clear();
        connection.offset = 0;
        connection.places += places;
        let owner = connection.application;
        let application = self.application(owner);
        application.waiting -= forgotten;
        if forgotten > 0 && application.waiting == 0 {
            application.served.emptied += 1;
            self.deactivate(owner);
        }
        self.unqueue(id.0);
        self.landed(owner, in_flight_bytes);
    }

    /// Notes that the device has this much less of an application in its hands.
    fn landed(&mut self, owner: usize, bytes: u64) {
        self.done += bytes;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let done = self.done;
        let application = self.application(owner);
        application.in_flight = application.in_flight.saturating_sub(bytes);
        application.moved_at = done;
        self.count(owner);
    }

    /// Adds a request of so many bytes behind those of its connection; `splits` if it can be served in
    /// chunks.
    pub fn push(&mut self, id: ConnectionId, bytes: u64, splits: bool) {
        let request = self.arrivals.request(bytes, splits);
        let connection = self.connection(id.0);
        connection.requests.push_back(request);
        let owner = connection.application;
        let done = self.done;
        let application = self.application(owner);
        application.waiting += 1;
        if application.waiting == 1 {
            application.moved_at = done;
            self.active.push(owner);
            self.count(owner);
        }
        self.queue(id.0);
    }

    /// Serves nothing of a connection until [`Scheduler::resume`].
    pub fn pause(&mut self, id: ConnectionId) {
        self.connection(id.0).paused = true;
        self.unqueue(id.0);
    }

    /// Ends a pause.
    pub fn resume(&mut self, id: ConnectionId) {
        self.connection(id.0).paused = false;
        self.queue(id.0);
    }

    /// Notes that the device is done with a chunk of so many bytes.
    pub fn done(&mut self, id: ConnectionId, bytes: u64) {
        let connection = self.connection(id.0);
        connection.places += 1;
        let owner = connection.application;
        self.landed(owner, cost(bytes));
        self.queue(id.0);
    }

    /// Returns what a chunk of so many bytes counts in the device's hands.
    #[must_use]
    pub fn weight_bytes(bytes: u64) -> u64 {
        cost(bytes)
    }

    /// Returns what an application has been served.
    #[must_use]
    pub fn served(&self, id: ApplicationId) -> Served {
        self.applications[id.0].as_ref().map_or_else(Served::default, |known| known.served)
    }

    /// Returns the requests of an application that are not served completely.
    #[must_use]
    pub fn waiting(&self, id: ApplicationId) -> u64 {
        self.applications[id.0].as_ref().map_or(0, |known| known.waiting)
    }

    /// Returns what to send now; `None` while nothing waits, or nothing that may go.
    pub fn next_chunk(&mut self) -> Option<Chunk> {
        if self.arrivals.rule() {
            let at = self.arrivals.first()?;
            let connection = self.connection(at);
            let (owner, bytes) = (connection.application, connection.requests.front()?.bytes);
            return Some(self.serve(owner, at, bytes));
        }
        loop {
            let window_of_one = self.window_of_one();
            for step in 0..self.active.len() {
                let at = (self.cursor + step) % self.active.len();
                let owner = self.active[at];
                let Some((connection, bytes)) = self.offer(owner, window_of_one) else { continue };
                if self.application(owner).deficit >= cost(bytes) << FRACTION {
                    self.cursor = at;
                    return Some(self.serve(owner, connection, bytes));
                }
            }
            // Passes end: after a grant the deficit of at least one application pays.
            if !self.grant(window_of_one) {
                return None;
            }
        }
    }

    /// Returns the bytes of the window that one of the shares gives, times 2^32. Who is alone has it all.
    #[inline]
    fn window_of_one(&mut self) -> u128 {
        if self.window_of_one == 0 && self.active.len() > 1 {
            self.window_of_one =
                (u128::from(self.window) << 32) / u128::from(self.busy_shares.max(1));
        }
        self.window_of_one
    }

    #[inline]
    fn window_of(&self, application: &Application, window_of_one: u128) -> u64 {
        if application.share >= self.busy_shares {
            return self.window;
        }
        let one = if window_of_one > 0 {
            window_of_one
        } else {
            (u128::from(self.window) << 32) / u128::from(self.busy_shares)
        };
        let part = (one * u128::from(application.share)) >> 32;
        u64::try_from(part).unwrap_or(u64::MAX).max(self.chunk)
    }

    /// Returns the longest piece that an application is served at once: while nobody else has anything to do,
    /// there is no reason to split what fits the window.
    #[inline]
    fn piece(&self, application: &Application) -> u64 {
        if application.share >= self.busy_shares && application.pace.is_none() {
            self.window.min(LONGEST_PIECE)
        } else {
            self.chunk
        }
    }

    /// Returns the next chunk of an application that may go: its connection and length.
    fn offer(&self, owner: usize, window_of_one: u128) -> Option<(usize, u64)> {
        let application = self.applications[owner].as_ref()?;
        if application.is_throttled() {
            return None;
        }
        let first = *application.ready.front()?;
        let connection = self.connections[first].as_ref()?;
        let Request { bytes, splits, .. } = *connection.requests.front()?;
        let rest = bytes - connection.offset;
        let bytes = if splits { rest.min(self.piece(application)) } else { rest };
        let window = self.window_of(application, window_of_one);
        (application.in_flight < window).then_some((first, bytes))
    }

    fn serve(&mut self, owner: usize, at: usize, bytes: u64) -> Chunk {
        let connection = self.connection(at);
        let offset = connection.offset;
        let first = connection.requests.front().copied();
        let last = first.is_none_or(|request| offset + bytes == request.bytes);
        if last {
            connection.requests.pop_front();
            connection.offset = 0;
        } else {
            connection.offset += bytes;
        }
        connection.places -= 1;
        connection.queued = false;
        self.arrivals.remove(first);
        let done = self.done;
        let application = self.application(owner);
        if application.ready.front() == Some(&at) {
            application.ready.pop_front();
        } else {
            application.ready.retain(|other| *other != at);
        }
        if application.in_flight == 0 {
            application.moved_at = done;
        }
        application.deficit = application.deficit.saturating_sub(cost(bytes) << FRACTION);
        application.in_flight += cost(bytes);
        if let Some(pace) = &mut application.pace {
            pace.spend(cost(bytes));
        }
        application.served.chunks += 1;
        application.served.bytes += cost(bytes);
        application.waiting -= u64::from(last);
        self.in_flight += cost(bytes);
        let application = self.application(owner);
        if application.waiting == 0 {
            application.served.emptied += 1;
            self.deactivate(owner);
        } else {
            self.queue(at);
        }
        Chunk { connection: ConnectionId(at), offset, bytes, last }
    }

    /// Begins as many rounds as it takes until somebody's deficit pays for his next chunk; false if nobody
    /// has one that may go, or somebody must be waited for.
    fn grant(&mut self, window_of_one: u128) -> bool {
        let mut largest = 1;
        for owner in &self.active {
            let Some(application) = &self.applications[*owner] else { continue };
            let may_go = self.offer(*owner, window_of_one).is_some();
            if !may_go && (application.is_throttled() || self.is_stuck(application)) {
                continue;
            }
            largest = largest.max(application.share);
            if !may_go && self.in_flight > application.in_flight {
                return false;
            }
        }
        let chunk = u128::from(self.chunk << FRACTION);
        let quantum =
            |share: u64| ((chunk * u128::from(share) / u128::from(largest)) as u64).max(1);
        let mut rounds = u64::MAX;
        for owner in &self.active {
            let Some((_, bytes)) = self.offer(*owner, window_of_one) else { continue };
            let Some(application) = &self.applications[*owner] else { continue };
            let missing = (cost(bytes) << FRACTION).saturating_sub(application.deficit);
            rounds = rounds.min(missing.div_ceil(quantum(application.share)).max(1));
        }
        if rounds == u64::MAX {
            return false;
        }
        for at in 0..self.active.len() {
            let owner = self.active[at];
            let may_go = self.offer(owner, window_of_one).is_some();
            let Some(application) = &self.applications[owner] else { continue };
            if !may_go && (application.is_throttled() || self.is_stuck(application)) {
                continue;
            }
            let granted = quantum(application.share).saturating_mul(rounds);
            let mut deficit = application.deficit.saturating_add(granted);
            if !may_go {
                // It did not lose its turn for want of requests; but it is never paid for more than a window.
                let most = self.window_of(application, window_of_one) << FRACTION;
                deficit = deficit.min(most.max(application.deficit));
            }
            self.application(owner).deficit = deficit;
        }
        true
    }

    /// Returns whether the device does nothing for an application while it works for others.
    fn is_stuck(&self, application: &Application) -> bool {
        self.done - application.moved_at > 2 * self.window
    }

    /// Puts a connection into the queue of its application if it can be served.
    fn queue(&mut self, at: usize) {
        let connection = self.connection(at);
        let can = !connection.paused && connection.places > 0 && !connection.requests.is_empty();
        if !can || connection.queued {
            return;
        }
        connection.queued = true;
        let (owner, first) = (connection.application, connection.requests.front().copied());
        self.arrivals.add(first, at);
        self.application(owner).ready.push_back(at);
    }

    fn unqueue(&mut self, at: usize) {
        let connection = self.connection(at);
        if std::mem::take(&mut connection.queued) {
            let owner = connection.application;
            self.application(owner).ready.retain(|other| *other != at);
            self.arrivals.forget(|other| other == at);
        }
    }

    fn deactivate(&mut self, owner: usize) {
        if let Some(application) = &mut self.applications[owner] {
            application.deficit = 0;
        }
        let Some(at) = self.active.iter().position(|other| *other == owner) else { return };
        self.active.remove(at);
        if at < self.cursor {
            self.cursor -= 1;
        }
    }

    fn application(&mut self, at: usize) -> &mut Application {
        self.applications[at].as_mut().expect("an application is used until it is removed")
    }

    fn connection(&mut self, at: usize) -> &mut Connection {
        self.connections[at].as_mut().expect("a connection is used until it is removed")
    }
}
