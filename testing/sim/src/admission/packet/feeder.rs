//! A source's program: it posts chunks as WRITEs, in order, and notices what became of them.
use super::{Random, Rights, Space};
use crate::roce::{Program, QpTable};
use catchment_roce::{Completion, Payload, Queue, RemoteAddr, SendOp, SendWr, Sge, WcStatus};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the longest WRITE.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// WRITEs on their way where no controller says when.
const AHEAD: usize = 4;

/// A part of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) event: usize,
    pub(super) bytes: u64,
}

/// What a source noticed.
#[derive(Clone, Copy, Debug)]
pub(in crate::admission) enum Notice {
    /// A source hands the first byte of an event to what carries it; again when it goes on with it after another.
    Begun { event: usize },
    /// The collector has so many more bytes of an event.
    Arrived { event: usize, bytes: u64 },
    /// A WRITE of this source failed: what is left of its event is not sent.
    Failed { source: u32 },
}

/// Notices of all sources.
#[derive(Debug, Default)]
pub(super) struct Notices(RefCell<Vec<Notice>>);

impl Notices {
    pub(super) fn are_there(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        self.0.take()
    }

    pub(super) fn add(&self, notice: Notice) {
        self.0.borrow_mut().push(notice);
    }

    /// Adds that a source sends of this event, unless it did so last.
    pub(super) fn begin(&self, last: &mut Option<usize>, event: usize) {
        if last.replace(event) != Some(event) {
            self.add(Notice::Begun { event });
        }
    }
}

/// The program of a source; that of the collector posts nothing.
pub(super) struct Feeder {
    number: u32,
    source: Sge,
    target: RemoteAddr,
    waiting: VecDeque<Chunk>,
    posted: VecDeque<Chunk>,
    /// The event of the last chunk that was posted.
    begun: Option<usize>,
    /// Whether a controller says when to post.
    granted: bool,
    broken: Option<WcStatus>,
    notices: Rc<Notices>,
    has_arrived: bool,
}

impl Feeder {
    pub(super) fn new(
        near: &mut Space,
        far: &mut Space,
        random: &mut Random,
        (number, notices): (u32, &Rc<Notices>),
    ) -> Self {
        let mut content = vec![0; CHUNK_BYTES as usize];
        random.fill(&mut content);
        let lkey = near.register(content, Rights::LOCAL);
        let rkey = far.register(vec![0; CHUNK_BYTES as usize], Rights::ALL);
        Self {
            number,
            source: Sge { addr: near.addr(lkey), bytes: CHUNK_BYTES as u32, lkey },
            target: RemoteAddr { addr: far.addr(rkey), rkey },
            ..Self::idle(notices)
        }
    }

    pub(super) fn idle(notices: &Rc<Notices>) -> Self {
        Self {
            number: 0,
            source: Sge::default(),
            target: RemoteAddr::default(),
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            begun: None,
            granted: false,
            broken: None,
            notices: Rc::clone(notices),
            has_arrived: false,
        }
    }

    pub(super) fn feed(&mut self, chunk: Chunk, granted: bool) {
        self.granted = granted;
        self.waiting.push_back(chunk);
    }

    /// Goes on over a new queue pair, with what is not of the event that failed.
    pub(super) fn begin_anew(&mut self) {
        self.broken = None;
    }

    /// Returns whether the collector has what was sent, wherever something was.
    pub(super) fn is_right(&self, near: &Space, far: &Space) -> bool {
        let sent = near.region(self.source.lkey).map(|region| &region.bytes);
        let there = far.region(self.target.rkey).map(|region| &region.bytes);
        !self.has_arrived || sent == there
    }

    fn fail(&mut self, status: WcStatus) {
        let Some(first) = self.posted.front().copied() else { return };
        self.broken = Some(status);
        let all = std::mem::take(&mut self.posted).into_iter().chain(self.waiting.drain(..));
        self.waiting = all.filter(|chunk| chunk.event != first.event).collect();
        self.notices.add(Notice::Failed { source: self.number });
    }
}

impl Program for Feeder {
    fn completed(&mut self, _: Duration, _: usize, completion: Completion, _: &mut Space) {
        if completion.queue != Queue::Send || self.broken.is_some() {
            return;
        }
        match completion.result {
            Ok(_) => {
                let Some(Chunk { event, bytes }) = self.posted.pop_front() else { return };
                self.has_arrived |= bytes == CHUNK_BYTES;
                self.notices.add(Notice::Arrived { event, bytes });
            }
            Err(status) => self.fail(status),
        }
    }

    fn act(&mut self, _: Duration, qps: &mut QpTable, _: &mut Space) {
        while self.broken.is_none() && (self.granted || self.posted.len() < AHEAD) {
            let Some(chunk) = self.waiting.front().copied() else { break };
            let sges = [Sge { bytes: chunk.bytes as u32, ..self.source }];
            let wr = SendWr::new(0, SendOp::Write(self.target), Payload::Sges(&sges));
            if qps.get_mut(0).post_send(&wr).is_err() {
                break;
            }
            self.waiting.pop_front();
            self.posted.push_back(chunk);
            self.notices.begin(&mut self.begun, chunk.event);
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        None
    }
}
