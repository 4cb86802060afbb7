//! The three threads of a link: one for the send queue, one for the completion queue, one for what
//! was received. Queues of fixed length lie between them; each thread sleeps while its own is empty.
use super::control::{Control, Heard};
use catchment_channel::{EndError, Event, Filled, Inbound, Message, Operations, Outbound, Slots};
use catchment_verbs::wait::EventCount;
use catchment_verbs::{Completion, CompletionChannel, Cq};
use crossbeam_channel::{Receiver, Sender};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a sleeping thread leaves a peer unobserved that may be gone without a sign: killed on
/// another host.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const POLL: usize = 16;

/// Work for the send queue.
pub(super) enum Job {
    Message(Filled),
    /// A message of the peer was given back while there was nothing to do.
    Nudge,
    Stop,
}

/// What the threads of a link and its user share.
pub(super) struct Shared {
    /// Rung when something completed, came back or failed.
    pub(super) room: EventCount,
    pub(super) stop: AtomicBool,
    pub(super) goodbye: AtomicBool,
    pub(super) channel: Weak<dyn CompletionChannel>,
}

impl Shared {
    /// Ends the link from any thread.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Some(channel) = self.channel.upgrade() {
            channel.wake();
        }
        self.room.notify();
    }

    fn wait_for_room(&self, seen: u32) {
        self.room.wait(seen, Some(Instant::now() + LOOK_EVERY));
    }
}

/// Posts messages and tells the peer what was given back.
pub(super) struct SendWorker {
    pub(super) outbound: Outbound,
    pub(super) operations: Arc<Operations>,
    pub(super) slots: Arc<Slots>,
    pub(super) jobs: Receiver<Job>,
    pub(super) shared: Arc<Shared>,
    /// Messages of the peer that were taken off the account of those given back.
    told: u64,
    /// Of these, those not announced to the peer yet: the queue was full.
    owed: u32,
}

impl SendWorker {
    pub(super) fn new(
        outbound: Outbound,
        operations: Arc<Operations>,
        slots: Arc<Slots>,
        jobs: Receiver<Job>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { outbound, operations, slots, jobs, shared, told: 0, owed: 0 }
    }

    pub(super) fn run(mut self) {
        // Who failed has said so to all.
        if let Err(error) = self.work() {
            self.operations.fail(error);
            self.shared.wake();
        }
    }

    fn work(&mut self) -> Result<(), EndError> {
        loop {
            let job = match self.jobs.try_recv() {
                Ok(job) => job,
                Err(_) => self.rest()?,
            };
            match job {
                Job::Message(filled) => self.post(&filled)?,
                Job::Nudge => {}
                Job::Stop => return Ok(()),
            }
            self.tell()?;
        }
    }

    /// Tells all that is owed, then sleeps until there is something to do.
    fn rest(&mut self) -> Result<Job, EndError> {
        self.slots.set_idle(true);
        loop {
            let seen = self.shared.room.current();
            if self.tell()? {
                break;
            }
            if let Ok(job) = self.jobs.try_recv() {
                return Ok(job);
            }
            self.shared.wait_for_room(seen);
        }
        let job = self.jobs.recv().unwrap_or(Job::Stop);
        self.slots.set_idle(false);
        Ok(job)
    }

    fn post(&mut self, filled: &Filled) -> Result<(), EndError> {
        self.owed += self.slots.take_given_back(&mut self.told);
        loop {
            let seen = self.shared.room.current();
            let (operations, owed) = (&self.operations, self.owed);
            if self.outbound.send_filled(operations, filled, owed)? {
                self.owed = 0;
                self.shared.room.notify();
                return Ok(());
            }
            self.shared.wait_for_room(seen);
        }
    }

    /// Tells the peer what was given back, if that is due. False if the queue is full.
    fn tell(&mut self) -> Result<bool, EndError> {
        if self.owed == 0 && !self.slots.is_due() {
            return Ok(true);
        }
        self.owed += self.slots.take_given_back(&mut self.told);
        if self.owed == 0 {
            return Ok(true);
        }
        let told = self.outbound.announce(&self.operations, self.owed)?;
        if told {
            self.owed = 0;
        }
        Ok(told)
    }
}

/// Sleeps until something completes, and hands on what came.
pub(super) struct CompletionWorker {
    pub(super) cq: Arc<dyn Cq>,
    pub(super) channel: Arc<dyn CompletionChannel>,
    pub(super) operations: Arc<Operations>,
    pub(super) arrivals: Sender<(u32, u64)>,
    pub(super) jobs: Sender<Job>,
    pub(super) control: Arc<Control>,
    pub(super) shared: Arc<Shared>,
}

impl CompletionWorker {
    pub(super) fn run(self) {
        if let Err(error) = self.work() {
            self.operations.fail(error);
        }
        self.take_the_last();
        // What the peer said last explains why it is gone.
        self.hear();
        // A full queue of jobs ends at the next one of them, which fails.
        let _ = self.jobs.try_send(Job::Stop);
        self.shared.room.notify();
    }

    fn work(&self) -> Result<(), EndError> {
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return Err(EndError::Closed);
            }
            if self.drain()? {
                continue;
            }
            self.cq.req_notify(false);
            if self.drain()? {
                continue;
            }
            self.channel.wait(LOOK_EVERY).map_err(|error| EndError::Socket(error.kind()))?;
            // What came before its end is taken first.
            let heard = self.hear();
            if !self.drain()? {
                self.operations.check()?;
                if heard != Heard::Nothing {
                    return Err(EndError::PeerGone);
                }
            }
        }
    }

    fn drain(&self) -> Result<bool, EndError> {
        self.operations.alive()?;
        let mut any = false;
        loop {
            let (n, result) = self.take()?;
            result?;
            any |= n > 0;
            if n < POLL {
                break;
            }
        }
        if any {
            self.shared.room.notify();
        }
        Ok(any)
    }

    /// Takes one batch of completions and hands on what came, also behind one that failed. How many
    /// there were, and the first failure.
    fn take(&self) -> Result<(usize, Result<(), EndError>), EndError> {
        let mut out = [Completion::EMPTY; POLL];
        let n = self.cq.poll(&mut out)?;
        let mut result = Ok(());
        for completion in &out[..n] {
            match self.operations.note(completion) {
                // There is room for as many as there are receives; who takes them may be gone.
                Ok(Event::Came { imm, bytes }) => drop(self.arrivals.send((imm, bytes))),
                Ok(Event::Done(_)) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        Ok((n, result))
    }

    /// The link is over. What came before is the program's all the same: at most what the queue held.
    fn take_the_last(&self) {
        let mut left = self.cq.capacity() as usize;
        while left > 0 {
            match self.take() {
                Ok((n, _)) if n > 0 => left = left.saturating_sub(n),
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn hear(&self) -> Heard {
        if self.shared.goodbye.load(Ordering::SeqCst) {
            return Heard::Goodbye;
        }
        let heard = self.control.look();
        if heard == Heard::Goodbye {
            self.shared.goodbye.store(true, Ordering::SeqCst);
        }
        heard
    }
}

/// Checks what came, posts receives again, and hands messages to the program.
pub(super) struct ReceiveWorker {
    pub(super) inbound: Inbound,
    pub(super) operations: Arc<Operations>,
    pub(super) arrivals: Receiver<(u32, u64)>,
    pub(super) inbox: Sender<Message>,
    pub(super) shared: Arc<Shared>,
    /// Receives posted with one call.
    pub(super) list: u32,
}

impl ReceiveWorker {
    pub(super) fn run(mut self) {
        if let Err(error) = self.work() {
            self.operations.fail(error);
            self.shared.wake();
        }
    }

    fn work(&mut self) -> Result<(), EndError> {
        let mut consumed = 0;
        while let Ok((imm, bytes)) = self.arrivals.recv() {
            let arrival = self.inbound.arrived(imm, bytes)?;
            if arrival.given_back > 0 {
                self.shared.room.notify();
            }
            consumed += 1;
            if consumed >= self.list {
                // A failure ends the link; what came before it is handed on.
                let _ = self.operations.receives(consumed);
                consumed = 0;
            }
            if let Some(block) = arrival.block
                && self.inbox.send(block).is_err()
            {
                return Err(EndError::Closed);
            }
        }
        Ok(())
    }
}
