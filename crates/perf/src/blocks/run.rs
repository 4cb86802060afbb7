//! The two sides of a measurement of blocks: as many as go, or one to and fro.
use super::mechanism::{Mechanism, ReceiveEnd, SendEnd, TakenBlock, Visit};
use super::pair::PortPair;
use super::plan::BlockPlan;
use super::port::{Offer, Ports};
use crate::PerfError;
use crate::control::{Control, PATIENCE};
use crate::endpoint::LocalDevice;
use crate::message::{Reply, Request};
use crate::meter::Usage;
use crate::operation::Figure;
use crate::ping_pong::{OVER, mark, time_trips};
use crate::plan::{Amount, Waiting};
use crate::row::{Bandwidth, Latency, Row};
use crate::span::{Measured, Span, over, used};
use crate::wait::{patience, wait_for};
use catchment_channel::ClaimError;
use catchment_verbs::{Context, Watch};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time that does not count: pages are touched, neighbours are found.
const WARM_UP: Duration = Duration::from_millis(50);
/// Packet numbers that all mechanisms carry have so many bits.
const PACKETS: u64 = 1 << 16;
/// Round trips that do not count.
const WARM_UP_TRIPS: Amount = Amount::Iterations(100);

/// The two ends of a side, and how it uses them.
struct Ends<M: Mechanism> {
    sender: M::Sender,
    receiver: M::Receiver,
    waiting: Waiting,
    /// Where the memory is that both look at.
    context: Arc<dyn Context>,
    content: Vec<u8>,
    packet: u64,
}

impl<M: Mechanism> Ends<M> {
    fn new(
        mechanism: M,
        plan: &BlockPlan,
        device: &LocalDevice,
        (ports, [to, from]): (PortPair, &[Offer; 2]),
    ) -> Result<Self, PerfError> {
        Ok(Self {
            sender: mechanism.sender(ports.sends, to).map_err(PerfError::failed)?,
            receiver: mechanism.receiver(ports.takes, from).map_err(PerfError::failed)?,
            waiting: plan.waiting,
            context: Arc::clone(&device.context),
            content: vec![7; plan.bytes as usize],
            packet: 0,
        })
    }

    /// Copies the content into a free block and sends it; `None` if no block is free.
    fn try_send(&mut self) -> Result<Option<()>, PerfError> {
        let claim = match self.sender.claim(0, self.content.len() as u32) {
            Ok(claim) => claim,
            Err(ClaimError::WouldBlock) => {
                self.progress()?;
                return Ok(None);
            }
            Err(error) => return Err(PerfError::failed(error)),
        };
        self.sender.memory(&claim).write_at(0, &self.content).map_err(PerfError::failed)?;
        self.sender.commit(claim, self.packet).map(Some).map_err(PerfError::failed)
    }

    /// Takes a block, reads as little as shows that all of it is here, and gives it back. Returns its
    /// first byte, or `None` if no block is there.
    fn try_take(&mut self) -> Result<Option<u8>, PerfError> {
        let Some(block) = self.receiver.take().map_err(PerfError::failed)? else { return Ok(None) };
        let payload = block.payload();
        let last = payload.bytes().checked_sub(1);
        let last = last.ok_or_else(|| PerfError::failed("a block without bytes"))?;
        let byte = |at| payload.load_u8(at, Ordering::Relaxed).map_err(PerfError::failed);
        std::hint::black_box(byte(last)?);
        byte(0).map(Some)
    }

    /// After a look that found nothing: does what is due for blocks sent before, and what the device leaves to threads
    /// that poll.
    fn progress(&mut self) -> Result<(), PerfError> {
        self.sender.progress().map_err(PerfError::failed)?;
        if self.waiting == Waiting::Yield {
            self.context.progress();
        }
        Ok(())
    }

    /// Fills a block whose first byte is `first`, and sends it.
    fn send(&mut self, first: u8) -> Result<(), PerfError> {
        self.content[0] = first;
        let (waiting, mut late) = (self.waiting, patience());
        wait_for(
            self,
            waiting,
            |side: &Self| side.sender.watch(),
            &mut |_| late(),
            Self::try_send,
        )?;
        self.packet = (self.packet + 1) % PACKETS;
        Ok(())
    }

    /// Sends what was left to later calls, until the server says something.
    fn send_all(&mut self, control: &Control) -> Result<(), PerfError> {
        let look = |side: &mut Self| {
            side.progress()?;
            Ok(control.has_more(Duration::ZERO)?.then_some(()))
        };
        let (waiting, mut late) = (self.waiting, patience());
        // The sender's work does not wait for anybody.
        let watch = |_: &Self| None::<Arc<dyn Watch>>;
        wait_for(self, waiting, watch, &mut |_| late(), look).map(|_| ())
    }

    /// Takes a block and gives it back; its first byte. `None` when `idle` says that it is over.
    fn take(
        &mut self,
        idle: &mut dyn FnMut() -> Result<bool, PerfError>,
    ) -> Result<Option<u8>, PerfError> {
        let look = |side: &mut Self| {
            let taken = side.try_take()?;
            if taken.is_none() {
                // What was sent before may wait for room.
                side.progress()?;
            }
            Ok(taken)
        };
        let waiting = self.waiting;
        wait_for(self, waiting, |side: &Self| side.receiver.watch(), &mut |_| idle(), look)
    }
}

/// The active side of a measurement.
pub struct Active<'a> {
    pub(crate) control: &'a mut Control,
    pub(crate) device: &'a LocalDevice,
    pub(crate) plan: &'a BlockPlan,
}

impl Visit for Active<'_> {
    type Out = Result<Measured, PerfError>;

    /// Measures until the passive side has taken all.
    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out {
        let Self { control, device, plan } = self;
        let mut span = Span::start(device);
        let mut own = PortPair::open(device, mechanism)?;
        control.send(&Request::Blocks { plan: plan.clone(), ports: own.describe() })?;
        let reply: Reply = control.recv("ports", PATIENCE)?;
        let Reply::Ports { ports } = reply else { return Err(reply.unexpected("ports")) };
        let peer = own.connect(&ports, device)?;
        meet_passive(control)?;
        let mut ends = Ends::new(mechanism, plan, device, (own, &peer))?;
        meet_passive(control)?;
        let (requests, sent) = match plan.figure {
            Figure::Bandwidth => stream(plan, &mut ends)?,
            Figure::Latency => to_and_fro(plan, &mut ends)?,
        };
        control.send(&Request::Over { requests })?;
        ends.send_all(control)?;
        let passive = used(control)?;
        let row = sent.row(plan);
        // The passive side keeps its memory until then.
        control.send(&Request::Here)?;
        span.stop(device);
        Ok(span.measured(row, passive))
    }
}

/// What the active side knows when it has sent all.
enum Sent {
    /// So many blocks count, since then.
    Blocks { blocks: u64, since: Instant },
    /// Nanoseconds one way.
    Times(Vec<f64>),
}

impl Sent {
    /// Returns the row, now that the passive side has taken all.
    fn row(self, plan: &BlockPlan) -> Row {
        let bytes = u64::from(plan.bytes);
        match self {
            Self::Times(times) => Row::Latency(Latency::of(bytes, times)),
            Self::Blocks { blocks, since } => {
                Row::Bandwidth(Bandwidth::of(bytes, blocks, since.elapsed(), None))
            }
        }
    }
}

fn meet_passive(control: &mut Control) -> Result<(), PerfError> {
    control.send(&Request::Here)?;
    let reply: Reply = control.recv("here", PATIENCE)?;
    if matches!(reply, Reply::Here) {
        return Ok(());
    }
    Err(reply.unexpected("here"))
}

fn stream<M: Mechanism>(plan: &BlockPlan, ends: &mut Ends<M>) -> Result<(u64, Sent), PerfError> {
    let mut all = 0;
    let mut run = |limit: Duration, most: u64| -> Result<(u64, Instant), PerfError> {
        let (start, before) = (Instant::now(), all);
        while all - before < most && start.elapsed() < limit {
            ends.send(1)?;
            all += 1;
        }
        Ok((all - before, start))
    };
    run(WARM_UP, 2 * u64::from(plan.blocks))?;
    let (limit, most) = plan.amount.limits();
    let (blocks, since) = run(limit, most)?;
    Ok((all, Sent::Blocks { blocks, since }))
}

fn to_and_fro<M: Mechanism>(
    plan: &BlockPlan,
    ends: &mut Ends<M>,
) -> Result<(u64, Sent), PerfError> {
    let times = time_trips((WARM_UP_TRIPS, plan.amount), 0.5, |n| {
        ends.send(mark(n))?;
        let seen = ends.take(&mut patience())?;
        if seen == Some(mark(n)) {
            return Ok(());
        }
        Err(PerfError::Failed(format!("block {n} came back as {seen:?}, not {}", mark(n))))
    })?;
    ends.send(OVER)?;
    Ok((times.len() as u64, Sent::Times(times)))
}

/// The passive side of a measurement: takes, or answers.
pub struct Passive<'a> {
    pub(crate) control: &'a mut Control,
    pub(crate) device: &'a LocalDevice,
    pub(crate) plan: &'a BlockPlan,
    /// The active side's.
    pub(crate) ports: &'a Ports,
}

impl Visit for Passive<'_> {
    type Out = Result<(), PerfError>;

    /// Does its part until the active side has said that all is over.
    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out {
        let Self { control, device, plan, ports } = self;
        let before = Usage::now(&*device.counters);
        let mut own = PortPair::open(device, mechanism)?;
        let peer = own.connect(ports, device)?;
        control.send(&Reply::Ports { ports: own.describe() })?;
        meet_active(control)?;
        let mut ends = Ends::new(mechanism, plan, device, (own, &peer))?;
        meet_active(control)?;
        match plan.figure {
            Figure::Bandwidth => drain(&mut ends, control)?,
            Figure::Latency => answer(&mut ends, control)?,
        }
        control.send(&Reply::Used { usage: Usage::now(&*device.counters).since(&before) })?;
        expect_here(control)
    }
}

fn expect_here(control: &mut Control) -> Result<(), PerfError> {
    let request: Request = control.recv("here", PATIENCE)?;
    if matches!(request, Request::Here) {
        return Ok(());
    }
    Err(request.unexpected("here"))
}

fn meet_active(control: &mut Control) -> Result<(), PerfError> {
    expect_here(control)?;
    control.send(&Reply::Here)
}

/// Takes all blocks until the client has said how many there were.
fn drain<M: Mechanism>(ends: &mut Ends<M>, control: &mut Control) -> Result<(), PerfError> {
    let (mut taken, mut total) = (0, None);
    while total.is_none_or(|total| taken < total) {
        let mut silent = patience();
        let mut said = None;
        let mut idle = || {
            if total.is_none() && control.has_more(Duration::ZERO)? {
                said = Some(over(control, PATIENCE)?);
                return Ok(true);
            }
            match total {
                Some(_) => silent(),
                None => Ok(false),
            }
        };
        taken += u64::from(ends.take(&mut idle)?.is_some());
        total = total.or(said);
    }
    Ok(())
}

/// Sends each block back until the client says that all is over.
fn answer<M: Mechanism>(ends: &mut Ends<M>, control: &mut Control) -> Result<(), PerfError> {
    loop {
        let mut idle = || control.check_alive().map(|()| false);
        match ends.take(&mut idle)? {
            None | Some(OVER) => break,
            Some(mark) => ends.send(mark)?,
        }
    }
    over(control, PATIENCE).map(|_| ())
}
