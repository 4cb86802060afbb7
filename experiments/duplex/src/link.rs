//! One end of a connected channel with its three threads.
use super::LinkError;
use super::control::Control;
use super::workers::{CompletionWorker, Job, ReceiveWorker, SendWorker, Shared};
use catchment_channel::{
    ChannelError, ChannelShape, ClaimError, EndError, Filler, Held, MAX_BLOCKS, Message,
    OperationError, Operations, Parts, Resources, Tag, Ticket, Wake,
};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::EventCount;
use catchment_verbs::{Context, RtsAttr};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

#[derive(Debug, Clone)]
pub struct LinkOptions {
    pub shape: ChannelShape,
    pub rts: RtsAttr,
    /// How long the peer may take for its part of connecting.
    pub patience: Duration,
    /// The threads are called so, with `-sq`, `-cq`, `-rq` behind. The kernel keeps 15 bytes.
    pub name: String,
}

impl LinkOptions {
    pub fn new(shape: ChannelShape) -> Self {
        Self {
            shape,
            rts: RtsAttr::default(),
            patience: Duration::from_secs(10),
            name: "duplex".into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounts {
    pub sent: u64,
    pub sent_bytes: u64,
    pub came: u64,
    pub came_bytes: u64,
}

/// A connected channel with a thread for the send queue, one for the completion queue and one for
/// what is received. One thread of the program uses it; messages may be given back from any.
pub struct Link {
    filler: Filler,
    operations: Arc<Operations>,
    jobs: Sender<Job>,
    inbox: Receiver<Message>,
    control: Arc<Control>,
    shared: Arc<Shared>,
    counts: LinkCounts,
    /// Last: it ends after the others are dropped.
    ending: Ending,
}

/// What a link gives back at its end.
struct Ending {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    threads: Vec<JoinHandle<()>>,
    device: Option<(Held, Arc<Operations>)>,
}

/// Ends a link from another thread: its user gets [`EndError::Closed`].
#[derive(Clone)]
pub struct Stopper(Weak<Shared>);

impl Stopper {
    pub fn stop(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.stop();
        }
    }
}

/// Jobs of the send queue, which exist before it does.
pub(super) struct Jobs {
    sender: Sender<Job>,
    receiver: Receiver<Job>,
}

impl Jobs {
    fn new(shape: &ChannelShape) -> Self {
        // All messages that can be filled, and something to wake or to end it by.
        let (sender, receiver) = bounded(shape.blocks.min(MAX_BLOCKS) as usize + 2);
        Self { sender, receiver }
    }

    /// For messages that are given back while the thread sleeps. A full queue wakes it anyway.
    fn nudge(&self) -> Box<Wake> {
        let sender = self.sender.clone();
        Box::new(move || {
            let _ = sender.try_send(Job::Nudge);
        })
    }
}

impl Link {
    /// Connects to a server over its control socket.
    pub fn connect(
        control: Control,
        context: Arc<dyn Context>,
        options: &LinkOptions,
    ) -> Result<Self, LinkError> {
        let deadline = Instant::now() + options.patience;
        let resources = Resources::acquire(context, options.shape)?;
        let cards = || {
            control.send_card(resources.card())?;
            control.recv_card(deadline)
        };
        let peer = match cards() {
            Ok(peer) => peer,
            Err(error) => {
                resources.release()?;
                return Err(error);
            }
        };
        let jobs = Jobs::new(&options.shape);
        let parts = Parts::connect(resources, &peer, options.rts, jobs.nudge())?;
        Self::begin(parts, jobs, control, options, |control| control.send_go())
    }

    /// Serves a client that has come to this control socket.
    pub(super) fn accept(
        control: Control,
        context: Arc<dyn Context>,
        options: &LinkOptions,
    ) -> Result<Self, LinkError> {
        let deadline = Instant::now() + options.patience;
        let peer = control.recv_card(deadline)?;
        let jobs = Jobs::new(&options.shape);
        let resources = Resources::acquire(context, options.shape);
        let resources = resources.inspect_err(|error| control.refuse(&error.to_string()))?;
        let card = resources.card();
        let parts = Parts::connect(resources, &peer, options.rts, jobs.nudge());
        let parts = parts.inspect_err(|error| control.refuse(&error.to_string()))?;
        Self::begin(parts, jobs, control, options, |control| {
            control.send_card(card)?;
            control.recv_go(deadline)
        })
    }

    /// Says the last word to the peer, and starts the threads.
    fn begin(
        parts: Parts,
        jobs: Jobs,
        control: Control,
        options: &LinkOptions,
        last_word: impl FnOnce(&Control) -> Result<(), LinkError>,
    ) -> Result<Self, LinkError> {
        let spoken = last_word(&control).and_then(|()| control.settle());
        if let Err(error) = spoken {
            parts.close()?;
            return Err(error);
        }
        Self::start(parts, jobs, control, &options.name)
    }

    fn start(parts: Parts, jobs: Jobs, control: Control, name: &str) -> Result<Self, LinkError> {
        let shared = Arc::new(Shared {
            room: EventCount::new(),
            stop: AtomicBool::new(false),
            goodbye: AtomicBool::new(false),
            channel: Arc::downgrade(&parts.channel),
        });
        let control = Arc::new(control);
        let (arrivals, arrived) = bounded(parts.shape.receives() as usize);
        let (inbox, messages) = bounded(parts.shape.blocks as usize);
        let operations = Arc::clone(&parts.operations);
        let mut link = Self {
            filler: parts.outbound.filler(),
            operations: Arc::clone(&operations),
            jobs: jobs.sender.clone(),
            inbox: messages,
            control: Arc::clone(&control),
            shared: Arc::clone(&shared),
            counts: LinkCounts::default(),
            ending: Ending {
                shared: Arc::clone(&shared),
                jobs: jobs.sender.clone(),
                threads: Vec::with_capacity(3),
                device: Some((parts.held, Arc::clone(&operations))),
            },
        };
        let send = SendWorker::new(
            parts.outbound,
            Arc::clone(&operations),
            Arc::clone(parts.inbound.slots()),
            jobs.receiver,
            Arc::clone(&shared),
        );
        let receive = ReceiveWorker {
            inbound: parts.inbound,
            operations: Arc::clone(&operations),
            arrivals: arrived,
            inbox,
            shared: Arc::clone(&shared),
            list: parts.shape.receive_list(),
        };
        let complete = CompletionWorker {
            cq: parts.cq,
            channel: parts.channel,
            operations,
            arrivals,
            jobs: jobs.sender,
            control,
            shared,
        };
        // When one is refused, dropping the link ends the others.
        link.spawn(format!("{name}-rq"), "what is received", || receive.run())?;
        link.spawn(format!("{name}-sq"), "the send queue", || send.run())?;
        link.spawn(format!("{name}-cq"), "the completion queue", || complete.run())?;
        Ok(link)
    }

    fn spawn(
        &mut self,
        name: String,
        what: &'static str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), LinkError> {
        let thread = thread::Builder::new().name(name).spawn(run);
        self.ending.threads.push(thread.map_err(|source| LinkError::Thread { what, source })?);
        Ok(())
    }

    /// Sends these bytes, after `patience` at most.
    pub fn send(&mut self, tag: Tag, payload: &[u8], patience: Duration) -> Result<(), ClaimError> {
        self.send_with(tag, u32::try_from(payload.len()).unwrap_or(u32::MAX), patience, |memory| {
            // It is as long as what is written.
            let _ = memory.write_at(0, payload);
        })
    }

    /// Sends a message of so many bytes that `fill` fills in place, once there is a slot for it.
    /// Returns when the thread of the send queue has it.
    pub fn send_with(
        &mut self,
        tag: Tag,
        bytes: u32,
        patience: Duration,
        fill: impl FnOnce(VolatileSlice<'_>),
    ) -> Result<(), ClaimError> {
        let deadline = Instant::now() + patience;
        let memory = loop {
            let seen = self.shared.room.current();
            self.operations.alive()?;
            if let Some(memory) = self.filler.memory(&self.operations, bytes)? {
                break memory;
            }
            if Instant::now() >= deadline {
                return Err(ClaimError::WouldBlock);
            }
            self.shared.room.wait(seen, Some(deadline));
        };
        fill(memory);
        let filled = self.filler.finish(tag, bytes)?;
        // There is room for as many as can be filled; the thread ends only with an error.
        if self.jobs.send(Job::Message(filled)).is_err() {
            return Err(self.end().into());
        }
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(bytes);
        Ok(())
    }

    /// The next message, after `patience` at most; `None` if none came.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<Message>, EndError> {
        let block = match self.inbox.try_recv() {
            Ok(block) => block,
            Err(TryRecvError::Disconnected) => return Err(self.end()),
            Err(TryRecvError::Empty) => match self.inbox.recv_timeout(patience) {
                Ok(block) => block,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            },
        };
        self.counts.came += 1;
        self.counts.came_bytes += block.payload().bytes() as u64;
        Ok(Some(block))
    }

    /// READs of the peer's shared memory, as [`Operations::read`] does.
    pub fn read(&self, from: u64, to: usize, bytes: u32) -> Result<Ticket, OperationError> {
        self.operations.read(from, to, bytes)
    }

    /// WRITEs to the peer's shared memory, as [`Operations::write`] does.
    pub fn write(&self, from: usize, to: u64, bytes: u32) -> Result<Ticket, OperationError> {
        self.operations.write(from, to, bytes)
    }

    /// Sleeps until a READ or WRITE is done; false when `patience` is over.
    pub fn wait(&self, ticket: Ticket, patience: Duration) -> Result<bool, EndError> {
        self.wait_until(patience, |operations| operations.is_done(ticket))
    }

    fn wait_until(
        &self,
        patience: Duration,
        is_so: impl Fn(&Operations) -> bool,
    ) -> Result<bool, EndError> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = self.shared.room.current();
            if is_so(&self.operations) {
                return Ok(true);
            }
            self.operations.alive()?;
            if Instant::now() >= deadline {
                return Ok(false);
            }
            self.shared.room.wait(seen, Some(deadline));
        }
    }

    /// The memory that the peer may READ and WRITE.
    pub fn shared_memory(&self) -> VolatileSlice<'_> {
        self.operations.shared()
    }

    pub fn scratch(&self) -> VolatileSlice<'_> {
        self.operations.scratch()
    }

    /// Returns whether the peer has said that it sends no more.
    pub fn said_goodbye(&self) -> bool {
        self.shared.goodbye.load(Ordering::SeqCst)
    }

    /// What was done so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.shared))
    }

    fn end(&self) -> EndError {
        match self.operations.alive() {
            Err(error) if !self.said_goodbye() => error,
            _ => EndError::PeerGone,
        }
    }

    /// Sends what is filled until the peer has all of it, says goodbye, and gives everything back.
    pub fn finish(self, patience: Duration) -> Result<(), LinkError> {
        let arrived = self.flush(patience);
        self.control.send_goodbye();
        self.close()?;
        match arrived {
            Ok(true) => Ok(()),
            Ok(false) => Err(LinkError::Control {
                what: "waiting until all that was sent has arrived",
                source: io::ErrorKind::TimedOut.into(),
            }),
            Err(error) => Err(ChannelError::from(error).into()),
        }
    }

    /// Ends the link as it is, and gives everything back.
    pub fn close(self) -> Result<(), LinkError> {
        let Self { filler, operations, inbox, mut ending, .. } = self;
        // Messages that nobody took go with the inbox, and so does who waits for room in it.
        drop((filler, operations, inbox));
        ending.end()
    }

    /// Waits until all messages have arrived: an empty WRITE behind them is done when they are.
    fn flush(&self, patience: Duration) -> Result<bool, EndError> {
        let start = Instant::now();
        let left = || patience.saturating_sub(start.elapsed());
        if !self.wait_until(left(), |_| self.filler.all_posted())? {
            return Ok(false);
        }
        loop {
            let seen = self.shared.room.current();
            match self.write(0, 0, 0) {
                Ok(ticket) => return self.wait(ticket, left()),
                Err(OperationError::End(error)) => return Err(error),
                Err(_) if left().is_zero() => return Ok(false),
                Err(_) => {
                    self.shared.room.wait(seen, Some(Instant::now() + left()));
                }
            }
        }
    }
}

impl Ending {
    fn end(&mut self) -> Result<(), LinkError> {
        let Some((held, operations)) = self.device.take() else { return Ok(()) };
        self.shared.stop();
        // Where the thread of the completion queue never began, nobody else says it.
        let _ = self.jobs.try_send(Job::Stop);
        for thread in self.threads.drain(..) {
            // It has said what there was to say.
            let _ = thread.join();
        }
        Ok(held.close(operations)?)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("a duplex link was dropped: {error}");
        }
    }
}
