//! Registering with the controller that is obeyed.
use super::{Config, Fallback, Input, Machine, RETRY_MOST, UNHEARD_MOST};
use crate::UNPACED_PART_BYTES;
use crate::carried::carried_to;
use crate::register::{RETRY_LEAST, Registration};
use catchment_control::admission::source_side::{Fallback as Alone, GoOn};
use catchment_session::datagrams::socket_to;
use catchment_session::registration::{Admitted, RegisterError, Registered};
use std::time::Instant;

impl Machine {
    pub(super) fn take_registrations(&mut self) {
        let results = std::mem::take(&mut *self.granting.registrations.lock());
        for Registration { at, standby, result } in results {
            if standby {
                self.standby_registered(at, result);
                continue;
            }
            self.registering = false;
            let is_led = std::mem::take(&mut self.is_led);
            match result.map_err(|error| (is_transient(&error), error.to_string())) {
                Ok(admitted) => self.registered(at, admitted),
                // It tried to find out who leads, which is known by now.
                Err(_) if is_led => {}
                Err((transient, reason)) => {
                    tracing::warn!(controller = %self.wish.address(), reason, "not registered; retrying");
                    self.register_at = Some(Instant::now() + self.wish.turn(self.retry));
                    self.retry =
                        if transient { (self.retry * 2).min(RETRY_MOST) } else { RETRY_MOST };
                }
            }
        }
    }

    /// Obeys a controller with which it has registered.
    pub(super) fn registered(&mut self, at: usize, admitted: Admitted) {
        let Admitted { told, root, to, round_trip, asked } = admitted;
        self.retry = RETRY_LEAST;
        self.register_at = None;
        self.wish.follow(at);
        let socket = if self.unheard < UNHEARD_MOST {
            socket_to(to)
        } else {
            tracing::warn!(
                controller = %self.wish.address(),
                "no datagram of the controller comes, so they go over a connection, later; let UDP to its port pass"
            );
            carried_to(self.wish.address(), self.wish.security())
        };
        self.unheard = self.unheard.saturating_add(1);
        match socket {
            Ok(socket) => self.socket = socket,
            Err(error) => {
                tracing::warn!(%to, %error, "cannot send datagrams to the controller; retrying");
                self.register_at = Some(Instant::now() + RETRY_MOST);
                return;
            }
        }
        tracing::info!(controller = %self.wish.address(), source = told.source, term = told.term, "registered");
        self.term = self.term.max(told.term);
        let (source, term) = (told.source, told.term);
        let go_on = self.go_on(&told, asked);
        self.take_settings(told);
        let round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.tell(Input::Registered { source, term, root, round_trip_ns, go_on });
        self.standbys.begin(at);
    }

    /// Returns how it goes on if it sends at its safe rate, with a controller that has told this when it was asked: no faster
    /// than the one before has told, or than this one tells.
    fn go_on(&self, told: &Registered, asked: Instant) -> Option<GoOn> {
        let lowest_bps = self.safe_rate_bps.min(told.safe_rate_bps);
        let Alone::Safe { rate_bps } = alone(self.fallback, lowest_bps) else { return None };
        Some(GoOn { rate_bps, until_ns: self.at_ns(asked).saturating_add(told.safe_ns?) })
    }

    /// Takes what the controller that is obeyed told when the source registered there.
    pub(super) fn take_settings(&mut self, told: Registered) {
        told.notes.iter().for_each(|note| {
            tracing::warn!(controller = %self.wish.address(), note = %note.escape_debug(), "not all as claimed");
        });
        self.safe_rate_bps = told.safe_rate_bps;
        if std::mem::replace(&mut self.max_burst_ns, told.max_burst_ns) != told.max_burst_ns {
            // With the next part.
            self.rate_bps = None;
        }
        let fallback = alone(self.fallback, told.safe_rate_bps);
        let chunk_bytes = (told.chunk_bytes / 4096).max(1) * 4096;
        self.config = Config { lease_ns: told.lease_ns, chunk_bytes, fallback };
        self.configure();
        if told.ranks.len() == self.ranks.len() {
            self.ranks = told.ranks;
        }
        self.small.set(&told.small_bps);
        self.arrivals.set(&told.deadlines_us);
    }

    /// Sets what it was told. Where the queue pair keeps no rate, what is posted leaves at once: shorter parts are posted then,
    /// each when its time has come.
    pub(super) fn configure(&mut self) {
        let paces = self.link.as_ref().is_none_or(|link| link.paces);
        let most = if paces { u64::MAX } else { UNPACED_PART_BYTES };
        let chunk_bytes = self.config.chunk_bytes.min(most);
        self.side.configure(Config { chunk_bytes, ..self.config });
    }

    pub(super) fn register_when_due(&mut self) {
        if self.registering || self.register_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.register_at = None;
        match self.wish.start(self.wish.at(), false, self.term, &self.granting) {
            Ok(()) => self.registering = true,
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread to register; retrying");
                self.register_at = Some(Instant::now() + RETRY_MOST);
            }
        }
    }
}

/// Returns what a source does while no controller answers, whose user wants this and whom a controller told a safe rate; 0 for
/// none.
pub(super) const fn alone(fallback: Fallback, safe_rate_bps: u64) -> Alone {
    match fallback {
        Fallback::SafeRate if safe_rate_bps > 0 => Alone::Safe { rate_bps: safe_rate_bps },
        Fallback::SafeRate | Fallback::Stop => Alone::Stop,
        Fallback::Free => Alone::Free,
    }
}

/// Returns whether the same request may be answered otherwise soon.
fn is_transient(error: &RegisterError) -> bool {
    match error {
        RegisterError::Connect(error) => error.is_transient(),
        RegisterError::Refused { transient, .. } => *transient,
        RegisterError::Stream { .. } | RegisterError::Timeout { .. } => true,
        RegisterError::Answer { .. } | _ => false,
    }
}
