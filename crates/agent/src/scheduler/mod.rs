//! Who is served next: deficit rounds at decided rates, without I/O or a clock.
//!
//! An application has a *share* of the device and any number of connections; a connection has requests in
//! order. A request longer than a chunk is served in chunks where it can be split (WRITE, READ), so that
//! nobody waits for more than a chunk of anybody else. Only who is alone gets longer pieces
//! ([`LONGEST_PIECE`]).
//!
//! What a chunk *costs* is its bytes, and [`Limits::request_bytes`] at least: the time of the device that it takes, in
//! bytes that could be moved instead. In each round every application that waits gets a *deficit* in proportion to
//! its share, a *turn* for the largest (so that the least share pays for as many of the least requests as go under one
//! doorbell, but no more than a chunk), and is served while some of it is left; what its last chunk took beyond it is owed (Adiseshu,
//! Parulkar and Varghese, SIGCOMM 1996), a chunk at most. Where nobody has any left, as many rounds follow at once as it takes until somebody has.
//! So while applications wait, what each has been served differs from its share of the total by less than a chunk each; where a part of the
//! window is less than a chunk, it may be by a chunk for each time that the largest share is the least. Its connections take turns
//! (`turns.rs`), so that each is served as much as any other of them, whatever their requests are.
//!
//! An application that has nothing to send loses its deficit with the round, not what it owes: the others get its share at once, and it
//! cannot save up for later. What was granted by other shares than there are now is taken back, but for what it takes until each of
//! those who wait is served once. Whoever comes while a round is under way has his part of it at once, before
//! those who wait already (as new flows in RFC 8290), but no more of it than in a round from its beginning: one who
//! waits for each of his requests does not wait for the batches of all others.
//!
//! What is in the device's hands is bounded, so that the order here decides and not the device: for a
//! connection by its free places, for an application by its part of the window, for all of them by the window, which is eight
//! times as much while nobody else was served for long. Who has nothing there may always have one chunk, and what is there of those who are stuck does not count. What waits for a receive of
//! its peer holds up its own application only: no round begins while somebody who waits is at his bound and
//! the device is at work for others, or for him and he has a part of the round left, so that the pace of the device shifts no shares, but whoever gets
//! nothing done while the device does two windows for others, and two chunks for each of them, or nothing for anybody ([`Scheduler::look`]), is stuck,
//! and rounds go on without him until he has moved some windows again.
//!
//! Where applications have *rates* ([`Scheduler::set_rate`]), each is served what its rate gives in the time that
//! [`Scheduler::refill`] is told of, and no more; rounds go on without who has used that up. What one of a pool
//! ([`Scheduler::set_pool`]) leaves goes to the others of it, by their shares.
mod application;
mod arrivals;
mod behind;
mod budget;
mod most;
mod pace;
mod parts;
mod rounds;
mod turns;

use application::{Application, Connection};
use arrivals::Arrivals;
use behind::Watch;
use pace::Pool;
pub use parts::{ApplicationId, Chunk, ConnectionId, Limits, Served};
use std::collections::VecDeque;
use turns::Turn;

/// What a request costs at least, in bytes, whatever the limits: a device is not free to those who send nothing long.
pub const LEAST_COST_BYTES: u64 = 64;

/// The longest piece that is served at once while nobody else is served: who comes waits for no more.
pub const LONGEST_PIECE: u64 = 1 << 20;

/// The largest window.
const MOST_WINDOW: u64 = 1 << 40;

/// The whole of all shares.
const WHOLE: f64 = 4_294_967_296.0;

/// See the module.
#[derive(Debug)]
pub struct Scheduler {
    chunk: u64,
    window: u64,
    /// What a chunk costs at least.
    request: u64,
    /// What the least share gives in a round where that is possible, and what the largest does.
    least_turn: u64,
    turn: u64,
    /// What the largest share was given in the round that is under way.
    given: u64,
    applications: Vec<Option<Application>>,
    connections: Vec<Option<Connection>>,
    /// What applications leave of their rates, by the first of each pool.
    pools: Vec<Pool>,
    arrivals: Arrivals,
    /// Applications with requests.
    active: Vec<usize>,
    cursor: usize,
    /// Those of them that came while a round was under way and have not had their part of it.
    fresh: VecDeque<usize>,
    /// Whose turn it is, and what of it he was served: what is in the device's hands does not cut it short, so that
    /// requests go together.
    turn_of: Option<(usize, u64)>,
    /// Of the last round; kept for its memory.
    parts: Vec<rounds::Part>,
    /// The number of the round, and the largest share that takes part in it.
    round: u64,
    largest: u64,
    /// Bytes that the device has done and has in its hands, for all.
    done: u64,
    in_flight: u64,
    /// Of these, what those have who were stuck when it was last looked for them, and what was done then.
    stuck: u64,
    looked_at: u64,
    /// Who was served last, and what was done when it was another one.
    last: usize,
    alone_since: u64,
    /// What was done at the last [`Scheduler::look`].
    seen: u64,
    /// The shares of those who wait or have something in the device's hands.
    busy_shares: u64,
    /// The bytes of the window that one of these shares gives, times 2^32.
    window_of_one: u128,
    /// Applications that have a most.
    bounded: usize,
    /// Whether rates are kept.
    watch: Watch,
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
    /// Creates a scheduler without applications.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let chunk = u64::from(limits.chunk_bytes).max(LEAST_COST_BYTES);
        let request = u64::from(limits.request_bytes).max(LEAST_COST_BYTES);
        Self {
            chunk,
            window: limits.window_bytes.clamp(chunk, MOST_WINDOW),
            request,
            least_turn: rounds::TURN_REQUESTS * request,
            turn: chunk.min(rounds::TURN_REQUESTS * request).max(request),
            given: chunk,
            applications: Vec::new(),
            connections: Vec::new(),
            pools: Vec::new(),
            arrivals: Arrivals::default(),
            active: Vec::new(),
            cursor: 0,
            fresh: VecDeque::new(),
            turn_of: None,
            parts: Vec::new(),
            round: 0,
            largest: 1,
            done: 0,
            in_flight: 0,
            stuck: 0,
            looked_at: 0,
            last: 0,
            alone_since: 0,
            seen: 0,
            busy_shares: 0,
            window_of_one: 0,
            bounded: 0,
            watch: Watch::default(),
        }
    }

    /// Creates one that knows no shares: requests are served whole, in the order in which they come, and nothing
    /// but the places of their connections bounds what is in the device's hands. What applications get through
    /// an agent without an order of its own, to compare with.
    #[must_use]
    pub fn unlimited() -> Self {
        let limits = Limits { chunk_bytes: 0, window_bytes: u64::MAX, request_bytes: 0 };
        Self { arrivals: Arrivals::counting(), ..Self::new(limits) }
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
        let mut is_other = false;
        for (id, rate) in rates {
            // A rate that is not a number becomes the least share.
            let share = ((rate / sum * WHOLE) as u64).max(1);
            self.uncount(id.0);
            is_other |= std::mem::replace(&mut self.application(id.0).share, share) != share;
            self.count(id.0);
        }
        if is_other {
            self.take_back();
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
        self.set_most(id, None);
        self.applications[id.0] = None;
        self.end_pool(id.0);
    }

    /// Adds a connection that may have so many chunks in the device's hands.
    pub fn add_connection(&mut self, application: ApplicationId, places: u32) -> ConnectionId {
        let (requests, application) = (VecDeque::new(), application.0);
        let (offset, paused, queued, turn) = (0, false, false, Turn::default());
        let connection = Connection { application, requests, offset, places, paused, queued, turn };
        ConnectionId(insert(&mut self.connections, connection))
    }

    /// Removes a connection with its requests, and the chunks that it has in the device's hands, as
    /// [`Scheduler::clear`] does.
    pub fn remove_connection(&mut self, id: ConnectionId, flying: &[u64]) {
        self.clear(id, flying);
        self.unqueue(id.0);
        self.connections[id.0] = None;
    }

    /// Forgets the requests of a connection, and the chunks that it has in the device's hands, of so many bytes each.
    pub fn clear(&mut self, id: ConnectionId, flying: &[u64]) {
        let in_flight_bytes = flying.iter().map(|bytes| self.cost_bytes(*bytes)).sum();
        let connection = self.connection(id.0);
        let forgotten = connection.requests.len() as u64;
        connection.requests.clear();
        connection.offset = 0;
        connection.places += flying.len() as u32;
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
        let bytes = bytes.min(self.application(owner).in_flight);
        self.done += bytes;
        self.in_flight -= bytes;
        self.count_moved(owner, bytes);
        let done = self.done;
        let application = self.application(owner);
        application.in_flight -= bytes;
        application.moved_at = done;
        self.count(owner);
        if self.done - self.looked_at > self.window {
            self.look_for_stuck();
        }
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
            self.join_round(owner);
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
        self.landed(owner, self.cost_bytes(bytes));
        self.queue(id.0);
    }

    /// Returns what a chunk of so many bytes costs.
    #[inline]
    #[must_use]
    pub fn cost_bytes(&self, bytes: u64) -> u64 {
        bytes.max(self.request)
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

    /// Returns whether nothing waits and the device has nothing in its hands.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.in_flight == 0
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
            if let Some(chunk) = self.serve_fresh(window_of_one) {
                return Some(chunk);
            }
            let count = self.active.len();
            for at in (self.cursor..count).chain(0..self.cursor.min(count)) {
                let owner = self.active[at];
                if let Some((connection, bytes)) = self.with_part(owner, window_of_one) {
                    self.cursor = at;
                    return Some(self.serve(owner, connection, bytes));
                }
            }
            // Passes end: after a grant at least one application has a part of the round.
            if !self.grant(window_of_one) {
                return None;
            }
        }
    }

    fn serve(&mut self, owner: usize, at: usize, bytes: u64) -> Chunk {
        let cost = self.cost_bytes(bytes);
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
        if !self.arrivals.rule() {
            let (application, connection) = self.both(owner, at);
            application.turns.serve(at, &mut connection.turn, cost);
        }
        let application = self.application(owner);
        if application.in_flight == 0 {
            application.moved_at = done;
        }
        application.deficit = application.deficit.saturating_sub(rounds::as_deficit(cost));
        application.in_flight += cost;
        application.spend(cost);
        application.served.chunks += 1;
        application.served.bytes += bytes.max(LEAST_COST_BYTES);
        application.served.cost_bytes += cost;
        application.waiting -= u64::from(last);
        let stuck = if application.stuck_for > 0 { cost } else { 0 };
        self.stuck += stuck;
        self.in_flight += cost;
        if self.last != owner {
            (self.last, self.alone_since) = (owner, self.done);
        }
        let began = self.turn_of.filter(|(of, used)| *of == owner && *used < self.turn);
        self.turn_of = Some((owner, cost + began.map_or(0, |(_, used)| used)));
        let application = self.application(owner);
        if application.waiting == 0 {
            application.served.emptied += 1;
            self.deactivate(owner);
        } else {
            self.put_back(owner, at);
        }
        Chunk { connection: ConnectionId(at), offset, bytes, last }
    }

    /// Puts a connection into the queue of its application if it can be served.
    fn queue(&mut self, at: usize) {
        if let Some(owner) = self.enter(at) {
            let (application, connection) = self.both(owner, at);
            application.turns.add(at, &mut connection.turn);
        }
    }

    /// The same for one that was just served.
    fn put_back(&mut self, owner: usize, at: usize) {
        let stays = self.enter(at).is_some();
        let (application, connection) = self.both(owner, at);
        if stays {
            application.turns.put_back(at, &connection.turn);
        }
        application.turns.begin_round_if_over();
    }

    /// Notes that a connection waits to be served, if it can be and does not yet; returns its application, if that takes turns.
    fn enter(&mut self, at: usize) -> Option<usize> {
        let connection = self.connection(at);
        let can = !connection.paused && connection.places > 0 && !connection.requests.is_empty();
        if !can || connection.queued {
            return None;
        }
        connection.queued = true;
        let (owner, first) = (connection.application, connection.requests.front().copied());
        self.arrivals.add(first, at);
        (!self.arrivals.rule()).then_some(owner)
    }

    fn unqueue(&mut self, at: usize) {
        let connection = self.connection(at);
        if std::mem::take(&mut connection.queued) {
            let owner = connection.application;
            self.application(owner).turns.remove(at);
            self.arrivals.forget(|other| other == at);
        }
    }

    fn deactivate(&mut self, owner: usize) {
        self.forget_fresh(owner);
        if let Some(application) = &mut self.applications[owner] {
            (application.is_behind, application.is_full) = (false, false);
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

    fn both(&mut self, owner: usize, at: usize) -> (&mut Application, &mut Connection) {
        let both = (self.applications[owner].as_mut(), self.connections[at].as_mut());
        both.0.zip(both.1).expect("both are used until they are removed")
    }

    fn connection(&mut self, at: usize) -> &mut Connection {
        self.connections[at].as_mut().expect("a connection is used until it is removed")
    }
}
