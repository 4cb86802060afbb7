//! Many applications in one process, each with a context of its own: to its agent each is an application, with a socket, a request
//! pool and a thread, as if it had a process. One thread posts for all of them, so that the order in which the system runs threads does not
//! decide who has requests waiting.
use super::ends::{AgentProcess, Network, Role, TARGET, application, start};
use super::seat::Seat;
use crate::{host, output, sys};
use anyhow::{Context as _, Result, bail, ensure};
use catchment_conformance::{Options, Side, connected};
use catchment_perf::ChildProcess;
use catchment_verbs::{Completion, Context, Payload, SendOp, SendWr, Sge};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Connections that one context has the targets of.
const TARGETS: u32 = 200;
/// Who is not always at work looks so often whether it is time for the next request.
const NAP: Duration = Duration::from_micros(100);
/// Completions taken at once.
const POLLED: usize = 32;

/// What an application asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Load {
    /// Always so many, of which this many are posted at once.
    Always { outstanding: u32, batch: u32 },
    /// So many a second, over all connections; none is idle.
    Paced { per_s: f64 },
}

/// An application of a crowd.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Member {
    /// Its number among the applications of the policy.
    pub(super) at: usize,
    /// Of a WRITE.
    pub(super) bytes: u64,
    /// Registered memory at each end of a connection.
    pub(super) memory_bytes: u64,
    pub(super) connections: u32,
    pub(super) load: Load,
}

/// What a crowd is told to do; it answers when it has done it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect an application.
    Join(Member),
    /// Let it post.
    Begin(usize),
    /// Change what it asks for.
    Load(usize, Load),
    /// End it, whatever it has outstanding.
    Leave(usize),
}

const DONE: &str = "done";
const ENDED: &str = "the applications have ended";

/// The process, as seen by who measures.
pub(super) struct Crowd(ChildProcess);

impl Crowd {
    /// Starts it without applications.
    pub(super) fn start(agents: &AgentProcess) -> Result<Self> {
        let [here, there] = agents.seats(TARGET);
        let crowd = start("the crowd", Role::Crowd { here, there }, &Network(None).end(false))?;
        Ok(Self(crowd))
    }

    /// Has an order carried out.
    pub(super) fn tell(&mut self, order: &Order) -> Result<()> {
        self.0.say(&serde_json::to_string(order)?)?;
        self.0.wait_for(|line| line == DONE).with_context(|| format!("{order:?}"))?;
        Ok(())
    }

    /// Connects applications and lets them post.
    pub(super) fn begin(&mut self, members: &[Member]) -> Result<()> {
        members.iter().try_for_each(|member| self.tell(&Order::Join(*member)))?;
        members.iter().try_for_each(|member| self.tell(&Order::Begin(member.at)))
    }
}

/// A connection: its requests are numbered from 1.
struct Line {
    side: Side,
    there: Side,
    posted: u64,
    done: u64,
}

/// An application at work.
struct Working {
    member: Member,
    lines: Vec<Line>,
    /// Since when, and how many since then, where it is paced.
    paced: (Instant, u64),
}

/// What the thread that posts is told.
enum Word {
    Take(Working),
    Load(usize, Load),
    Give(usize, Sender<Option<Working>>),
}

impl Working {
    /// Takes completions and posts what is due; returns whether it always has something to do.
    fn turn(&mut self, requests: &mut Vec<u64>) -> Result<bool> {
        match self.member.load {
            Load::Always { outstanding, batch } => {
                for line in &mut self.lines {
                    line.take()?;
                    while line.posted - line.done + u64::from(batch) <= u64::from(outstanding) {
                        line.post(&self.member, batch, requests)?;
                    }
                }
                Ok(true)
            }
            Load::Paced { per_s } => {
                self.keep_pace(per_s, requests)?;
                Ok(false)
            }
        }
    }

    fn keep_pace(&mut self, per_s: f64, requests: &mut Vec<u64>) -> Result<()> {
        if per_s <= 0.0 {
            return Ok(());
        }
        let (since, posted) = self.paced;
        let due = (since.elapsed().as_secs_f64() * per_s) as u64;
        let count = self.lines.len() as u64;
        for n in posted..due {
            let line = &mut self.lines[(n % count) as usize];
            line.take()?;
            if line.posted - line.done >= u64::from(OUTSTANDING_PACED) {
                self.paced.1 = n;
                return Ok(());
            }
            line.post(&self.member, 1, requests)?;
        }
        self.paced.1 = due.max(posted);
        self.lines.iter_mut().try_for_each(Line::take)
    }
}

/// Requests of a paced connection that are not done.
const OUTSTANDING_PACED: u32 = 256;

impl Line {
    fn take(&mut self) -> Result<()> {
        let mut out = [Completion::EMPTY; POLLED];
        loop {
            let count = self.side.send_cq.poll(&mut out)?;
            for done in &out[..count] {
                ensure!(done.result.is_ok(), "a request failed: {done:?}");
                self.done = done.wr_id;
            }
            if count < POLLED {
                return Ok(());
            }
        }
    }

    /// Posts WRITEs round the memory, the last one of them signaled.
    fn post(&mut self, member: &Member, batch: u32, numbers: &mut Vec<u64>) -> Result<()> {
        let Self { side, there, posted, .. } = self;
        let places = (member.memory_bytes / member.bytes.next_multiple_of(64)).max(1);
        let place = |n: u64| (n % places * member.bytes.next_multiple_of(64)) as usize;
        numbers.clear();
        numbers.extend(*posted + 1..=*posted + u64::from(batch));
        let sge = |n: &u64| [side.sge(place(*n), member.bytes as usize)];
        let sges: Vec<[Sge; 1]> = numbers.iter().map(sge).collect();
        let request = |(n, sges)| {
            let (n, sges): (&u64, &[Sge; 1]) = (n, sges);
            let op = SendOp::Write(there.remote(place(*n)));
            let signaled = numbers.last() == Some(n);
            SendWr { signaled, ..SendWr::new(*n, op, Payload::Sges(sges)) }
        };
        let requests: Vec<SendWr<'_>> = numbers.iter().zip(&sges).map(request).collect();
        side.qp.post_send(&requests)?;
        *posted += u64::from(batch);
        Ok(())
    }
}

/// Posts for all until its words end.
fn work(words: &Receiver<Word>) -> Result<()> {
    let (mut all, mut numbers): (Vec<Working>, _) = (Vec::new(), Vec::new());
    loop {
        loop {
            match words.try_recv() {
                Ok(Word::Take(working)) => all.push(working),
                Ok(Word::Load(at, load)) => {
                    let of = all.iter_mut().filter(|working| working.member.at == at);
                    for working in of {
                        (working.member.load, working.paced) = (load, (Instant::now(), 0));
                    }
                }
                Ok(Word::Give(at, reply)) => {
                    let found = all.iter().position(|working| working.member.at == at);
                    let _ = reply.send(found.map(|found| all.remove(found)));
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let mut is_at_work = false;
        for working in &mut all {
            is_at_work |= working.turn(&mut numbers)?;
        }
        if is_at_work {
            std::thread::yield_now();
        } else {
            // Paced by the clock: nothing tells of it.
            std::thread::sleep(NAP);
        }
    }
}

/// The process that obeys orders until its input ends.
pub(super) fn role(here: &Seat, there: &Seat) -> Result<()> {
    sys::settle(host::SOURCE_CORE)?;
    let (words, heard) = channel();
    let worker = std::thread::spawn(move || work(&heard));
    let mut prepared: Vec<Working> = Vec::new();
    let mut targets = Targets { seat: there.clone(), context: None, used: 0 };
    for line in std::io::stdin().lines() {
        ensure!(!worker.is_finished(), "an application failed: {:?}", worker.join());
        match serde_json::from_str(&line?)? {
            Order::Join(member) => prepared.push(targets.connect(here, &member)?),
            Order::Begin(at) => {
                let found = prepared.iter().position(|working| working.member.at == at);
                let mut working = prepared.remove(found.context("who has not joined")?);
                working.paced.0 = Instant::now();
                words.send(Word::Take(working)).ok().context(ENDED)?;
            }
            Order::Load(at, load) => words.send(Word::Load(at, load)).ok().context(ENDED)?,
            Order::Leave(at) => {
                let (reply, given) = channel();
                words.send(Word::Give(at, reply)).ok().context(ENDED)?;
                let Some(working) = given.recv()? else { bail!("application {at} has not begun") };
                drop(working);
            }
        }
        output::line(DONE)?;
    }
    Ok(())
}

/// Where connections lead: applications of their own, for many connections each.
struct Targets {
    seat: Seat,
    context: Option<Arc<dyn Context>>,
    used: u32,
}

impl Targets {
    fn context(&mut self) -> Result<Arc<dyn Context>> {
        if self.used >= TARGETS {
            (self.context, self.used) = (None, 0);
        }
        self.used += 1;
        if self.context.is_none() {
            self.context = Some(self.seat.open()?);
        }
        self.context.clone().context("a target")
    }

    fn connect(&mut self, here: &Seat, member: &Member) -> Result<Working> {
        let context = here.of(application(member.at)).open()?;
        let depth = match member.load {
            Load::Always { outstanding, .. } => outstanding,
            Load::Paced { .. } => OUTSTANDING_PACED,
        };
        let options = Options {
            max_send_wr: depth,
            send_cqe: depth,
            max_recv_wr: 1,
            recv_cqe: 1,
            bytes: member.memory_bytes as usize,
            ..Options::default()
        };
        // A target sends nothing.
        let deaf = Options { max_send_wr: 1, send_cqe: 1, ..options.clone() };
        let connect = |_| {
            let ends = ((context.clone(), &options), (self.context()?, &deaf));
            let (side, there) = connected(ends.0, ends.1);
            anyhow::Ok(Line { side, there, posted: 0, done: 0 })
        };
        let lines = (0..member.connections).map(connect).collect::<Result<Vec<_>>>()?;
        Ok(Working { member: *member, lines, paced: (Instant::now(), 0) })
    }
}
