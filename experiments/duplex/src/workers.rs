//! The three threads of a link: one for the send queue, one for the completion queue, one for the
//! receive queue. Bounded queues connect them; each thread sleeps while its own is empty.
use catchment_channel::establish::{Control, Heard};
use catchment_channel::{EndError, Event, Filled, Inbound, Message, Operations, Outbound, Slots};
use catchment_verbs::wait::EventCount;
use catchment_verbs::{Completion, CompletionChannel, Cq};
use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often a sleeping thread checks for a peer that died without a sign, such as one killed on
/// another host.
const CHECK_EVERY: Duration = Duration::from_millis(100);
const POLL: usize = 16;
/// Fruitless looks after which a thread that polls also looks at the clock.
const LOOKS_BETWEEN: u32 = 1 << 10;
/// Fruitless looks after which a thread that polls checks for a dead peer, about a second of them: the
/// control connection is not touched while messages come.
const LOOKS_BEFORE_CHECK: u32 = 1 << 24;

/// Work for the send queue.
pub(super) enum Job {
    Message(Filled),
    /// A message of the peer was released while there was nothing to do.
    Nudge,
    Stop,
}

/// What the threads of a link and its user share.
pub(super) struct Shared {
    /// Changes when something completed, was released or failed.
    pub(super) room: EventCount,
    pub(super) stop: AtomicBool,
    pub(super) goodbye: AtomicBool,
    /// Whether the threads look again instead of sleeping.
    pub(super) polls: bool,
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

    /// Repeats `step` after every change until it returns a value or the deadline has passed.
    pub(super) fn wait_until<T, E>(
        &self,
        deadline: Option<Instant>,
        mut step: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let mut looks = 0u32;
        loop {
            let seen = self.room.current();
            let found = step()?;
            looks = looks.wrapping_add(1);
            if self.polls && found.is_none() && !looks.is_multiple_of(LOOKS_BETWEEN) {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            if found.is_some() || deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(found);
            }
            if self.polls {
                continue;
            }
            let check = now + CHECK_EVERY;
            self.room.wait(seen, Some(deadline.map_or(check, |deadline| deadline.min(check))));
        }
    }

    /// Waits for what comes out of a queue between two threads.
    pub(super) fn receive<T>(
        &self,
        queue: &Receiver<T>,
        patience: Duration,
    ) -> Result<T, RecvTimeoutError> {
        if !self.polls {
            return queue.recv_timeout(patience);
        }
        let found = self.wait_until(Some(Instant::now() + patience), || match queue.try_recv() {
            Ok(found) => Ok(Some(found)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
        });
        found?.ok_or(RecvTimeoutError::Timeout)
    }

    /// The same without an end.
    fn receive_next<T>(&self, queue: &Receiver<T>) -> Result<T, RecvError> {
        if !self.polls {
            return queue.recv();
        }
        let found = self.wait_until(None, || match queue.try_recv() {
            Ok(found) => Ok(Some(found)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RecvError),
        });
        found?.ok_or(RecvError)
    }
}

/// Posts messages and announces released slots to the peer.
pub(super) struct SendWorker {
    pub(super) outbound: Outbound,
    pub(super) operations: Arc<Operations>,
    pub(super) slots: Arc<Slots>,
    pub(super) jobs: Receiver<Job>,
    pub(super) shared: Arc<Shared>,
    /// Released messages of the peer that were taken over from `slots`.
    pub(super) taken: u64,
    /// Of these, those not announced to the peer yet: the queue was full.
    pub(super) owed: u32,
}

impl SendWorker {
    pub(super) fn run(mut self) {
        if let Err(error) = self.work() {
            self.operations.fail(error);
            self.shared.wake();
        }
    }

    fn work(&mut self) -> Result<(), EndError> {
        loop {
            let job = match self.jobs.try_recv() {
                Ok(job) => job,
                Err(_) => self.wait_for_job()?,
            };
            match job {
                Job::Message(filled) => self.post(&filled)?,
                Job::Nudge => {}
                Job::Stop => return Ok(()),
            }
            self.announce()?;
        }
    }

    /// Announces all that is owed, then sleeps until there is something to do.
    fn wait_for_job(&mut self) -> Result<Job, EndError> {
        self.slots.set_idle(true);
        let shared = Arc::clone(&self.shared);
        let job = shared.wait_until(None, || {
            self.announce().map(|all| match all {
                true if !shared.polls => Some(self.jobs.recv().unwrap_or(Job::Stop)),
                true | false => self.jobs.try_recv().ok(),
            })
        })?;
        self.slots.set_idle(false);
        Ok(job.unwrap_or(Job::Stop))
    }

    fn post(&mut self, filled: &Filled) -> Result<(), EndError> {
        self.owed += self.slots.take_given_back(&mut self.taken);
        self.shared.wait_until(None, || {
            let sent = self.outbound.send_filled(&self.operations, filled, self.owed);
            sent.map(|sent| sent.then_some(()))
        })?;
        self.owed = 0;
        self.shared.room.notify();
        Ok(())
    }

    /// Announces released messages to the peer, if that is due. False if the queue is full.
    fn announce(&mut self) -> Result<bool, EndError> {
        if self.owed == 0 && !self.slots.is_due() {
            return Ok(true);
        }
        self.owed += self.slots.take_given_back(&mut self.taken);
        if self.owed == 0 {
            return Ok(true);
        }
        let announced = self.outbound.announce(&self.operations, self.owed)?;
        if announced {
            self.owed = 0;
        }
        Ok(announced)
    }
}

/// Sleeps until something completes, and passes on what arrived.
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
        self.take_rest();
        // The peer's last word explains why it is gone.
        self.hear();
        // With a full queue, the next job fails and ends the thread.
        let _ = self.jobs.try_send(Job::Stop);
        self.shared.room.notify();
    }

    fn work(&self) -> Result<(), EndError> {
        let mut looks = 0;
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return Err(EndError::Closed);
            }
            if self.drain()? {
                looks = 0;
                continue;
            }
            if self.shared.polls {
                looks += 1;
                std::hint::spin_loop();
                if looks < LOOKS_BEFORE_CHECK {
                    continue;
                }
                looks = 0;
                self.check()?;
                continue;
            }
            self.cq.req_notify(false);
            if self.drain()? {
                continue;
            }
            self.channel.wait(CHECK_EVERY).map_err(|error| EndError::Socket(error.kind()))?;
            self.check()?;
        }
    }

    /// Checks whether the peer has ended or died. What arrived before the end is taken first.
    fn check(&self) -> Result<(), EndError> {
        let heard = self.hear();
        if !self.drain()? {
            self.operations.check()?;
            if heard != Heard::Nothing {
                return Err(EndError::PeerGone);
            }
        }
        Ok(())
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

    /// Takes one batch of completions and passes on what arrived, also behind one that failed.
    /// Returns how many there were, and the first failure.
    fn take(&self) -> Result<(usize, Result<(), EndError>), EndError> {
        let mut out = [Completion::EMPTY; POLL];
        let n = self.cq.poll(&mut out)?;
        let mut result = Ok(());
        for completion in &out[..n] {
            match self.operations.note(completion) {
                // The queue is as long as the receive queue; the thread that takes may have ended.
                Ok(Event::Came { imm, bytes, .. }) => drop(self.arrivals.send((imm, bytes))),
                Ok(Event::Done(_)) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        Ok((n, result))
    }

    /// Passes on what arrived before the link ended: at most what the queue held.
    fn take_rest(&self) {
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
        let heard = self.control.poll();
        if heard == Heard::Goodbye {
            self.shared.goodbye.store(true, Ordering::SeqCst);
        }
        heard
    }
}

/// Checks what arrived, reposts receives, and passes messages to the program.
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
        while let Ok((imm, bytes)) = self.shared.receive_next(&self.arrivals) {
            let arrival = self.inbound.arrived(imm, bytes)?;
            if arrival.given_back > 0 {
                self.shared.room.notify();
            }
            consumed += 1;
            if consumed >= self.list {
                // A failure ends the link; what arrived before it is passed on.
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
