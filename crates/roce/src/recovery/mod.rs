//! Recovery of lost request packets: which PSN to retransmit, and when.
//!
//! The requester uses [`Engine`], which has two strategies, one file each: [`go_back_n`] of the
//! standard, and [`selective`] between two of our stacks. Both know PSNs only, not messages. Their
//! common timer is in [`rto`]; the receiving side of selective repeat is [`reorder`], its packet
//! format [`sack`].
mod bits;
mod go_back_n;
pub(crate) mod reorder;
pub(crate) mod rto;
pub(crate) mod sack;
mod selective;

use crate::counters::Counters;
use crate::pacing::Progress;
use crate::{Psn, Recovery};
use go_back_n::GoBackN;
use rto::Rto;
use sack::Sack;
use selective::Selective;

/// The strategy of a requester.
#[derive(Debug)]
pub(crate) enum Engine {
    GoBackN(GoBackN),
    Selective(Box<Selective>),
}

/// The environment of an engine.
pub(crate) struct Clock<'a> {
    pub(crate) now_ns: u64,
    pub(crate) rto: &'a mut Rto,
    pub(crate) counters: &'a mut Counters,
}

impl Engine {
    pub(crate) fn new(recovery: Recovery, first: Psn) -> Self {
        match recovery {
            Recovery::GoBackN => Self::GoBackN(GoBackN::new(first)),
            Recovery::SelectiveRepeat => Self::Selective(Box::new(Selective::new(first))),
        }
    }

    pub(crate) fn is_selective(&self) -> bool {
        matches!(self, Self::Selective(_))
    }

    /// Returns the oldest PSN not acknowledged in order.
    pub(crate) fn una(&self) -> Psn {
        match self {
            Self::GoBackN(engine) => engine.una,
            Self::Selective(engine) => engine.una,
        }
    }

    /// Returns the first PSN never sent.
    pub(crate) fn next(&self) -> Psn {
        match self {
            Self::GoBackN(engine) => engine.next,
            Self::Selective(engine) => engine.next(),
        }
    }

    /// Returns the number of PSNs from `una` to `next`.
    pub(crate) fn in_flight(&self) -> u32 {
        self.next().distance_from(self.una()).max(0).cast_unsigned()
    }

    /// Returns whether `psn` was sent and is not acknowledged in order.
    pub(crate) fn covers(&self, psn: Psn) -> bool {
        psn.distance_from(self.una()) >= 0 && psn.distance_from(self.next()) < 0
    }

    /// Returns the payload bytes of request packets from `una` to `next` that are not in flight:
    /// the peer keeps them, or they are lost.
    pub(crate) fn settled_bytes(&self) -> u64 {
        match self {
            Self::GoBackN(_) => 0,
            Self::Selective(engine) => engine.settled_bytes,
        }
    }

    /// Notes that a request packet of `span` PSNs and this payload leaves: for the first time if
    /// `psn` is `next`.
    pub(crate) fn on_sent(&mut self, psn: Psn, span: u32, bytes: u16, now_ns: u64) {
        match self {
            Self::GoBackN(engine) => engine.on_sent(psn, span, now_ns),
            Self::Selective(engine) => engine.on_sent(psn, span, bytes, now_ns),
        }
    }

    /// Returns the PSN to retransmit before anything new.
    pub(crate) fn next_lost(&mut self) -> Option<Psn> {
        match self {
            Self::GoBackN(engine) => engine.next_lost(),
            Self::Selective(engine) => engine.next_lost(),
        }
    }

    /// Notes that everything up to and including `psn`, which [`Engine::covers`], has arrived.
    pub(crate) fn on_ack(&mut self, psn: Psn, clock: &mut Clock<'_>) {
        match self {
            Self::GoBackN(engine) => engine.on_ack(psn, clock),
            Self::Selective(engine) => engine.on_ack(psn, clock),
        }
    }

    /// Handles a SACK after [`Engine::on_ack`] of its cumulative part. Returns whether something
    /// new has arrived.
    pub(crate) fn on_sack(&mut self, sack: &Sack<'_>, clock: &mut Clock<'_>) -> bool {
        match self {
            Self::GoBackN(_) => false,
            Self::Selective(engine) => engine.on_sack(sack, clock),
        }
    }

    /// Handles a NAK for the missing `psn`, which [`Engine::covers`], after [`Engine::on_ack`] of
    /// what precedes it. A peer that repeats selectively sends none.
    pub(crate) fn on_sequence_nak(&mut self, psn: Psn, clock: &mut Clock<'_>) {
        match self {
            Self::GoBackN(engine) => engine.on_sequence_nak(psn, clock),
            Self::Selective(_) => {}
        }
    }

    /// Notes that the peer has answered `psn`, before [`Engine::on_ack`] of what precedes it.
    pub(crate) fn on_answered(&mut self, psn: Psn) {
        match self {
            Self::GoBackN(_) => {}
            Self::Selective(engine) => engine.on_answered(psn),
        }
    }

    /// Notes that the peer has answered what is kept, before [`Engine::on_ack`] of the cumulative part.
    pub(crate) fn on_kept(&mut self, sack: &Sack<'_>) {
        match self {
            Self::GoBackN(_) => {}
            Self::Selective(engine) => engine.on_kept(sack),
        }
    }

    /// Handles an RNR NAK: the responder dropped `psn`, which [`Engine::covers`].
    pub(crate) fn on_rnr_nak(&mut self, psn: Psn) {
        match self {
            Self::GoBackN(engine) => engine.go_back(psn),
            Self::Selective(engine) => engine.on_refused(psn),
        }
    }

    /// Detects losses by time.
    pub(crate) fn on_time(&mut self, clock: &mut Clock<'_>) {
        match self {
            Self::GoBackN(_) => {}
            Self::Selective(engine) => engine.detect(clock),
        }
    }

    /// Returns when [`Engine::on_time`] may detect a loss.
    pub(crate) fn loss_time_ns(&self) -> Option<u64> {
        match self {
            Self::GoBackN(_) => None,
            Self::Selective(engine) => engine.loss_time_ns,
        }
    }

    /// Returns the number of the next transmission; `None` if the strategy does not number them.
    pub(crate) fn next_transmission(&self) -> Option<u32> {
        match self {
            Self::GoBackN(_) => None,
            Self::Selective(engine) => Some(engine.next_transmission()),
        }
    }

    /// Returns whether this transmission, or a later one, has arrived.
    pub(crate) fn has_arrived(&self, transmission: u32) -> bool {
        match self {
            Self::GoBackN(_) => false,
            Self::Selective(engine) => engine.has_arrived(transmission),
        }
    }

    /// Returns what has arrived and what was lost since the beginning.
    pub(crate) fn progress(&self) -> Progress {
        match self {
            Self::GoBackN(_) => Progress::default(),
            Self::Selective(engine) => engine.progress,
        }
    }

    /// Retransmits one packet to make a silent peer answer before the timeout; returns false if the
    /// strategy has no probes.
    pub(crate) fn probe(&mut self) -> bool {
        match self {
            Self::GoBackN(_) => false,
            Self::Selective(engine) => engine.probe(),
        }
    }

    /// Handles the timeout: everything not known to have arrived is lost.
    pub(crate) fn on_timeout(&mut self) {
        match self {
            Self::GoBackN(engine) => engine.go_back(engine.una),
            Self::Selective(engine) => engine.on_timeout(),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::GoBackN(_) => 0,
            Self::Selective(engine) => engine.heap_bytes(),
        }
    }
}
