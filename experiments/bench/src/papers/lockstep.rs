//! What is counted: requests and completions for each block, and the smallest queues that suffice.
//! Both ends take turns in one thread, so that the numbers are the same in every run.
use super::bench::Experiment;
use super::ends::{At, Change, Ends};
use super::record::Conditions;
use super::virtual_stream::shape;
use crate::job::Network;
use crate::mechanism::{Provider, Visit};
use crate::times::Constants;
use anyhow::{Context as _, Error, Result, bail, ensure};
use catchment_mechanisms::{
    EndError, EndNeeds, Mechanism, QueueNeeds, ReceiveEnd, SendEnd, SetupError,
};
use catchment_verbs::{CqError, PostError, PostFailure, VerbsError};

/// Blocks that go through a queue that is too small.
const COUNT_WITH_LESS: u64 = 600;
/// In this time a message is there.
const DELIVERY: std::time::Duration = std::time::Duration::from_millis(1);
const LOOKS_MOST: u32 = 20_000_000;
/// Who makes no progress with a queue that is too small, and says nothing, hangs.
const LOOKS_WITH_LESS: u32 = 2_000_000;
/// An end whose peer has failed says why after so many looks.
const LOOKS_AFTERWARDS: u32 = 1000;

/// Counts interactions and messages for each block: the source fills the whole ring, the collector
/// takes and gives back all of it, again and again.
pub(super) fn interactions(of: &mut Experiment<'_>) -> Result<()> {
    for (mechanism, bytes, blocks) in of.cells() {
        let name = format!("{mechanism}, {blocks} blocks");
        of.progress(&name);
        let count = Counting {
            provider: of.provider,
            constants: of.part.constants,
            bytes: u32::try_from(bytes)?,
            rounds: of.effort.count / blocks as u64,
        };
        let counted = mechanism.with(shape(bytes, blocks)?, count);
        let (counted, network) = counted.with_context(|| name)?;
        let cell = of.cell(mechanism, (bytes, blocks));
        of.found(&cell, &in_turn(network), counted);
    }
    Ok(())
}

/// Returns the WRITEs and the READs that the source posts for each block over this provider, as
/// [`interactions`] counts them.
pub(crate) fn requests_per_block(
    provider: Provider,
    mechanism: crate::mechanism::Mechanism,
    (bytes, blocks): (usize, usize),
    count: u64,
) -> Result<[f64; 2]> {
    let rounds = (count / blocks as u64).max(1);
    let counting = Counting { provider, constants: None, bytes: u32::try_from(bytes)?, rounds };
    let (counted, _) = mechanism.with(shape(bytes, blocks)?, counting)?;
    let number = |name: &str| {
        let found = counted.iter().find(|((metric, _), _)| *metric == name);
        found.map(|(_, number)| *number).context("it was not counted")
    };
    let reads = number("reads_per_block")?;
    Ok([number("source_messages_per_block")? - reads, reads])
}

fn in_turn(network: Option<Network>) -> Conditions {
    let conditions = Conditions {
        wait: "in turn".to_owned(),
        caches: "the same blocks again and again",
        restarts: 1,
        ..Conditions::default()
    };
    conditions.with(network)
}

/// Numbers by name, and what became of packets.
type Counted = (Vec<((&'static str, &'static str), f64)>, Option<Network>);

fn counted(
    numbers: impl IntoIterator<Item = (&'static str, f64)>,
) -> Vec<((&'static str, &'static str), f64)> {
    numbers.into_iter().map(|(name, number)| ((name, "1"), number)).collect()
}

struct Counting {
    provider: Provider,
    constants: Option<Constants>,
    bytes: u32,
    rounds: u64,
}

impl Visit for Counting {
    type Out = Result<Counted>;

    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out {
        let mut ends = Ends::new(self.provider, self.constants, &mechanism, [&|_| {}; 2])?;
        let blocks = mechanism.shape().blocks;
        let round = |ends: &mut Ends<M>| -> Result<()> {
            let (mut sent, mut taken) = (0, Vec::new());
            for _ in 0..LOOKS_MOST {
                if sent < blocks && ends.send(self.bytes)? {
                    sent += 1;
                } else if let Some(block) = ends.take()? {
                    taken.push(block);
                } else if taken.len() == blocks as usize {
                    return Ok(());
                } else {
                    ends.idle()?;
                }
            }
            bail!("no progress after {LOOKS_MOST} looks")
        };
        // What is learnt at the beginning does not count.
        for _ in 0..self.rounds.div_ceil(10) {
            round(&mut ends)?;
        }
        let before = Totals::of(&ends);
        for _ in 0..self.rounds {
            round(&mut ends)?;
        }
        let after = Totals::of(&ends);
        let all = (self.rounds * u64::from(blocks)) as f64;
        let per_block = |of: fn(&Totals) -> u64| (of(&after) - of(&before)) as f64 / all;
        let counted = counted([
            ("interactions_per_block", per_block(|t| t.interactions)),
            ("messages_per_block", per_block(|t| t.messages)),
            ("reads_per_block", per_block(|t| t.reads)),
            ("source_messages_per_block", per_block(|t| t.source_messages)),
            ("collector_requests_per_block", per_block(|t| t.collector)),
        ]);
        Ok((counted, ends.network()))
    }
}

struct Totals {
    interactions: u64,
    messages: u64,
    reads: u64,
    source_messages: u64,
    collector: u64,
}

impl Totals {
    fn of<M: Mechanism>(ends: &Ends<M>) -> Self {
        let [source, collector] = ends.traces.each_ref().map(|trace| trace.requests());
        let (sent, taken) = (ends.sender.counts(), ends.receiver.counts());
        Self {
            interactions: sent.interactions + taken.interactions,
            messages: source.messages() + collector.messages(),
            reads: source.reads,
            source_messages: source.messages(),
            collector: collector.messages() + collector.receives,
        }
    }
}

/// Moves many blocks with exactly the queues that a mechanism asks for, and then with one place less
/// in each of them.
pub(super) fn queues(of: &mut Experiment<'_>) -> Result<()> {
    let count = of.effort.count;
    for (mechanism, bytes, blocks) in of.cells() {
        of.progress(mechanism.name());
        let mut cell = of.cell(mechanism, (bytes, blocks));
        let moving = Moving {
            provider: of.provider,
            constants: of.part.constants,
            bytes: u32::try_from(bytes)?,
            count,
            less: None,
        };
        let sizes = mechanism.with(shape(bytes, blocks)?, moving);
        let (sizes, network) =
            sizes.with_context(|| format!("{mechanism} with the queues it asks for"))?;
        let conditions = in_turn(network);
        of.found(&cell, &conditions, sizes);
        for less in LESS {
            let moving = Moving { less: Some(less), count: count.min(COUNT_WITH_LESS), ..moving };
            let result = mechanism.with(shape(bytes, blocks)?, moving);
            if matches!(&result, Err(error) if error.is::<NothingLess>()) {
                continue;
            }
            let (is_right, said) = match result {
                Ok(_) => (false, "no error".to_owned()),
                Err(error) => (less.is_right(&error), format!("{error:#}")),
            };
            cell.variant = Some(format!("{}: {said}", less.name));
            let fails = f64::from(u8::from(is_right));
            of.found(&cell, &conditions, [(("one_less_fails", "1"), fails)]);
        }
    }
    Ok(())
}

/// A queue that gets one place less.
#[derive(Clone, Copy)]
struct Less {
    name: &'static str,
    at_source: bool,
    queue: Queue,
    place: fn(&mut QueueNeeds) -> &mut u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Send,
    Receive,
    Completion,
}

impl Less {
    fn at(self) -> At {
        if self.at_source { At::Source } else { At::Collector }
    }

    /// Returns whether this is the error that verbs have for it, at the end whose queue it is. A hang,
    /// and what the other end makes of it, is none.
    fn is_right(self, error: &anyhow::Error) -> bool {
        let is_here = error.downcast_ref::<At>() == Some(&self.at());
        let is_full = |post: &PostError| matches!(post.reason, PostFailure::QueueFull(_));
        let end = error.downcast_ref::<EndError>();
        let set_up = error.downcast_ref::<SetupError>();
        is_here
            && match self.queue {
                Queue::Send => matches!(end, Some(EndError::Post(post)) if is_full(post)),
                Queue::Receive => {
                    matches!(set_up, Some(SetupError::Receives(post)) if is_full(post))
                }
                // Without any place it is not made.
                Queue::Completion => {
                    matches!(end, Some(EndError::Cq(CqError::Overrun(_))))
                        || matches!(set_up, Some(SetupError::Verbs(VerbsError::Invalid(_))))
                }
            }
    }
}

/// There is no place that could be taken away.
#[derive(Debug, thiserror::Error)]
#[error("this queue has no places")]
struct NothingLess;

const LESS: [Less; 7] = [
    less("source, send queue", true, Queue::Send, |queues| &mut queues.max_send_wr),
    less("source, receive queue", true, Queue::Receive, |queues| &mut queues.max_recv_wr),
    less("source, completion queue", true, Queue::Completion, |queues| &mut queues.send_cqe),
    less("source, completion queue of receives", true, Queue::Completion, |queues| {
        &mut queues.recv_cqe
    }),
    less("collector, receive queue", false, Queue::Receive, |queues| &mut queues.max_recv_wr),
    less("collector, completion queue", false, Queue::Completion, |queues| &mut queues.send_cqe),
    less("collector, completion queue of receives", false, Queue::Completion, |queues| {
        &mut queues.recv_cqe
    }),
];

const fn less(
    name: &'static str,
    at_source: bool,
    queue: Queue,
    place: fn(&mut QueueNeeds) -> &mut u32,
) -> Less {
    Less { name, at_source, queue, place }
}

#[derive(Clone, Copy)]
struct Moving {
    provider: Provider,
    constants: Option<Constants>,
    bytes: u32,
    count: u64,
    less: Option<Less>,
}

impl Visit for Moving {
    type Out = Result<Counted>;

    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out {
        if let Some(less) = self.less {
            let mut needs = if less.at_source {
                mechanism.sender_needs()?
            } else {
                mechanism.receiver_needs()?
            };
            // A queue of completions that was never there is no queue with one place less.
            if *(less.place)(&mut needs.queues) == 0 {
                return Err(NothingLess.into());
            }
        }
        let change = |at_source: bool| {
            move |needs: &mut EndNeeds| {
                if let Some(less) = self.less.filter(|less| less.at_source == at_source) {
                    *(less.place)(&mut needs.queues) -= 1;
                }
            }
        };
        let (at_source, at_collector) = (change(true), change(false));
        let changes: [Change<'_>; 2] = [&at_source, &at_collector];
        let mut ends = Ends::new(self.provider, self.constants, &mechanism, changes)?;
        if let Err(error) = self.move_all(&mut ends) {
            return Err(self.at_the_right_end(&mut ends, error));
        }
        let [source, collector] = ends.queues;
        let [_, posted] = ends.traces.each_ref().map(|trace| trace.requests());
        let counted = counted([
            ("blocks_moved", self.count as f64),
            ("source_send_queue", source.max_send_wr.into()),
            ("source_receive_queue", source.max_recv_wr.into()),
            ("source_completion_queue", source.send_cqe.max(source.recv_cqe).into()),
            ("source_completion_queues", source.completion_queues().into()),
            ("collector_send_queue", collector.max_send_wr.into()),
            ("collector_receive_queue", collector.max_recv_wr.into()),
            ("collector_completion_queue", collector.send_cqe.max(collector.recv_cqe).into()),
            ("collector_posted_requests", posted.messages() as f64),
            ("collector_posted_receives", posted.receives as f64),
        ]);
        Ok((counted, ends.network()))
    }
}

impl Moving {
    /// Returns what the end with the smaller queue says itself, where the other one failed first.
    fn at_the_right_end<M: Mechanism>(&self, ends: &mut Ends<M>, error: Error) -> Error {
        let Some(less) = self.less.filter(|less| error.downcast_ref() != Some(&less.at())) else {
            return error;
        };
        for _ in 0..LOOKS_AFTERWARDS {
            let own = match less.at() {
                At::Source => ends.idle(),
                At::Collector => ends.take().map(drop),
            };
            match own {
                Ok(()) => rustix::thread::sched_yield(),
                Err(own) => return own,
            }
        }
        error
    }

    /// Sends and takes all blocks, each side as many at a time as there are.
    fn move_all<M: Mechanism>(&self, ends: &mut Ends<M>) -> Result<()> {
        let (mut sent, mut taken) = (0, 0);
        let mut looks = 0;
        while taken < self.count {
            let before = (sent, taken);
            while sent < self.count && ends.send(self.bytes)? {
                sent += 1;
            }
            while let Some(block) = ends.take()? {
                drop(block);
                taken += 1;
            }
            if self.less.is_some() && self.provider == Provider::Roce {
                // All that comes is there before somebody takes any of it: it must have a place.
                std::thread::sleep(DELIVERY);
            }
            if before == (sent, taken) {
                looks += 1;
                let most = if self.less.is_some() { LOOKS_WITH_LESS } else { LOOKS_MOST };
                ensure!(looks <= most, "no progress after {most} looks");
                ends.idle()?;
            } else {
                looks = 0;
            }
        }
        Ok(())
    }
}
