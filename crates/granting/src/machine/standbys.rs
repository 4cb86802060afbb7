//! Controllers that stand by: a source registers with them too, so that one that begins to lead knows it and tells it so.
use super::{Input, Machine, RETRY_MOST, next_datagram};
use crate::register::RETRY_LEAST;
use catchment_control::admission::source_side::{Standby, StandbyOutput};
use catchment_session::carried::DATAGRAM_BYTES_MAX;
use catchment_session::datagrams::socket_to;
use catchment_session::registration::{Admitted, RegisterError, Registered};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// A controller that stands by and knows the source.
struct Known {
    side: Box<Standby>,
    socket: UdpSocket,
    told: Registered,
    due_ns: u64,
}

#[derive(Default)]
struct Other {
    known: Option<Known>,
    /// When it is asked again whether it stands by; `None` while it is asked, is obeyed, or nobody is yet.
    register_at: Option<Instant>,
    pause: Duration,
}

impl Other {
    fn retry(&mut self, pause: Duration) {
        self.known = None;
        self.pause = pause.clamp(RETRY_LEAST, RETRY_MOST);
        self.register_at = Some(Instant::now() + self.pause);
    }
}

/// All controllers of a source, by their places; the one that is obeyed is empty here.
pub(super) struct Standbys(Vec<Other>);

impl Standbys {
    pub(super) fn new(controllers: usize) -> Self {
        Self((0..controllers).map(|_| Other::default()).collect())
    }

    /// Looks for others from now on beside the one that is obeyed.
    pub(super) fn begin(&mut self, obeyed: usize) {
        for (at, other) in self.0.iter_mut().enumerate() {
            if at == obeyed {
                *other = Other::default();
            } else if other.known.is_none() {
                (other.pause, other.register_at) = (RETRY_LEAST, Some(Instant::now()));
            }
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.0.iter().filter_map(|other| other.known.as_ref()).map(|known| &known.socket)
    }

    /// Returns when something is to be sent to one of them, by the clock of the source.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.0.iter().filter_map(|other| other.known.as_ref()).map(|known| known.due_ns).min()
    }

    pub(super) fn register_at(&self) -> Option<Instant> {
        self.0.iter().filter_map(|other| other.register_at).min()
    }
}

impl Machine {
    /// Takes what became of a registration with one that may stand by.
    pub(super) fn standby_registered(
        &mut self,
        at: usize,
        result: Result<Admitted, RegisterError>,
    ) {
        if at == self.wish.at() {
            // It leads by now, and the keys of this registration are the newer ones.
            return if let Ok(admitted) = result {
                self.registered(at, admitted)
            };
        }
        match result {
            Ok(admitted) if admitted.told.term > self.term => self.registered(at, admitted),
            // The one that is obeyed, under another address; it knows the newer keys only.
            Ok(admitted) if admitted.told.term == self.term => {
                let before = self.wish.at();
                self.registered(at, admitted);
                self.standbys.0[before].register_at = None;
            }
            Ok(Admitted { told, root, to, round_trip, .. }) if told.term == 0 => {
                tracing::info!(controller = %self.wish.address_of(at), source = told.source, "a standby knows this source");
                let round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                let now_ns = self.now_ns();
                let side = Box::new(Standby::new(now_ns, told.source, &root, round_trip_ns));
                let other = &mut self.standbys.0[at];
                match socket_to(to) {
                    Ok(socket) => other.known = Some(Known { side, socket, told, due_ns: now_ns }),
                    Err(_) => other.retry(RETRY_MOST),
                }
            }
            // It led before, and does not know yet that another one does; or it is away.
            Ok(_) | Err(_) => {
                let other = &mut self.standbys.0[at];
                other.retry(other.pause * 2);
            }
        }
    }

    /// Does what is to be done with those that stand by.
    pub(super) fn drive_standbys(&mut self) {
        for at in 0..self.standbys.0.len() {
            self.drive_standby(at);
            let other = &mut self.standbys.0[at];
            if other.register_at.is_some_and(|due| due <= Instant::now()) {
                other.register_at = None;
                if self.wish.start(at, true, self.term, &self.granting).is_err() {
                    // There is no thread.
                    other.retry(RETRY_MOST);
                }
            }
        }
    }

    fn drive_standby(&mut self, at: usize) {
        let (now_ns, term) = (self.now_ns(), self.term);
        let other = &mut self.standbys.0[at];
        let Some(Known { side, socket, due_ns, .. }) = &mut other.known else { return };
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        side.handle(now_ns, term, None);
        while let Some(bytes) = next_datagram(socket, &mut buffer) {
            side.handle(now_ns, term, Some(bytes));
        }
        loop {
            match side.poll() {
                StandbyOutput::Transmit(bytes) => {
                    // What is not sent counts as lost.
                    let _ = socket.send(bytes);
                }
                StandbyOutput::Leads { term } => return self.leads(at, term),
                StandbyOutput::Register => return other.retry(RETRY_LEAST),
                StandbyOutput::Timeout(next_ns) => {
                    *due_ns = next_ns;
                    return;
                }
            }
        }
    }

    /// Obeys one that stood by.
    fn leads(&mut self, at: usize, term: u32) {
        let Some(Known { side, socket, told, .. }) = self.standbys.0[at].known.take() else {
            return;
        };
        self.wish.follow(at);
        self.socket = socket;
        tracing::warn!(controller = %self.wish.address(), term, "another controller leads");
        self.term = term;
        (self.retry, self.register_at, self.is_led) = (RETRY_LEAST, None, self.registering);
        self.take_settings(told);
        self.tell(Input::Leads(side));
        self.standbys.begin(at);
    }
}
