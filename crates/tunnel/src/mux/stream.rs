//! One stream, at one end.
use super::{Event, Fault, Limits, Side};
use crate::frame::{Batch, Frame, Kind};

/// The last word of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Close,
    Reset,
    Refused,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Stream {
    /// Open is to be said.
    to_open: bool,
    /// What is to be said of the service: it accepts, or why not.
    pub(super) answer: Option<Option<Box<str>>>,
    /// Whether the peer may answer still: it has not, and this end asked.
    awaits_answer: bool,
    /// Bytes that may be sent.
    pub(super) room: u32,
    /// Bytes that were received and not consumed.
    pub(super) unread: u32,
    /// Bytes that were consumed and not credited.
    pub(super) owed: u32,
    window: u32,
    peer_window: u32,
    /// No more bytes of this end follow.
    pub(super) finish: bool,
    said_finish: bool,
    heard_finish: bool,
    /// The last word of this end.
    pub(super) last: Option<Word>,
    said_last: bool,
    pub(super) heard_last: bool,
    /// It is in the queue of those with something to say.
    pub(super) queued: bool,
}

impl Stream {
    pub(super) fn new(limits: Limits, opens: bool) -> Self {
        Self {
            to_open: opens,
            answer: None,
            awaits_answer: opens,
            room: limits.peer_window_bytes,
            unread: 0,
            owed: 0,
            window: limits.window_bytes,
            peer_window: limits.peer_window_bytes,
            finish: false,
            said_finish: false,
            heard_finish: false,
            last: None,
            said_last: false,
            heard_last: false,
            queued: false,
        }
    }

    /// Returns whether data of this end may follow.
    pub(super) const fn may_send(&self) -> bool {
        !self.finish && self.last.is_none()
    }

    /// Returns whether credit is due: a peer with half a window left need not wait for it. After a finish nothing
    /// comes for which it would be.
    pub(super) const fn grants(&self, window: u32) -> bool {
        self.owed >= window.div_ceil(2) && !self.heard_finish && !self.heard_last
    }

    pub(super) const fn is_over(&self) -> bool {
        self.said_last && self.heard_last
    }

    /// Adds what is to be said, in order. Returns false if the message is full before.
    pub(super) fn say(&mut self, stream: u32, window: u32, batch: &mut Batch) -> bool {
        if self.to_open {
            if !batch.has_room() {
                return false;
            }
            batch.seal(Kind::Open, stream, 0);
            self.to_open = false;
        }
        if let Some(answer) = self.answer.take() {
            let length = answer.as_ref().map_or(0, |reason| reason.len());
            if !batch.has_room() || batch.room() < length {
                self.answer = Some(answer);
                return false;
            }
            let Some(reason) = answer else {
                batch.seal(Kind::Accepted, stream, 0);
                return self.say(stream, window, batch);
            };
            batch.space(length).copy_from_slice(reason.as_bytes());
            batch.seal(Kind::Refused, stream, length as u32);
            self.said_last = true;
            return true;
        }
        let mut put = |kind, value| {
            let fits = batch.has_room();
            batch.seal(kind, stream, value);
            fits
        };
        if self.last.is_none() && self.grants(window) {
            if !put(Kind::Credit, self.owed) {
                return false;
            }
            self.owed = 0;
        }
        if self.finish && !self.said_finish && self.last != Some(Word::Reset) {
            if !put(Kind::Finish, 0) {
                return false;
            }
            self.said_finish = true;
        }
        let kind = match self.last {
            Some(Word::Close) => Kind::Close,
            Some(Word::Reset) => Kind::Reset,
            Some(Word::Refused) | None => return true,
        };
        self.said_last = self.said_last || put(kind, 0);
        self.said_last
    }

    /// Takes a frame of the peer; returns what happened, if anything did.
    ///
    /// # Errors
    /// [`Fault`]; the session must end.
    pub(super) fn hear<'a>(
        &mut self,
        side: Side,
        frame: &Frame<'a>,
    ) -> Result<Option<Event<'a>>, Fault> {
        let Frame { kind, stream, value, bytes } = *frame;
        let order = Fault::Order { kind, stream };
        if self.heard_last {
            return Err(Fault::State { kind, stream, open: false });
        }
        Ok(match kind {
            Kind::Open => return Err(order),
            Kind::Accepted | Kind::Refused => {
                if side == Side::Service || !std::mem::take(&mut self.awaits_answer) {
                    return Err(order);
                }
                self.heard_last = kind == Kind::Refused;
                if kind == Kind::Accepted {
                    Some(Event::Accepted)
                } else {
                    Some(Event::Refused(
                        std::str::from_utf8(bytes).unwrap_or("a reason that is no text"),
                    ))
                }
            }
            Kind::Data => {
                // A service that answers has accepted.
                if self.heard_finish || self.awaits_answer {
                    return Err(order);
                }
                let room = self.window - self.unread - self.owed;
                if value > room {
                    return Err(Fault::Window { stream, bytes: value, room });
                }
                self.unread += value;
                Some(Event::Data(bytes))
            }
            Kind::Finish => {
                if self.heard_finish || self.awaits_answer {
                    return Err(order);
                }
                self.heard_finish = true;
                Some(Event::Finished)
            }
            Kind::Close => {
                // Both directions were finished and delivered before.
                if !self.heard_finish || !self.said_finish {
                    return Err(order);
                }
                self.heard_last = true;
                None
            }
            Kind::Reset => {
                self.heard_last = true;
                Some(Event::Reset)
            }
            Kind::Credit => {
                let sent = self.peer_window - self.room;
                if value > sent {
                    return Err(Fault::Credit { stream, bytes: value, sent });
                }
                self.room += value;
                Some(Event::Room)
            }
        })
    }
}
