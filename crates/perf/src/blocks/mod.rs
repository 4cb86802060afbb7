//! Blocks through a mechanism: as many as go, or one to and fro.
//!
//! What moves the blocks is given by the front end ([`BlockMechanism`]); the product's own is
//! [`STATUS_BYTE`].
pub(crate) mod mechanism;
pub(crate) mod plan;
mod status_byte;

pub use mechanism::{BlockEnds, BlockMechanism, BlockPort, BlockShape, Ports, read_block};
pub use plan::BlockPlan;
pub use status_byte::STATUS_BYTE;

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
use catchment_verbs::Watch;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that does not count: pages are touched, neighbours are found.
const WARM_UP: Duration = Duration::from_millis(50);
/// Packet numbers that all mechanisms carry have so many bits.
const PACKETS: u64 = 1 << 16;
/// Round trips that do not count.
const WARM_UP_TRIPS: Amount = Amount::Iterations(100);

/// The two ends of a side, and how it uses them.
struct Ends {
    ends: Box<dyn BlockEnds>,
    waiting: Waiting,
    content: Vec<u8>,
    packet: u64,
}

impl Ends {
    fn new(plan: &BlockPlan, port: Box<dyn BlockPort>) -> Result<Self, PerfError> {
        Ok(Self {
            ends: port.ends()?,
            waiting: plan.waiting,
            content: vec![7; plan.bytes as usize],
            packet: 0,
        })
    }

    /// Fills a block whose first byte is `first`, and sends it.
    fn send(&mut self, first: u8) -> Result<(), PerfError> {
        self.content[0] = first;
        let look =
            |side: &mut Self| Ok(side.ends.try_send(&side.content, side.packet)?.then_some(()));
        let (waiting, mut late) = (self.waiting, patience());
        wait_for(self, waiting, |side: &Self| side.ends.send_watch(), &mut |_| late(), look)?;
        self.packet = (self.packet + 1) % PACKETS;
        Ok(())
    }

    /// Sends what was left to later calls, until the server says something.
    fn send_all(&mut self, control: &Control) -> Result<(), PerfError> {
        let look = |side: &mut Self| {
            side.ends.progress()?;
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
            let taken = side.ends.try_take()?;
            if taken.is_none() {
                // What was sent before may wait for room.
                side.ends.progress()?;
            }
            Ok(taken)
        };
        let waiting = self.waiting;
        wait_for(self, waiting, |side: &Self| side.ends.take_watch(), &mut |_| idle(), look)
    }
}

/// The active side: measures until the passive one has taken all.
pub(crate) fn measure(
    control: &mut Control,
    device: &LocalDevice,
    mechanism: &dyn BlockMechanism,
    plan: &BlockPlan,
) -> Result<Measured, PerfError> {
    if mechanism.fills_in_place() && !device.context.caps().direct {
        let name = mechanism.name();
        let text = format!(
            "{name} fills the peer's memory in place, which needs both ends on one host: use {} \
             over a network",
            name.trim_end_matches("-in-place")
        );
        return Err(PerfError::Plan(text));
    }
    let mut span = Span::start(device);
    let mut port = mechanism.open(&*device.context, plan.shape())?;
    let ports = port.ports();
    control.send(&Request::Blocks { plan: plan.clone(), ports })?;
    let reply: Reply = control.recv("ports", PATIENCE)?;
    let Reply::Ports { ports } = reply else { return Err(reply.unexpected("ports")) };
    port.connect(&ports, &*device.agree)?;
    meet_passive(control)?;
    let mut ends = Ends::new(plan, port)?;
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
                let per_s = blocks as f64 / since.elapsed().as_secs_f64();
                Row::Bandwidth(Bandwidth {
                    bytes,
                    iterations: blocks,
                    peak_bytes_per_s: None,
                    average_bytes_per_s: per_s * bytes as f64,
                    messages_per_s: per_s,
                    client_cpu_percent: 0.0,
                    server_cpu_percent: 0.0,
                })
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

fn stream(plan: &BlockPlan, ends: &mut Ends) -> Result<(u64, Sent), PerfError> {
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

fn to_and_fro(plan: &BlockPlan, ends: &mut Ends) -> Result<(u64, Sent), PerfError> {
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

/// The passive side: takes, or answers. `theirs` are the active side's ports.
pub(crate) fn serve(
    control: &mut Control,
    device: &LocalDevice,
    mechanism: &dyn BlockMechanism,
    plan: &BlockPlan,
    theirs: &Ports,
) -> Result<(), PerfError> {
    let before = Usage::now(&*device.counters);
    let mut port = mechanism.open(&*device.context, plan.shape())?;
    port.connect(theirs, &*device.agree)?;
    control.send(&Reply::Ports { ports: port.ports() })?;
    meet_active(control)?;
    let mut ends = Ends::new(plan, port)?;
    meet_active(control)?;
    match plan.figure {
        Figure::Bandwidth => drain(&mut ends, control)?,
        Figure::Latency => answer(&mut ends, control)?,
    }
    control.send(&Reply::Used { usage: Usage::now(&*device.counters).since(&before) })?;
    expect_here(control)
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
fn drain(ends: &mut Ends, control: &mut Control) -> Result<(), PerfError> {
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
fn answer(ends: &mut Ends, control: &mut Control) -> Result<(), PerfError> {
    loop {
        let mut idle = || control.check_alive().map(|()| false);
        match ends.take(&mut idle)? {
            None | Some(OVER) => break,
            Some(mark) => ends.send(mark)?,
        }
    }
    over(control, PATIENCE).map(|_| ())
}
