//! A few threads that receive for all sessions: from the rings to the workers.
//!
//! In comes a session's [`Receiver`] with its streams, by [`ReceiveThreads::add`]; out go blocks, in
//! order, to the streams' workers, and at the end a result to the session. A session stays with one
//! thread, the one that had the fewest when it was added.
//!
//! Promises: the number of threads does not depend on the number of sessions; sessions take turns of
//! a few blocks, so that none stops the others, whatever its source writes or rings; a session whose
//! source is idle costs no processor time where its provider has a doorbell. A thread never blocks
//! but to wait for all its sessions at once, and takes no lock.
mod intake;
mod sessions;
mod thread;

pub(super) use intake::{IntakeError, SharedProgress, StreamIntake};

use super::workers::WorkQueue;
use catchment_transfer::Receiver;
use catchment_verbs::event;
use crossbeam_queue::SegQueue;
use intake::SessionIntake;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The threads of a collector.
pub(super) struct ReceiveThreads {
    threads: Vec<Arc<Mailbox>>,
    queue: Arc<WorkQueue>,
    /// The longest pause between two polls of a ring that no provider rings for, while blocks come.
    poll_every: Duration,
    begun: AtomicU64,
}

/// The joining ends of the threads.
pub(super) struct Running(Vec<(Arc<Mailbox>, JoinHandle<()>)>);

/// What a thread is asked to do.
enum Command {
    Add(Box<SessionIntake>),
    /// Take what is committed in the ring of this session, then end it.
    End(u64),
    /// The same with all, then end the thread.
    Stop,
}

/// Where a thread finds its commands, and what wakes it.
struct Mailbox {
    commands: SegQueue<Command>,
    wake: OwnedFd,
    sessions: AtomicUsize,
}

/// How the intake of a session ended.
struct Ended {
    result: Result<(), IntakeError>,
    /// Freed by the session: unmapping a ring takes too long for a receive thread.
    _intake: Box<SessionIntake>,
}

/// A session in the hands of a receive thread. Dropping it ends the session's intake, without
/// waiting.
pub(super) struct Intake {
    id: u64,
    mailbox: Arc<Mailbox>,
    ended: oneshot::Receiver<Ended>,
    is_over: bool,
}

impl ReceiveThreads {
    /// Starts `threads` threads, at least one.
    pub(super) fn start(
        threads: usize,
        queue: Arc<WorkQueue>,
        poll_every: Duration,
    ) -> io::Result<(Self, Running)> {
        let mut running = Running(Vec::new());
        for number in 0..threads.max(1) {
            let mailbox = Arc::new(Mailbox {
                commands: SegQueue::new(),
                wake: event::event_fd()?,
                sessions: AtomicUsize::new(0),
            });
            let mut run = thread::ReceiveLoop::new(mailbox.clone())?;
            let thread = std::thread::Builder::new()
                .name(format!("catchment-recv{number}"))
                .spawn(move || run.run())?;
            running.0.push((mailbox, thread));
        }
        let threads = Self {
            threads: running.0.iter().map(|(mailbox, _)| mailbox.clone()).collect(),
            queue,
            poll_every,
            begun: AtomicU64::new(0),
        };
        Ok((threads, running))
    }

    /// Receives for a session from now on.
    pub(super) fn add(&self, receiver: Receiver, streams: Vec<StreamIntake>) -> Intake {
        let id = self.begun.fetch_add(1, Ordering::Relaxed);
        let (ending, ended) = oneshot::channel();
        let mailbox = self.least_loaded().clone();
        let intake =
            SessionIntake::new(id, receiver, streams, self.queue.clone(), self.poll_every, ending);
        mailbox.sessions.fetch_add(1, Ordering::Relaxed);
        mailbox.send(Command::Add(Box::new(intake)));
        Intake { id, mailbox, ended, is_over: false }
    }

    fn least_loaded(&self) -> &Arc<Mailbox> {
        let load = |mailbox: &&Arc<Mailbox>| mailbox.sessions.load(Ordering::Relaxed);
        self.threads.iter().min_by_key(load).unwrap_or(&self.threads[0])
    }
}

impl Running {
    /// Ends all intakes and waits for the threads.
    pub(super) fn end(self) {
        for (mailbox, _) in &self.0 {
            mailbox.send(Command::Stop);
        }
        for (_, thread) in self.0 {
            if thread.join().is_err() {
                tracing::error!("a receive thread panicked");
            }
        }
    }
}

impl Mailbox {
    fn send(&self, command: Command) {
        self.commands.push(command);
        event::ring(&self.wake);
    }
}

impl Intake {
    /// Waits until the intake has ended by itself, because the source misbehaved, or was ended.
    /// Cancelling it loses nothing; once it has returned, it stays pending.
    pub(super) async fn ended(&mut self) -> Result<(), IntakeError> {
        if self.is_over {
            return std::future::pending().await;
        }
        let ended = (&mut self.ended).await;
        self.is_over = true;
        // Without an answer the thread has ended with the collector.
        ended.map_or(Ok(()), |ended| ended.result)
    }

    /// Takes what is committed in the ring, then ends the intake.
    pub(super) async fn end(mut self) -> Result<(), IntakeError> {
        if self.is_over {
            return Ok(());
        }
        self.mailbox.send(Command::End(self.id));
        self.ended().await
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        if !self.is_over {
            self.mailbox.send(Command::End(self.id));
        }
    }
}
