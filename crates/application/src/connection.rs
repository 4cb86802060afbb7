//! A connection: messages both ways, READs and WRITEs of the peer's regions.
use crate::domain::Domain;
use crate::wire::{Kind, LONGEST_BYTES, PART_BYTES, Theirs, read_regions};
use crate::{Error, Rights};
use catchment_channel::{
    Channel, ClaimError, Message, MessageClaim, OperationError, RemoteMemory, Ticket,
};
use catchment_verbs::wait::{Paused, WaitPolicy, Waiter, pause};
use catchment_verbs::{Access, Mr, Watch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How long a peer may take nothing, or not answer, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection that is dropped waits until what it has sent is at the peer.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// How long is slept before it is looked whether the connection still works, and after how many of these in a row the peer
/// is written to: a queue pair that its owner has given up is seen by nothing else.
const LOOK: Duration = Duration::from_millis(100);
const PROBE_AFTER: u32 = 10;
/// Memory through which READs and WRITEs go, and the longest of them.
const STAGE_BYTES: usize = 1 << 20;

/// A connection with an application, of this host or another one. One thread at a time uses it. Dropping it closes it:
/// what was sent still arrives, if the peer is there.
pub struct Connection {
    /// Nothing once it is over.
    channel: Option<Channel>,
    watch: Arc<dyn Watch>,
    waiter: Waiter,
    probing: Probing,
    patience: Duration,
    packets: u64,
    /// Parts of a message that came without the last one.
    parts: Vec<u8>,
    theirs: BTreeMap<String, Theirs>,
    stage: Option<Arc<dyn Mr>>,
    /// Why it is over.
    over: Option<Error>,
    has_said_end: bool,
    has_heard_end: bool,
    /// After all that is made of it.
    domain: Arc<Domain>,
}

impl Connection {
    pub(crate) fn new(channel: Channel, domain: Arc<Domain>) -> Result<Self, Error> {
        let cores = available_parallelism().map_or(1, usize::from);
        let stage = domain.memory(STAGE_BYTES, Access::LOCAL_WRITE)?;
        Ok(Self {
            watch: channel.watch(),
            channel: Some(channel),
            waiter: Waiter::new(WaitPolicy::default(), cores),
            probing: Probing::default(),
            patience: PATIENCE,
            packets: 0,
            parts: Vec::new(),
            theirs: BTreeMap::new(),
            stage: Some(stage),
            over: None,
            has_said_end: false,
            has_heard_end: false,
            domain,
        })
    }

    /// Sets for how long the peer may take nothing, or not answer a READ or WRITE: 10 seconds unless told otherwise.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Returns the peer's regions that this end may use: name, length, rights.
    pub fn regions(&self) -> impl Iterator<Item = (&str, u64, Rights)> {
        self.theirs.iter().map(|(name, it)| (name.as_str(), it.memory.bytes, it.rights))
    }

    /// Sends a message of up to [`LONGEST_BYTES`]. Waits while the peer has not taken others.
    ///
    /// # Errors
    /// [`Error::Timeout`]: the peer has taken nothing for the patience; nothing was sent, and it may be tried again.
    /// [`Error::TooLong`], [`Error::Closed`], [`Error::Broken`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        if message.len() > LONGEST_BYTES {
            let (bytes, longest) = (message.len() as u64, LONGEST_BYTES as u64);
            return Err(Error::TooLong { bytes, longest });
        }
        if self.has_heard_end || self.has_said_end {
            return Err(Error::Closed);
        }
        let (first, last) = message.split_at(last_part(message.len()));
        for (at, part) in first.chunks(PART_BYTES).enumerate() {
            self.send_part(Kind::Part, part, at > 0)?;
        }
        self.send_part(Kind::Last, last, !first.is_empty())
    }

    /// Sends a part; of a message that has begun, all or nothing.
    fn send_part(&mut self, kind: Kind, part: &[u8], has_begun: bool) -> Result<(), Error> {
        let sent = self.put(kind, part, self.patience);
        if let Err(Error::Timeout(time)) = sent
            && has_begun
        {
            let reason = format!("the peer has left a message half taken for {time:?}");
            return Err(self.end(Error::Broken(reason)));
        }
        sent
    }

    fn claim(&mut self, kind: Kind, bytes: u32, patience: Duration) -> Result<MessageClaim, Error> {
        self.wait(patience, |channel| match channel.claim(kind.stream(), bytes) {
            Ok(claim) => Ok(Some(claim)),
            Err(ClaimError::WouldBlock) => Ok(None),
            Err(error) => Err(Error::broken(&error)),
        })
    }

    fn next_packet(&mut self) -> u64 {
        self.packets += 1;
        self.packets
    }

    fn put(&mut self, kind: Kind, part: &[u8], patience: Duration) -> Result<(), Error> {
        let claim = self.claim(kind, part.len() as u32, patience)?;
        let packet = self.next_packet();
        let sent = self.channel()?.memory(&claim).write_at(0, part).map_err(Error::from);
        let sent = sent.and_then(|()| Ok(self.channel()?.commit(claim, packet)?));
        sent.map_err(|error| self.end(error))
    }

    /// Waits for the next message; nothing once the peer has closed the connection and all were taken.
    ///
    /// # Errors
    /// [`Error::Broken`]: the peer or its agent is gone, or it broke the rules. What had arrived before was returned.
    pub fn recv(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            match self.recv_within(LOOK) {
                Err(Error::Timeout(_)) => {}
                received => return received,
            }
        }
    }

    /// As [`Connection::recv`], for so long.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`].
    pub fn recv_within(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, Error> {
        let deadline = Instant::now() + patience;
        loop {
            if self.has_heard_end {
                return Ok(None);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.take(left).map_err(|error| error.after(patience))?;
            if let Some(whole) = self.add(message)? {
                return Ok(Some(whole));
            }
        }
    }

    /// Takes what the peer sent. What had arrived when the connection broke comes before the reason.
    fn take(&mut self, patience: Duration) -> Result<Message, Error> {
        let over = self.over.clone();
        if let (Some(error), Some(channel)) = (over, &mut self.channel) {
            return channel.take_found().ok_or(error);
        }
        self.wait(patience, |channel| match channel.take() {
            Err(error) => channel.take_found().map_or(Err(error.into()), |found| Ok(Some(found))),
            taken => Ok(taken?),
        })
    }

    /// Adds what came to the message that it is of; returns that if it is whole.
    fn add(&mut self, message: Message) -> Result<Option<Vec<u8>>, Error> {
        let payload = message.payload();
        let before = self.parts.len();
        let kind = Kind::of(message.tag().stream);
        match kind {
            Some(Kind::Part | Kind::Last) if before + payload.bytes() <= LONGEST_BYTES => {
                self.parts.resize(before + payload.bytes(), 0);
                let read = payload.read_at(0, &mut self.parts[before..]).map_err(Error::from);
                drop(message);
                read.map_err(|error| self.end(error))?;
                Ok((kind == Some(Kind::Last)).then(|| std::mem::take(&mut self.parts)))
            }
            Some(Kind::End | Kind::Left) if before == 0 => {
                drop(message);
                self.has_heard_end = true;
                if kind == Some(Kind::End) {
                    self.leave();
                }
                Ok(None)
            }
            Some(_) | None => {
                let stream = message.tag().stream;
                drop(message);
                let reason =
                    format!("the peer broke the rules: {before} bytes and a part {stream}");
                Err(self.end(Error::Broken(reason)))
            }
        }
    }

    /// READs bytes of a region of the peer, which takes no part in it.
    ///
    /// # Errors
    /// [`Error::NoRegion`], [`Error::Rights`], [`Error::Bounds`]: nothing was read. [`Error::Closed`],
    /// [`Error::Broken`]: the region or the peer is gone, or did not answer for the patience.
    pub fn read(&mut self, region: &str, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let theirs = self.find(region, Rights::Read, offset, out.len())?;
        let mut at = offset;
        for piece in out.chunks_mut(STAGE_BYTES) {
            let bytes = piece.len() as u32;
            self.post(|channel, stage| {
                channel.operations().read_other((&theirs, at), (stage, 0), bytes)
            })?;
            let read = self.stage()?.region().whole().read_at(0, piece);
            read.map_err(|error| self.end(error.into()))?;
            at += u64::from(bytes);
        }
        Ok(())
    }

    /// WRITEs bytes of a region of the peer, which takes no part in it. They are there when it returns.
    ///
    /// # Errors
    /// As [`Connection::read`]; what of it was written is not known then.
    pub fn write(&mut self, region: &str, offset: u64, data: &[u8]) -> Result<(), Error> {
        let theirs = self.find(region, Rights::Write, offset, data.len())?;
        let mut at = offset;
        for piece in data.chunks(STAGE_BYTES) {
            let bytes = piece.len() as u32;
            let staged = self.stage()?.region().whole().write_at(0, piece);
            staged.map_err(|error| self.end(error.into()))?;
            self.post(|channel, stage| {
                channel.operations().write_other((stage, 0), (&theirs, at), bytes)
            })?;
            at += u64::from(bytes);
        }
        Ok(())
    }

    fn find(
        &self,
        name: &str,
        asked: Rights,
        offset: u64,
        bytes: usize,
    ) -> Result<RemoteMemory, Error> {
        if self.has_said_end {
            return Err(Error::Closed);
        }
        let Some(Theirs { memory, rights }) = self.theirs.get(name) else {
            let known: Vec<&str> = self.theirs.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::NoRegion { name: name.to_owned(), known });
        };
        if (asked.reads() && !rights.reads()) || (asked.writes() && !rights.writes()) {
            return Err(Error::Rights { name: name.to_owned(), allowed: *rights, asked });
        }
        let (bytes, available) = (bytes as u64, memory.bytes);
        if offset.checked_add(bytes).is_none_or(|end| end > available) {
            let name = name.to_owned();
            return Err(Error::Bounds { name, offset, bytes, available });
        }
        Ok(*memory)
    }

    /// Posts a READ or WRITE, and waits until it is done.
    fn post(
        &mut self,
        post: impl Fn(&Channel, &dyn Mr) -> Result<Ticket, OperationError>,
    ) -> Result<(), Error> {
        let stage = Arc::clone(self.stage()?);
        let ticket = self.wait(self.patience, |channel| match post(channel, &*stage) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(OperationError::QueueFull) => {
                channel.progress()?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        });
        let done = ticket.and_then(|ticket| {
            self.wait(self.patience, |channel| Ok(channel.is_done(ticket)?.then_some(())))
        });
        // What may still be written into the stage is not for a later one to find.
        done.map_err(|error| {
            let Error::Timeout(time) = error else { return self.end(error) };
            self.end(Error::Broken(format!("the peer has not answered for {time:?}")))
        })
    }

    /// Closes the connection once the peer has taken all messages: waits for it as long as for anything else. What it has sent
    /// meanwhile is lost.
    ///
    /// # Errors
    /// [`Error::Timeout`]: the peer has not taken all. [`Error::Broken`]: nor will it.
    pub fn close(mut self) -> Result<(), Error> {
        if self.has_heard_end {
            return Ok(());
        }
        let patience = self.patience;
        let deadline = Instant::now() + patience;
        let said = self.say_end(Kind::End, patience)?;
        while !self.has_heard_end {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.take(left).map_err(|error| error.after(patience))?;
            let kind = Kind::of(message.tag().stream);
            self.has_heard_end = matches!(kind, Some(Kind::End | Kind::Left));
        }
        // Where both close at once the peer waits, too; it is gone where it does not.
        let _ = self.wait_until_there(said, LAST_PATIENCE);
        Ok(())
    }

    /// Says that nothing more comes from here.
    fn say_end(&mut self, kind: Kind, patience: Duration) -> Result<Ticket, Error> {
        let claim = self.claim(kind, 0, patience)?;
        let packet = self.next_packet();
        let said = self.channel()?.commit_last(claim, packet).map_err(Error::from);
        let said = said.map_err(|error| self.end(error))?;
        self.has_said_end = true;
        Ok(said)
    }

    /// Waits until a message, and all before it, is in the peer's memory.
    fn wait_until_there(&mut self, sent: Ticket, patience: Duration) -> Result<(), Error> {
        self.wait(patience, |channel| Ok(channel.is_done(sent)?.then_some(())))
    }

    /// Leaves: what was sent arrives, if the peer is there.
    fn leave(&mut self) {
        if !self.has_said_end {
            let left = self.say_end(Kind::Left, LAST_PATIENCE);
            let _ = left.and_then(|said| self.wait_until_there(said, LAST_PATIENCE));
        }
    }

    /// Tells the peer of the regions of this end.
    pub(crate) fn tell_regions(&mut self) -> Result<(), Error> {
        let told = serde_json::to_vec(&self.domain.entries());
        let told = told.map_err(|error| Error::broken(&error))?;
        self.put(Kind::Regions, &told, self.patience)
    }

    /// Hears of the peer's regions, before all else that it sends.
    pub(crate) fn hear_regions(&mut self) -> Result<(), Error> {
        let message = self.take(self.patience)?;
        let mut told = vec![0; message.payload().bytes()];
        message.payload().read_at(0, &mut told)?;
        let stream = message.tag().stream;
        drop(message);
        let read = if Kind::of(stream) == Some(Kind::Regions) {
            read_regions(&told)
        } else {
            Err(format!("it begins with a part {stream}"))
        };
        let reason = |reason| Error::Broken(format!("the peer broke the rules: {reason}"));
        self.theirs = read.map_err(|error| self.end(reason(error)))?;
        Ok(())
    }

    fn channel(&mut self) -> Result<&mut Channel, Error> {
        self.channel.as_mut().ok_or(Error::Closed)
    }

    fn stage(&self) -> Result<&Arc<dyn Mr>, Error> {
        self.stage.as_ref().ok_or(Error::Closed)
    }

    /// Notes why the connection is over; returns what every later call says.
    fn end(&mut self, error: Error) -> Error {
        self.over.get_or_insert(error).clone()
    }

    /// Repeats a step until it returns something; spins, then sleeps.
    fn wait<T>(
        &mut self,
        patience: Duration,
        step: impl Fn(&mut Channel) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        match self.look_until(Instant::now() + patience, step) {
            Ok(Some(found)) => {
                self.waiter.found();
                Ok(found)
            }
            Ok(None) => Err(Error::Timeout(patience)),
            Err(error) => Err(self.end(error)),
        }
    }

    fn look_until<T>(
        &mut self,
        deadline: Instant,
        step: impl Fn(&mut Channel) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let channel = self.channel.as_mut().ok_or(Error::Closed)?;
        loop {
            if let Some(found) = step(channel)? {
                return Ok(Some(found));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            let longest = LOOK.min(deadline - now);
            match pause(&mut self.waiter, &*self.watch, longest, || step(channel))? {
                Paused::Found(found) => return Ok(Some(found)),
                Paused::Over => self.probing.quiet = 0,
                Paused::InVain => self.probing.look(channel)?,
            }
        }
    }
}

/// Looks whether a peer is there that says nothing.
#[derive(Default)]
struct Probing {
    /// Looks since something happened.
    quiet: u32,
    /// What is not known to have arrived.
    probe: Option<Ticket>,
}

impl Probing {
    fn look(&mut self, channel: &mut Channel) -> Result<(), Error> {
        channel.progress()?;
        self.quiet += 1;
        self.probe = self.probe.filter(|probe| !channel.operations().is_done(*probe));
        if self.quiet < PROBE_AFTER || self.probe.is_some() {
            return Ok(());
        }
        self.quiet = 0;
        match channel.write(0, 0, 1) {
            Ok(probe) => self.probe = Some(probe),
            Err(OperationError::QueueFull) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Returns where the last part of a message begins.
const fn last_part(bytes: usize) -> usize {
    bytes.saturating_sub(1) / PART_BYTES * PART_BYTES
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.over.is_none() && !self.has_heard_end {
            self.leave();
        }
        self.stage = None;
        if let Some(channel) = self.channel.take() {
            // The peer learns of it by its queue pair.
            let _ = channel.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_of_a_message_is_not_full() {
        for (bytes, begins) in [
            (0, 0),
            (1, 0),
            (PART_BYTES, 0),
            (PART_BYTES + 1, PART_BYTES),
            (3 * PART_BYTES, 2 * PART_BYTES),
        ] {
            assert_eq!(last_part(bytes), begins, "{bytes}");
        }
    }
}
