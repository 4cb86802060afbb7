//! The multiplexer: many connections in one sequence of messages. No I/O, no clock.
//!
//! - In: what the sockets of this end do ([`Mux::open`], [`Mux::sent`], [`Mux::finish`], …), and messages
//!   of the peer ([`Mux::receive`]).
//! - Out: [`Event`]s for the sockets, and frames for the peer, which [`Mux::fill`] and [`Mux::sent`] put
//!   into a [`Batch`].
//!
//! Messages arrive whole, in order and once, as a channel delivers them, or the session is over. A stream
//! begins with `Open`, of the end that has the clients. Each end says one last word of it, `Close`, `Reset`
//! or `Refused`, and forgets it once it has said and heard one; so its number means one stream at a time.
//! Of the bytes of a stream no more than the window are at an end at a time: an end that gets more is
//! right to end the session.
mod stream;

use crate::frame::{self, Batch, FrameError, Kind, REASON_BYTES};
use std::collections::VecDeque;
use stream::{Stream, Word};

/// Most streams of a session.
pub const MOST_STREAMS: u32 = 65_536;

/// What both ends agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Streams at a time.
    pub streams: u32,
    /// Bytes of a stream that this end takes before they are consumed.
    pub window_bytes: u32,
    /// The same of the peer.
    pub peer_window_bytes: u32,
}

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Clients connect here: it opens streams.
    Client,
    /// Services are here: it answers.
    Service,
}

/// What the peer did.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A client has connected. The answer is [`Mux::accept`] or [`Mux::refuse`].
    Opened,
    /// The service has accepted.
    Accepted,
    /// The service has not, and why. The stream is over.
    Refused(&'a str),
    /// Bytes for the socket; [`Mux::consume`] them when it has taken them.
    Data(&'a [u8]),
    /// No more bytes follow.
    Finished,
    /// The stream is over; so should be the socket.
    Reset,
    /// More may be sent.
    Room,
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Bytes that are no frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A number beyond the streams that were agreed on.
    #[error("stream {stream} is out of range: {limit} streams are agreed on")]
    Range {
        /// The number.
        stream: u32,
        /// How many there are.
        limit: u32,
    },
    /// A frame of a stream that is not open, or an `Open` of one that is.
    #[error("a frame of kind {kind:?} of stream {stream}, which is {}", if *.open { "open" } else { "not open" })]
    State {
        /// Its kind.
        kind: Kind,
        /// The stream.
        stream: u32,
        /// Whether it is open.
        open: bool,
    },
    /// A frame that this end does not take at this point of the stream.
    #[error("a frame of kind {kind:?} of stream {stream} at the wrong point of it")]
    Order {
        /// Its kind.
        kind: Kind,
        /// The stream.
        stream: u32,
    },
    /// More bytes than the window takes.
    #[error("{bytes} bytes more of stream {stream}, where the window takes {room}")]
    Window {
        /// The stream.
        stream: u32,
        /// Bytes that came.
        bytes: u32,
        /// Bytes that were allowed.
        room: u32,
    },
    /// More credit than bytes were sent.
    #[error("credit of {bytes} bytes for stream {stream}, of which {sent} are outstanding")]
    Credit {
        /// The stream.
        stream: u32,
        /// Bytes of credit.
        bytes: u32,
        /// Bytes that were sent and are not credited.
        sent: u32,
    },
}

/// All streams of a session, at one end.
#[derive(Debug)]
pub struct Mux {
    side: Side,
    limits: Limits,
    streams: Vec<Option<Stream>>,
    /// Numbers below the length of `streams` that are free.
    free: Vec<u32>,
    /// Streams with frames to send that carry no data.
    to_say: VecDeque<u32>,
    open: usize,
}

impl Mux {
    /// Makes an end without streams.
    #[must_use]
    pub fn new(side: Side, limits: Limits) -> Self {
        let limits = Limits { streams: limits.streams.min(MOST_STREAMS), ..limits };
        let (streams, free, to_say) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { side, limits, streams, free, to_say, open: 0 }
    }

    /// Returns the number of streams that are not forgotten.
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.open
    }

    fn get(&self, stream: u32) -> Option<&Stream> {
        self.streams.get(stream as usize)?.as_ref()
    }

    fn get_mut(&mut self, stream: u32) -> Option<&mut Stream> {
        self.streams.get_mut(stream as usize)?.as_mut()
    }

    /// Begins a stream: a client has connected. `None` if as many are open as were agreed on.
    pub fn open(&mut self) -> Option<u32> {
        let next = self.streams.len() as u32;
        let stream = match self.free.pop() {
            Some(stream) => stream,
            None if next < self.limits.streams => next,
            None => return None,
        };
        self.put(stream, Stream::new(self.limits, true));
        self.say(stream);
        Some(stream)
    }

    fn put(&mut self, number: u32, stream: Stream) {
        let length = self.streams.len().max(number as usize + 1);
        self.streams.resize_with(length, || None);
        self.streams[number as usize] = Some(stream);
        self.open += 1;
    }

    /// Says that the service has accepted the stream.
    pub fn accept(&mut self, stream: u32) {
        self.change(stream, |it| it.answer = Some(None));
    }

    /// Says that the service has not, and why: the stream is over here.
    pub fn refuse(&mut self, stream: u32, reason: &str) {
        let cut = boundary(reason, REASON_BYTES);
        self.change(stream, |it| {
            it.answer = Some(Some(reason[..cut].into()));
            it.last = Some(Word::Refused);
        });
    }

    /// Returns how many bytes may be sent of a stream now.
    #[must_use]
    pub fn sendable(&self, stream: u32) -> usize {
        self.get(stream).map_or(0, |it| if it.may_send() { it.room as usize } else { 0 })
    }

    /// Adds a frame of `bytes` bytes of a stream, which stand in the [`Batch::space`] of the message. To be
    /// called after [`Mux::fill`] returned true for this message, with no more than [`Mux::sendable`].
    pub fn sent(&mut self, stream: u32, bytes: usize, batch: &mut Batch) {
        let Some(it) = self.get_mut(stream) else { return };
        let value = (bytes as u32).min(it.room);
        if value > 0 && it.may_send() {
            it.room -= value;
            batch.seal(Kind::Data, stream, value);
        }
    }

    /// Says that no more bytes of a stream follow.
    pub fn finish(&mut self, stream: u32) {
        self.change(stream, |it| it.finish = true);
    }

    /// Notes that the socket has taken so many bytes of a stream.
    pub fn consume(&mut self, stream: u32, bytes: usize) {
        let window = self.limits.window_bytes;
        let Some(it) = self.get_mut(stream) else { return };
        let taken = (bytes as u32).min(it.unread);
        it.unread -= taken;
        it.owed += taken;
        if it.grants(window) {
            self.say(stream);
        }
    }

    /// Says that the socket is closed, with all bytes delivered both ways.
    pub fn close(&mut self, stream: u32) {
        self.end(stream, Word::Close);
    }

    /// Says that the connection broke. Nothing of the stream is an event any more.
    pub fn reset(&mut self, stream: u32) {
        self.end(stream, Word::Reset);
    }

    fn end(&mut self, stream: u32, word: Word) {
        self.change(stream, |it| it.last = Some(word));
    }

    /// Changes what is to be said of a stream that has not said its last word.
    fn change(&mut self, stream: u32, change: impl FnOnce(&mut Stream)) {
        let Some(it) = self.get_mut(stream).filter(|it| it.last.is_none()) else { return };
        change(it);
        self.say(stream);
    }

    fn say(&mut self, stream: u32) {
        if let Some(it) = self.get_mut(stream)
            && !it.queued
        {
            it.queued = true;
            self.to_say.push_back(stream);
        }
    }

    /// Adds frames to a message, as many as it takes. Returns whether all are in it: data may follow then.
    pub fn fill(&mut self, batch: &mut Batch) -> bool {
        let window = self.limits.window_bytes;
        while let Some(&stream) = self.to_say.front() {
            let Some(it) = self.get_mut(stream) else {
                self.to_say.pop_front();
                continue;
            };
            if !it.say(stream, window, batch) {
                return false;
            }
            it.queued = false;
            self.to_say.pop_front();
            self.forget_if_over(stream);
        }
        true
    }

    fn forget_if_over(&mut self, stream: u32) {
        if self.get(stream).is_some_and(Stream::is_over) {
            self.streams[stream as usize] = None;
            self.open -= 1;
            if self.side == Side::Client {
                self.free.push(stream);
            }
        }
    }

    /// Takes a message of the peer, and tells each event.
    ///
    /// # Errors
    /// [`Fault`]: the session must end. What came before it was told.
    pub fn receive(
        &mut self,
        mut message: &[u8],
        mut tell: impl FnMut(&mut Self, u32, Event<'_>),
    ) -> Result<(), Fault> {
        if message.is_empty() {
            return Err(FrameError::Empty.into());
        }
        while !message.is_empty() {
            let frame = frame::take(&mut message)?;
            let (kind, stream) = (frame.kind, frame.stream);
            if stream >= self.limits.streams {
                return Err(Fault::Range { stream, limit: self.limits.streams });
            }
            if kind == Kind::Open {
                self.opened(stream)?;
                tell(self, stream, Event::Opened);
                continue;
            }
            let side = self.side;
            let Some(it) = self.get_mut(stream) else {
                return Err(Fault::State { kind, stream, open: false });
            };
            let event = it.hear(side, &frame)?;
            let is_silent = it.last.is_some();
            if it.heard_last && !is_silent && kind != Kind::Close {
                self.end(stream, Word::Reset);
            }
            if !is_silent && let Some(event) = event {
                tell(self, stream, event);
            }
            self.forget_if_over(stream);
        }
        Ok(())
    }

    fn opened(&mut self, stream: u32) -> Result<(), Fault> {
        let kind = Kind::Open;
        if self.side == Side::Client {
            return Err(Fault::Order { kind, stream });
        }
        if self.get(stream).is_some() {
            return Err(Fault::State { kind, stream, open: true });
        }
        self.put(stream, Stream::new(self.limits, false));
        Ok(())
    }
}

/// Returns the last boundary of a character at or before `most`.
fn boundary(text: &str, most: usize) -> usize {
    let most = most.min(text.len());
    (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
