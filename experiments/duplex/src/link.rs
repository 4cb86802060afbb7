//! One end of a connected channel with its three threads.
use super::LinkError;
use super::workers::{CompletionWorker, Job, ReceiveWorker, SendWorker, Shared};
use catchment_channel::establish::{Control, EstablishError, exchange};
use catchment_channel::{
    Card, ChannelError, ChannelShape, ClaimError, EndError, Filler, Held, Message, OperationError,
    Operations, Parts, Resources, Tag, Ticket,
};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::EventCount;
use catchment_verbs::{Context, RtsAttr};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

#[derive(Debug, Clone)]
pub struct LinkOptions {
    pub shape: ChannelShape,
    pub rts: RtsAttr,
    /// How long the peer may take to answer while the two connect.
    pub patience: Duration,
    /// Prefix of the thread names, before `-sq`, `-cq`, `-rq`. The kernel keeps 15 bytes.
    pub name: String,
    pub waiting: Waiting,
}

/// What the threads of a link and its user do while there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waiting {
    /// Sleep until an event: the paper's way.
    #[default]
    Sleep,
    /// Look again at once. Each thread wants a processor of its own, and over shared memory none of them
    /// makes a system call for a message (S3.7).
    Poll,
}

impl LinkOptions {
    pub fn new(shape: ChannelShape) -> Self {
        Self {
            shape,
            rts: RtsAttr::default(),
            patience: Duration::from_secs(10),
            name: "duplex".into(),
            waiting: Waiting::default(),
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
/// received messages. One thread of the program uses it; messages may be released from any.
pub struct Link {
    filler: Filler,
    operations: Arc<Operations>,
    inbox: Receiver<Message>,
    control: Arc<Control>,
    counts: LinkCounts,
    /// Last, so that it is dropped after the others.
    running: Running,
}

/// The threads of a link and the device objects they use.
struct Running {
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

/// A connected channel, and the queue of jobs of its send queue.
struct Connected {
    parts: Parts,
    jobs: Sender<Job>,
    work: Receiver<Job>,
}

impl Connected {
    fn new(resources: Resources, peer: &Card, rts: RtsAttr) -> Result<Self, ChannelError> {
        // Every message that can be filled, and a job each to wake and to stop the thread.
        let (jobs, work) = bounded(resources.shape().blocks as usize + 2);
        let nudge = jobs.clone();
        // For messages released while the thread sleeps. A full queue wakes it anyway.
        let wake = move || drop(nudge.try_send(Job::Nudge));
        let parts = Parts::connect(resources, peer, rts, Box::new(wake))?;
        Ok(Self { parts, jobs, work })
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
        let (resources, peer) = exchange(&control, resources, deadline)?;
        let connected = Connected::new(resources, &peer, options.rts)?;
        Self::begin(connected, control, options, |control| control.send_go())
    }

    /// Connects to the client of an accepted control socket.
    pub fn accept(
        control: Control,
        context: Arc<dyn Context>,
        options: &LinkOptions,
    ) -> Result<Self, LinkError> {
        let deadline = Instant::now() + options.patience;
        let peer = control.recv_card(deadline)?;
        let connect = || {
            let resources = Resources::acquire(context, options.shape)?;
            Ok((resources.card(), Connected::new(resources, &peer, options.rts)?))
        };
        let (card, connected) =
            connect().inspect_err(|error: &ChannelError| control.refuse(&error.to_string()))?;
        Self::begin(connected, control, options, |control| {
            control.send_card(card)?;
            control.recv_go(deadline)
        })
    }

    /// Completes the exchange on the control connection, and starts the threads.
    fn begin(
        connected: Connected,
        control: Control,
        options: &LinkOptions,
        complete: impl FnOnce(&Control) -> Result<(), EstablishError>,
    ) -> Result<Self, LinkError> {
        if let Err(error) = complete(&control).and_then(|()| control.set_nonblocking()) {
            connected.parts.close()?;
            return Err(error.into());
        }
        Self::start(connected, control, options)
    }

    fn start(
        connected: Connected,
        control: Control,
        options: &LinkOptions,
    ) -> Result<Self, LinkError> {
        let name = &options.name;
        let Connected { parts, jobs, work } = connected;
        let shared = Arc::new(Shared {
            room: EventCount::new(),
            stop: AtomicBool::new(false),
            goodbye: AtomicBool::new(false),
            polls: options.waiting == Waiting::Poll,
            channel: Arc::downgrade(&parts.channel),
        });
        let control = Arc::new(control);
        let (arrivals, arrived) = bounded(parts.shape.receives() as usize);
        let (inbox, messages) = bounded(parts.shape.blocks as usize);
        let operations = Arc::clone(&parts.operations);
        let mut link = Self {
            filler: parts.outbound.filler(),
            operations: Arc::clone(&operations),
            inbox: messages,
            control: Arc::clone(&control),
            counts: LinkCounts::default(),
            running: Running {
                shared: Arc::clone(&shared),
                jobs: jobs.clone(),
                threads: Vec::with_capacity(3),
                device: Some((parts.held, Arc::clone(&operations))),
            },
        };
        let send = SendWorker {
            outbound: parts.outbound,
            operations: Arc::clone(&operations),
            slots: Arc::clone(parts.inbound.slots()),
            jobs: work,
            shared: Arc::clone(&shared),
            taken: 0,
            owed: 0,
        };
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
            jobs,
            control,
            shared,
        };
        // When one is refused, dropping the link ends the others.
        link.spawn(format!("{name}-rq"), "the receive queue", || receive.run())?;
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
        self.running.threads.push(thread.map_err(|source| LinkError::Thread { what, source })?);
        Ok(())
    }

    /// Sends these bytes as soon as a slot is free; gives up after `patience`.
    pub fn send(&mut self, tag: Tag, payload: &[u8], patience: Duration) -> Result<(), ClaimError> {
        self.send_with(tag, u32::try_from(payload.len()).unwrap_or(u32::MAX), patience, |memory| {
            // It has exactly that length.
            let _ = memory.write_at(0, payload);
        })
    }

    /// Sends a message of `bytes` bytes that `fill` writes in place, as soon as a slot is free.
    /// Returns when the thread of the send queue has it.
    pub fn send_with(
        &mut self,
        tag: Tag,
        bytes: u32,
        patience: Duration,
        fill: impl FnOnce(VolatileSlice<'_>),
    ) -> Result<(), ClaimError> {
        let (filler, operations) = (&self.filler, &self.operations);
        let memory = self.running.shared.wait_until(Some(Instant::now() + patience), || {
            operations.alive()?;
            filler.memory(operations, bytes)
        })?;
        let Some(memory) = memory else { return Err(ClaimError::WouldBlock) };
        fill(memory);
        let filled = self.filler.finish(tag, bytes)?;
        // The queue holds every message that can be filled; the thread ends only with an error.
        if self.running.jobs.send(Job::Message(filled)).is_err() {
            return Err(self.end().into());
        }
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(bytes);
        Ok(())
    }

    /// Returns the next message; `None` if none came within `patience`.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<Message>, EndError> {
        let message = match self.running.shared.receive(&self.inbox, patience) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
        };
        self.counts.came += 1;
        self.counts.came_bytes += message.payload().bytes() as u64;
        Ok(Some(message))
    }

    /// READs of the peer's shared memory, as [`Operations::read`] does.
    pub fn read(&self, from: u64, to: usize, bytes: u32) -> Result<Ticket, OperationError> {
        self.operations.read(from, to, bytes)
    }

    /// WRITEs to the peer's shared memory, as [`Operations::write`] does.
    pub fn write(&self, from: usize, to: u64, bytes: u32) -> Result<Ticket, OperationError> {
        self.operations.write(from, to, bytes)
    }

    /// Sleeps until a READ or WRITE is done; false if it is not within `patience`.
    pub fn wait(&self, ticket: Ticket, patience: Duration) -> Result<bool, EndError> {
        self.wait_until(Instant::now() + patience, |operations| operations.is_done(ticket))
    }

    fn wait_until(
        &self,
        deadline: Instant,
        is_so: impl Fn(&Operations) -> bool,
    ) -> Result<bool, EndError> {
        let done = self.running.shared.wait_until(Some(deadline), || {
            if is_so(&self.operations) {
                return Ok(Some(()));
            }
            self.operations.alive().map(|()| None)
        });
        Ok(done?.is_some())
    }

    /// Returns the memory that the peer may READ and WRITE.
    pub fn shared_memory(&self) -> VolatileSlice<'_> {
        self.operations.shared()
    }

    /// Returns the memory that READs fill and WRITEs are taken from.
    pub fn scratch(&self) -> VolatileSlice<'_> {
        self.operations.scratch()
    }

    /// Returns whether the peer has announced that it sends no more.
    pub fn said_goodbye(&self) -> bool {
        self.running.shared.goodbye.load(Ordering::SeqCst)
    }

    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.running.shared))
    }

    fn end(&self) -> EndError {
        match self.operations.alive() {
            Err(error) if !self.said_goodbye() => error,
            _ => EndError::PeerGone,
        }
    }

    /// Waits until the peer has every message, says goodbye, and releases everything.
    pub fn finish(self, patience: Duration) -> Result<(), LinkError> {
        let arrived = self.flush(patience);
        self.control.send_goodbye();
        self.close()?;
        match arrived {
            Ok(true) => Ok(()),
            Ok(false) => Err(LinkError::System {
                what: "waiting for the last messages to arrive",
                source: io::ErrorKind::TimedOut.into(),
            }),
            Err(error) => Err(ChannelError::from(error).into()),
        }
    }

    /// Ends the link at once, and releases everything.
    pub fn close(self) -> Result<(), LinkError> {
        let Self { filler, operations, inbox, mut running, .. } = self;
        // Releases the messages left in the inbox, and a thread that waits for room in it.
        drop((filler, operations, inbox));
        running.end()
    }

    /// Waits until all messages have arrived: an empty WRITE posted behind them has completed.
    fn flush(&self, patience: Duration) -> Result<bool, EndError> {
        let deadline = Instant::now() + patience;
        if !self.wait_until(deadline, |_| self.filler.all_posted())? {
            return Ok(false);
        }
        let posted = self.running.shared.wait_until(Some(deadline), || match self.write(0, 0, 0) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(OperationError::End(error)) => Err(error),
            Err(_) => Ok(None),
        });
        match posted? {
            Some(ticket) => self.wait_until(deadline, |operations| operations.is_done(ticket)),
            None => Ok(false),
        }
    }
}

impl Running {
    fn end(&mut self) -> Result<(), LinkError> {
        let Some((held, operations)) = self.device.take() else { return Ok(()) };
        self.shared.stop();
        // The thread of the completion queue sends it too, unless that one never started.
        let _ = self.jobs.try_send(Job::Stop);
        for thread in self.threads.drain(..) {
            // It has reported its error to the others.
            let _ = thread.join();
        }
        Ok(held.close(operations)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("a duplex link was dropped: {error}");
        }
    }
}
