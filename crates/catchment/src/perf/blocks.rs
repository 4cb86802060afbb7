//! Blocks through a mechanism of the transfer crate: as many as go, or one to and fro.

use super::control::{Control, PATIENCE};
use super::latency::{OVER, mark, time_trips};
use super::message::{FromClient, FromServer};
use super::plan::{Amount, Bandwidth, Figure, Latency, Row, Waiting};
use super::server::cpu_s;
use super::wait::{patience, wait};
use super::{PerfError, bandwidth};
use crate::session::message::SessionPath;
use catchment_transfer::mechanism::{
    ClaimError, Mechanism, Offer, Port, Protocol, ReceiveEnd, SendEnd, Shape, TakenBlock, Visit,
};
use catchment_verbs::{Context, Watch};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time that does not count: pages are touched, neighbours are found.
const WARM_UP: Duration = Duration::from_millis(50);
/// Packet numbers that all mechanisms carry have so many bits.
const PACKETS: u64 = 1 << 16;

/// One measurement of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockPlan {
    /// What moves the blocks.
    #[serde(with = "protocol_json")]
    pub protocol: Protocol,
    /// Blocks that can be on their way, 1 to [`BlockPlan::BLOCKS_MAX`].
    pub blocks: u32,
    /// Bytes of a block, 1 to [`BlockPlan::BYTES_MAX`].
    pub bytes: u32,
    /// What is asked.
    pub figure: Figure,
    /// How much.
    pub amount: Amount,
    /// How both sides wait.
    pub waiting: Waiting,
}

impl BlockPlan {
    /// Most blocks.
    pub const BLOCKS_MAX: u32 = 4096;
    /// Longest block.
    pub const BYTES_MAX: u32 = 1 << 26;
    /// Most memory of an end.
    const RING_BYTES_MAX: u64 = 1 << 30;

    /// Whether it can be carried out.
    ///
    /// # Errors
    /// [`PerfError::Plan`] with the limit that it does not keep.
    pub fn check(&self) -> Result<(), PerfError> {
        let fault = |text: String| Err(PerfError::Plan(text));
        let (blocks, bytes) = (self.blocks, self.bytes);
        if !(1..=BlockPlan::BLOCKS_MAX).contains(&blocks) {
            let most = BlockPlan::BLOCKS_MAX;
            return fault(format!(
                "1 to {most} blocks can be on their way, not {blocks}"
            ));
        }
        if !(1..=BlockPlan::BYTES_MAX).contains(&bytes) {
            let most = BlockPlan::BYTES_MAX;
            return fault(format!("a block has 1 to {most} bytes, not {bytes}"));
        }
        let all = u64::from(blocks) * u64::from(bytes);
        if all > BlockPlan::RING_BYTES_MAX {
            let most = BlockPlan::RING_BYTES_MAX;
            return fault(format!(
                "{blocks} blocks of {bytes} bytes are {all}, more than {most}"
            ));
        }
        self.amount.check()
    }

    fn fills_in_place(&self) -> bool {
        matches!(
            self.protocol,
            Protocol::SbInPlace | Protocol::SwFairTailInPlace
        )
    }

    fn shape(&self) -> Shape {
        Shape {
            blocks: self.blocks,
            payload_bytes: self.bytes,
        }
    }
}

mod protocol_json {
    use super::Protocol;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(it: &Protocol, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(it.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Protocol, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(D::Error::custom)
    }
}

/// What a side offers: the port that it sends from, and the one that it takes at.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ports {
    sends: String,
    takes: String,
}

/// A side's devices and connection.
pub(super) struct Side<'a> {
    pub(super) plan: BlockPlan,
    pub(super) context: &'a Arc<dyn Context>,
    pub(super) path: &'a SessionPath,
    pub(super) control: &'a mut Control,
}

fn failed(error: impl Display) -> PerfError {
    PerfError::Failed(error.to_string())
}

/// The two ports of a side.
struct Open {
    sends: Port,
    takes: Port,
}

impl Open {
    fn new<M: Mechanism>(side: &Side<'_>, mechanism: &M) -> Result<Open, PerfError> {
        let pd = side.context.alloc_pd();
        let pd = pd.map_err(PerfError::verbs("a protection domain"))?;
        let port = |needs| Port::open(&**side.context, &*pd, &needs).map_err(failed);
        Ok(Open {
            sends: port(mechanism.sender_needs().map_err(failed)?)?,
            takes: port(mechanism.receiver_needs().map_err(failed)?)?,
        })
    }

    fn ports(&self) -> Ports {
        Ports {
            sends: self.sends.offer().to_string(),
            takes: self.takes.offer().to_string(),
        }
    }

    /// Connects to the other side's; its offers, as they were agreed on.
    fn connect(&mut self, peer: &Ports, path: &SessionPath) -> Result<(Offer, Offer), PerfError> {
        let offer = |text: &str| {
            let offer: Offer = text.parse().map_err(failed)?;
            let endpoint = path.agreed(offer.endpoint);
            Ok::<_, PerfError>(Offer { endpoint, ..offer })
        };
        let (to, from) = (offer(&peer.takes)?, offer(&peer.sends)?);
        self.sends.connect(&to).map_err(failed)?;
        self.takes.connect(&from).map_err(failed)?;
        Ok((to, from))
    }
}

/// The two ends of a side.
struct Ends<M: Mechanism> {
    sender: M::Sender,
    receiver: M::Receiver,
    waiting: Waiting,
    content: Vec<u8>,
    packet: u64,
}

impl<M: Mechanism> Ends<M> {
    fn new(
        plan: &BlockPlan,
        mechanism: &M,
        open: Open,
        (to, from): &(Offer, Offer),
    ) -> Result<Ends<M>, PerfError> {
        let sender = mechanism.sender(open.sends, to).map_err(failed)?;
        let receiver = mechanism.receiver(open.takes, from).map_err(failed)?;
        Ok(Ends {
            sender,
            receiver,
            waiting: plan.waiting,
            content: vec![7; plan.bytes as usize],
            packet: 0,
        })
    }

    /// Fills a block whose first byte is `first`, and sends it.
    fn send(&mut self, first: u8) -> Result<(), PerfError> {
        let bytes = self.content.len() as u32;
        let look = |ends: &mut Ends<M>| {
            let claimed = ends.sender.claim(0, bytes);
            if matches!(claimed, Err(ClaimError::WouldBlock)) {
                ends.sender.progress().map_err(failed)?;
                return Ok(None);
            }
            claimed.map(Some).map_err(failed)
        };
        let (waiting, mut late) = (self.waiting, patience());
        let bed = |ends: &Ends<M>| ends.sender.watch();
        let claim = wait(self, waiting, bed, &mut |_| late(), look)?;
        let Some(claim) = claim else {
            return Ok(());
        };
        self.content[0] = first;
        let memory = self.sender.memory(&claim);
        memory.write_at(0, &self.content).map_err(failed)?;
        self.sender.commit(claim, self.packet).map_err(failed)?;
        self.packet = (self.packet + 1) % PACKETS;
        Ok(())
    }

    /// Sends what was left to later calls, until the server says something.
    fn send_all(&mut self, control: &Control) -> Result<(), PerfError> {
        let look = |ends: &mut Ends<M>| {
            ends.sender.progress().map_err(failed)?;
            Ok(control.has_more()?.then_some(()))
        };
        let (waiting, mut late) = (self.waiting, patience());
        // The sender's work does not wait for anybody.
        let bed = |_: &Ends<M>| None::<Arc<dyn Watch>>;
        wait(self, waiting, bed, &mut |_| late(), look).map(|_| ())
    }

    /// Takes a block and gives it back; its first byte. `None` when `in_vain` says that it is over.
    fn take(
        &mut self,
        in_vain: &mut dyn FnMut() -> Result<bool, PerfError>,
    ) -> Result<Option<u8>, PerfError> {
        let look = |ends: &mut Ends<M>| {
            let taken = ends.receiver.take().map_err(failed)?;
            if taken.is_none() {
                // What was sent before may wait for room.
                ends.sender.progress().map_err(failed)?;
            }
            Ok(taken)
        };
        let waiting = self.waiting;
        let bed = |ends: &Ends<M>| ends.receiver.watch();
        let block = wait(self, waiting, bed, &mut |_| in_vain(), look)?;
        let Some(block) = block else {
            return Ok(None);
        };
        let payload = block.payload();
        let last = payload.load_u8(payload.bytes() - 1, Ordering::Relaxed);
        std::hint::black_box(last.map_err(failed)?);
        let first = payload.load_u8(0, Ordering::Relaxed).map_err(failed)?;
        Ok(Some(first))
    }
}

/// The client's side: measures until the server has taken all; the row, and the server's processor
/// time.
pub(super) fn measure(side: Side<'_>) -> Result<(Row, f64), PerfError> {
    if side.plan.fills_in_place() && !side.context.caps().direct {
        let name = side.plan.protocol;
        let text = format!(
            "{name} fills the peer's memory in place, for which both must be on one host: use sb or \
             sw-fair-tail over a network"
        );
        return Err(PerfError::Plan(text));
    }
    let (plan, shape) = (side.plan, side.plan.shape());
    plan.protocol.with(shape, Measure(side))
}

/// What the client knows when it has sent all.
enum Measured {
    /// So many blocks count, since then.
    Sent { blocks: u64, since: Instant },
    /// Nanoseconds one way.
    Times(Vec<f64>),
}

impl Measured {
    /// The row, now that the server has taken all.
    fn row(self, plan: &BlockPlan) -> Row {
        let bytes = u64::from(plan.bytes);
        match self {
            Measured::Times(times) => Row::Latency(Latency::of(bytes, times)),
            Measured::Sent { blocks, since } => {
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

struct Measure<'a>(Side<'a>);

impl Visit for Measure<'_> {
    type Out = Result<(Row, f64), PerfError>;

    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out {
        let mut open = Open::new(&self.0, &mechanism)?;
        let Side {
            plan,
            path,
            control,
            ..
        } = self.0;
        let ports = open.ports();
        control.send(&FromClient::Blocks { plan, ports })?;
        let said: FromServer = control.recv("ports", PATIENCE)?;
        let FromServer::Ports { ports } = said else {
            return Err(said.unexpected("ports"));
        };
        let offers = open.connect(&ports, path)?;
        meet_server(control)?;
        let mut ends = Ends::new(&plan, &mechanism, open, &offers)?;
        meet_server(control)?;
        let (requests, sent) = match plan.figure {
            Figure::Bandwidth => stream(&plan, &mut ends)?,
            Figure::Latency => to_and_fro(&plan, &mut ends)?,
        };
        control.send(&FromClient::Over { requests })?;
        ends.send_all(control)?;
        let said: FromServer = control.recv("used", PATIENCE)?;
        let FromServer::Used { cpu_s } = said else {
            return Err(said.unexpected("used"));
        };
        let row = sent.row(&plan);
        // The server keeps its memory until then.
        control.send(&FromClient::Here)?;
        Ok((row, cpu_s))
    }
}

fn meet_server(control: &mut Control) -> Result<(), PerfError> {
    control.send(&FromClient::Here)?;
    let said: FromServer = control.recv("here", PATIENCE)?;
    if matches!(said, FromServer::Here) {
        return Ok(());
    }
    Err(said.unexpected("here"))
}

fn stream<M: Mechanism>(
    plan: &BlockPlan,
    ends: &mut Ends<M>,
) -> Result<(u64, Measured), PerfError> {
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
    Ok((all, Measured::Sent { blocks, since }))
}

fn to_and_fro<M: Mechanism>(
    plan: &BlockPlan,
    ends: &mut Ends<M>,
) -> Result<(u64, Measured), PerfError> {
    let times = time_trips(plan.amount, 0.5, |n| {
        ends.send(mark(n))?;
        let seen = ends.take(&mut patience())?;
        if seen == Some(mark(n)) {
            return Ok(());
        }
        let text = format!("block {n} came back as {seen:?}, not {}", mark(n));
        Err(PerfError::Failed(text))
    })?;
    ends.send(OVER)?;
    Ok((times.len() as u64, Measured::Times(times)))
}

/// The server's side: takes, or answers. `ports` are the client's.
pub(super) fn serve(side: Side<'_>, ports: Ports) -> Result<(), PerfError> {
    let (plan, shape) = (side.plan, side.plan.shape());
    plan.protocol.with(shape, Serve(side, ports))
}

struct Serve<'a>(Side<'a>, Ports);

impl Visit for Serve<'_> {
    type Out = Result<(), PerfError>;

    fn visit<M: Mechanism>(self, mechanism: M) -> Result<(), PerfError> {
        let Serve(side, theirs) = self;
        let before = cpu_s();
        let plan = side.plan;
        let mut open = Open::new(&side, &mechanism)?;
        let offers = open.connect(&theirs, side.path)?;
        let control = side.control;
        let ports = open.ports();
        control.send(&FromServer::Ports { ports })?;
        meet_client(control)?;
        let mut ends = Ends::new(&plan, &mechanism, open, &offers)?;
        meet_client(control)?;
        match plan.figure {
            Figure::Bandwidth => drain(&mut ends, control)?,
            Figure::Latency => answer(&mut ends, control)?,
        }
        control.send(&FromServer::Used {
            cpu_s: cpu_s() - before,
        })?;
        let said: FromClient = control.recv("here", PATIENCE)?;
        if matches!(said, FromClient::Here) {
            return Ok(());
        }
        Err(said.unexpected("here"))
    }
}

fn meet_client(control: &mut Control) -> Result<(), PerfError> {
    let said: FromClient = control.recv("here", PATIENCE)?;
    if matches!(said, FromClient::Here) {
        return control.send(&FromServer::Here);
    }
    Err(said.unexpected("here"))
}

/// Takes all blocks until the client has said how many there were.
fn drain<M: Mechanism>(ends: &mut Ends<M>, control: &mut Control) -> Result<(), PerfError> {
    let (mut taken, mut total) = (0, None);
    while total.is_none_or(|total| taken < total) {
        let mut silent = patience();
        let mut said = None;
        let mut in_vain = || {
            if total.is_none() && control.has_more()? {
                said = Some(bandwidth::over(control, PATIENCE)?);
                return Ok(true);
            }
            match total {
                Some(_) => silent(),
                None => Ok(false),
            }
        };
        let found = ends.take(&mut in_vain)?;
        taken += u64::from(found.is_some());
        total = total.or(said);
    }
    Ok(())
}

/// Sends each block back until the client says that all is over.
fn answer<M: Mechanism>(ends: &mut Ends<M>, control: &mut Control) -> Result<(), PerfError> {
    loop {
        let mut in_vain = || control.check_alive().map(|()| false);
        match ends.take(&mut in_vain)? {
            None | Some(OVER) => break,
            Some(mark) => ends.send(mark)?,
        }
    }
    bandwidth::over(control, PATIENCE).map(|_| ())
}
