//! Mechanisms in virtual time: the shipped state machines over devices whose operations take as long
//! as a scenario says. Every thread has a processor of its own, and looking takes no time.
use super::ends::Ends;
use crate::mechanism::Visit;
use crate::times::{Constants, Law};
use anyhow::{Context as _, Result, anyhow, ensure};
use catchment_mechanisms::{ClaimError, EndError, Helper, Mechanism, ReceiveEnd, SendEnd};
use catchment_sim::Random;
use catchment_sim::verbs::{Fabric, Next, Pace, Stuck, Thread, run};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Simulated {
    pub(crate) constants: Constants,
    pub(crate) bytes: u32,
    /// Blocks sent; the first tenth does not count.
    pub(crate) count: u64,
    /// Threads that process blocks; whoever took one has no more to do with it.
    pub(crate) workers: usize,
    pub(crate) law: Law,
    pub(crate) seed: u64,
    /// Whether a thread takes the work that the mechanism has for one.
    pub(crate) helper: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Came {
    pub(crate) blocks_per_s: f64,
    /// What both ends had to say or ask, for each block.
    pub(crate) interactions_per_block: f64,
}

impl Visit for Simulated {
    type Out = Result<Came>;

    fn visit<M: Mechanism>(self, mechanism: M) -> Result<Came> {
        let fabric = Fabric::new(self.constants.times(), Pace::ByCaller);
        let (sender, receiver, helper) = Ends::on_fabric(&fabric, &mechanism)?.split(self.helper);
        let mut helper = helper.map(Helping);
        let mut source = Source { end: sender, bytes: self.bytes, left: self.count, packet: 0 };
        let queue = Rc::new(RefCell::new(VecDeque::new()));
        let mut collector = Collector {
            end: receiver,
            queue: (self.law != Law::Nothing).then(|| Rc::clone(&queue)),
            came: 0,
            wanted: self.count,
            begin: self.count / 10,
            began: Duration::ZERO,
            ended: Duration::ZERO,
        };
        let mut random = Random::new(self.seed);
        let mut workers: Vec<Worker<M>> = (0..self.workers)
            .map(|_| Worker {
                queue: Rc::clone(&queue),
                law: self.law,
                // Each its own chance, whoever comes first.
                random: random.fork(),
                working: None,
            })
            .collect();
        let mut threads: Vec<&mut dyn Thread<Failed>> = vec![&mut source, &mut collector];
        threads.extend(workers.iter_mut().map(|w| w as &mut dyn Thread<Failed>));
        threads.extend(helper.as_mut().map(|h| h as &mut dyn Thread<Failed>));
        run(&fabric, &mut threads).map_err(|Failed(error)| error)?;
        let counted = (collector.wanted - collector.begin) as f64;
        let time = (collector.ended - collector.began).as_secs_f64();
        ensure!(time > 0.0, "no time passed");
        let said = source.end.counts().interactions + collector.end.counts().interactions;
        Ok(Came {
            blocks_per_s: counted / time,
            interactions_per_block: said as f64 / self.count as f64,
        })
    }
}

struct Failed(anyhow::Error);

impl From<Stuck> for Failed {
    fn from(stuck: Stuck) -> Self {
        Self(stuck.into())
    }
}

impl From<EndError> for Failed {
    fn from(error: EndError) -> Self {
        Self(error.into())
    }
}

struct Source<S> {
    end: S,
    bytes: u32,
    left: u64,
    packet: u64,
}

impl<S: SendEnd> Thread<Failed> for Source<S> {
    fn step(&mut self, _: Duration) -> Result<Next, Failed> {
        if self.left > 0 {
            match self.end.claim(0, self.bytes) {
                Ok(claim) => {
                    self.end.commit(claim, self.packet)?;
                    self.packet = (self.packet + 1) % (1 << 16);
                    self.left -= 1;
                    return Ok(Next::Busy(Duration::ZERO));
                }
                Err(ClaimError::WouldBlock) => {}
                Err(error) => return Err(Failed(error.into())),
            }
        }
        self.end.progress()?;
        Ok(Next::Idle)
    }
}

/// The thread that a mechanism has work for.
struct Helping(Box<dyn Helper>);

impl Thread<Failed> for Helping {
    fn step(&mut self, _: Duration) -> Result<Next, Failed> {
        let found = self.0.step()?;
        Ok(if found { Next::Busy(Duration::ZERO) } else { Next::Idle })
    }
}

type Queue<B> = Rc<RefCell<VecDeque<B>>>;

/// Takes blocks; gives them back at once, or to whoever processes them.
struct Collector<R: ReceiveEnd> {
    end: R,
    queue: Option<Queue<R::Block>>,
    came: u64,
    wanted: u64,
    begin: u64,
    began: Duration,
    ended: Duration,
}

impl<R: ReceiveEnd> Thread<Failed> for Collector<R> {
    fn step(&mut self, now: Duration) -> Result<Next, Failed> {
        let Some(block) = self.end.take()? else { return Ok(Next::Idle) };
        match &self.queue {
            Some(queue) => queue.borrow_mut().push_back(block),
            None => drop(block),
        }
        self.came += 1;
        if self.came == self.begin {
            self.began = now;
        }
        if self.came == self.wanted {
            self.ended = now;
            return Ok(Next::Done);
        }
        Ok(Next::Busy(Duration::ZERO))
    }
}

struct Worker<M: Mechanism> {
    queue: Queue<<M::Receiver as ReceiveEnd>::Block>,
    law: Law,
    random: Random,
    working: Option<<M::Receiver as ReceiveEnd>::Block>,
}

impl<M: Mechanism> Thread<Failed> for Worker<M> {
    fn step(&mut self, _: Duration) -> Result<Next, Failed> {
        // Giving it back is the end of the work.
        self.working = None;
        let Some(block) = self.queue.borrow_mut().pop_front() else { return Ok(Next::Idle) };
        self.working = Some(block);
        let time = self.law.draw(&mut self.random);
        Ok(Next::Busy(Duration::from_nanos(time.round() as u64)))
    }
}

/// What is expected without any protocol: the sender is always ready, blocks take their time one
/// after the other, and a release is known `t_sync` later. `in_order`: a block comes back only with
/// all before it.
pub(crate) struct Expected {
    pub(crate) blocks: usize,
    pub(crate) workers: usize,
    pub(crate) t_write_ns: f64,
    pub(crate) t_sync_ns: f64,
    pub(crate) law: Law,
    pub(crate) count: u64,
    pub(crate) seed: u64,
    pub(crate) in_order: bool,
}

impl Expected {
    pub(crate) fn blocks_per_s(&self) -> Result<f64> {
        let mut random = Random::new(self.seed);
        let mut workers = vec![0.0; self.workers];
        let mut free = vec![0.0; self.blocks];
        let (mut now, mut last): (f64, f64) = (0.0, 0.0);
        for _ in 0..self.count {
            let place = earliest(&free).context("no blocks")?;
            now = now.max(free[place]) + self.t_write_ns;
            let worker = earliest(&workers).ok_or_else(|| anyhow!("no workers"))?;
            let end = f64::max(workers[worker], now) + self.law.draw(&mut random);
            workers[worker] = end;
            last = last.max(end);
            free[place] = if self.in_order { last } else { end } + self.t_sync_ns;
        }
        Ok(self.count as f64 * 1e9 / now)
    }
}

fn earliest(times: &[f64]) -> Option<usize> {
    (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]))
}
