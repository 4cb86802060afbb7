//! The loop of a receive thread.
//!
//! Sessions that find blocks, or found some a moment ago, have a turn in every round. The others
//! sleep: on their doorbell, all of them together in one epoll, or for a while. While there are
//! rounds, the thread asks only now and then which sleepers were rung.
use super::intake::{IntakeError, Turn};
use super::sessions::Sessions;
use super::{Command, Mailbox};
use catchment_verbs::event;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The number under which epoll reports the mailbox.
const MAILBOX: u64 = u64::MAX;
/// Rings that are taken from epoll at a time.
const EVENTS: usize = 64;
/// How long a session that was rung waits at most while others have blocks.
const CHECK_SLEEPERS: Duration = Duration::from_micros(100);
/// Rounds between two readings of the clock, while some sleep.
const ROUNDS: u32 = 4;
/// How often it polls where epoll fails.
const WITHOUT_EPOLL: Duration = Duration::from_millis(1);

/// A receive thread at work.
pub(super) struct ReceiveLoop {
    mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    sessions: Sessions,
    rounds: u32,
    checked_at: Instant,
    stopping: bool,
}

/// How to go on after a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pause {
    /// Someone found blocks.
    None,
    Spin,
    Yield,
}

impl ReceiveLoop {
    /// # Errors
    /// No descriptor is left.
    pub(super) fn new(mailbox: Arc<Mailbox>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(MAILBOX);
        epoll::add(&epoll, &mailbox.wake, data, ring_flags())?;
        Ok(Self {
            mailbox,
            epoll,
            sessions: Sessions::default(),
            rounds: 0,
            checked_at: Instant::now(),
            stopping: false,
        })
    }

    /// Receives until it is asked to stop and all sessions have ended.
    pub(super) fn run(&mut self) {
        loop {
            self.take_commands();
            if self.sessions.all_sleep() {
                if self.stopping {
                    return;
                }
                self.sleep();
                continue;
            }
            match self.round() {
                Pause::None => {}
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
            }
            self.check_sleepers();
        }
    }

    fn take_commands(&mut self) {
        while let Some(command) = self.mailbox.commands.pop() {
            match command {
                Command::Add(intake) => {
                    let number = self.sessions.insert(intake);
                    self.watch(number);
                }
                Command::End(id) => {
                    if let Some(number) = self.sessions.find(id) {
                        self.begin_draining(number);
                    }
                }
                Command::Stop => {
                    self.stopping = true;
                    let all: Vec<_> = self.sessions.all().collect();
                    all.into_iter().for_each(|n| self.begin_draining(n));
                }
            }
        }
    }

    fn begin_draining(&mut self, number: usize) {
        if let Some(intake) = self.sessions.get_mut(number) {
            intake.begin_draining();
        }
        self.sessions.wake(number);
    }

    /// From now on epoll reports when the session is rung. Each ring is an event of its own, so
    /// that no thread needs to read the counter: reading one that a peer shares could block.
    fn watch(&mut self, number: usize) {
        let Some(intake) = self.sessions.get_mut(number) else { return };
        let Some(watch) = intake.watch().cloned() else { return };
        let data = epoll::EventData::new_u64(number as u64);
        let fd = watch.as_fd().ok_or(Errno::NOTSUP);
        if let Err(error) = fd.and_then(|fd| epoll::add(&self.epoll, fd, data, ring_flags())) {
            tracing::warn!(%error, "cannot wait for a doorbell; polling instead");
            intake.lose_watch(WITHOUT_EPOLL);
        }
    }

    /// Lets each active session have a turn.
    fn round(&mut self) -> Pause {
        let mut pause = Pause::Yield;
        let mut n = 0;
        while let Some(number) = self.sessions.active(n) {
            match self.turn(number) {
                Ok(Turn::Found) => pause = Pause::None,
                Ok(Turn::Spin) => pause = pause.min(Pause::Spin),
                Ok(Turn::Yield) => {}
                Ok(Turn::Nap(time)) => {
                    self.sessions.sleep_until(number, Instant::now() + time);
                    continue;
                }
                Ok(Turn::Armed) => {
                    self.sessions.sleep_until_rung(number);
                    continue;
                }
                Ok(Turn::Drained) => {
                    self.end(number, Ok(()));
                    continue;
                }
                Err(error) => {
                    self.end(number, Err(error));
                    continue;
                }
            }
            n += 1;
        }
        pause
    }

    fn turn(&mut self, number: usize) -> Result<Turn, IntakeError> {
        let Some(intake) = self.sessions.get_mut(number) else { return Ok(Turn::Drained) };
        // The session ends with it, and the others go on.
        catch_unwind(AssertUnwindSafe(|| intake.turn())).unwrap_or(Err(IntakeError::Panicked))
    }

    fn end(&mut self, number: usize, result: Result<(), IntakeError>) {
        let Some(intake) = self.sessions.remove(number) else { return };
        if let Some(fd) = intake.watch().and_then(|watch| watch.as_fd()) {
            // A peer may hold the counter too: closing ours would leave it in the epoll.
            let _ = epoll::delete(&self.epoll, fd);
        }
        self.mailbox.sessions.fetch_sub(1, Ordering::Relaxed);
        intake.end(result);
    }

    /// Wakes the sleepers that were rung or whose time has come, if a check is due.
    fn check_sleepers(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(ROUNDS) || !self.sessions.some_sleep() {
            return;
        }
        let now = Instant::now();
        if now.duration_since(self.checked_at) >= CHECK_SLEEPERS {
            self.checked_at = now;
            self.sessions.wake_due(now);
            self.wake_rung(Some(&Timespec::default()));
        }
    }

    /// Sleeps until a session is rung, the first time comes, or there is a command.
    fn sleep(&mut self) {
        let Some(due) = self.sessions.first_due() else { return self.wake_rung(None) };
        // poll(2) and not epoll(2): some systems have no finer time there than milliseconds.
        if let Err(error) = event::wait_readable(self.epoll.as_fd(), due) {
            tracing::warn!(%error, "cannot wait for doorbells");
            // Where the system cannot wait, sleep and poll again.
            std::thread::sleep(WITHOUT_EPOLL);
        }
        self.wake_rung(Some(&Timespec::default()));
        self.sessions.wake_due(Instant::now());
    }

    fn wake_rung(&mut self, timeout: Option<&Timespec>) {
        let mut space = [const { MaybeUninit::uninit() }; EVENTS];
        let events = match epoll::wait(&self.epoll, &mut space, timeout) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot wait for doorbells");
                // Where the system cannot wait, sleep and poll again.
                return std::thread::sleep(WITHOUT_EPOLL);
            }
        };
        for event in events {
            let number = event.data.u64();
            if number != MAILBOX {
                self.sessions.wake(number as usize);
            }
        }
    }
}

/// Readable, once for each ring.
fn ring_flags() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ET
}
