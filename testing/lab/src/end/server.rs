//! The program that is one end of a connection.
use super::{Answer, Card, Completed, Datagram, Kind, MEMORY_BYTES, Order, Request};
use anyhow::{Context as _, Result, bail};
use catchment_conformance::{Options, Side, pattern};
use catchment_verbs::{
    Access, Completion, Context, Cq, Destination, Endpoint, GRH_BYTES, Mr, Payload, PortAddr,
    Provider, QpTransition, RecvWr, RtrAttr, RtsAttr, SendOp, SendWr, Service, source_gid,
};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time for an asynchronous event: longer than a device tries to reach a peer that is gone.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// ACK timeout, after which a request is retransmitted, up to seven times: an emulated guest on a
/// busy machine may stall for longer than the usual 67 ms.
pub(crate) const ACK_TIMEOUT: Duration = Duration::from_millis(537);

const POLL: Duration = Duration::from_micros(200);

/// Executes orders until the input ends.
///
/// Fails if the device cannot be opened or an answer cannot be written. A failed order only becomes
/// its answer.
pub(crate) fn serve(
    provider: &dyn Provider,
    device: &str,
    orders: impl BufRead,
    mut answers: impl Write,
) -> Result<()> {
    let context = provider.open(device)?;
    let mut end = End { context, made: None };
    for line in orders.lines() {
        let answer: Answer<Value> =
            end.obey(serde_json::from_str(&line?)?).map_err(|error| format!("{error:#}"));
        writeln!(answers, "{}", serde_json::to_string(&answer)?)?;
        answers.flush()?;
    }
    Ok(())
}

struct End {
    context: Arc<dyn Context>,
    made: Option<Made>,
}

/// A queue pair with its memory, which may be deregistered first.
struct Made {
    side: Option<Side>,
    /// Not the region of `side`, which cannot be moved out of it.
    revocable: Option<Arc<dyn Mr>>,
}

impl End {
    fn obey(&mut self, order: Order) -> Result<Value> {
        Ok(match order {
            Order::Make(kind) => json!(self.make(kind)?),
            Order::Event => json!(self.event()?),
            Order::Connect { endpoint, retry_cnt, rnr_retry } => {
                json!(self.made()?.connect(&endpoint, retry_cnt, rnr_retry)?)
            }
            Order::ToRts { .. } | Order::BindWindow { .. } => {
                bail!("only agent.py executes this order")
            }
            Order::Fill { offset, bytes, seed } => {
                json!(self.made()?.write(offset, &pattern(seed, bytes))?)
            }
            Order::Put { offset, hex } => {
                json!(self.made()?.write(offset, &HEXLOWER.decode(hex.as_bytes())?)?)
            }
            Order::Take { offset, bytes } => {
                json!(HEXLOWER.encode(&self.made()?.read(offset, bytes)?))
            }
            Order::Crc { offset, bytes } => {
                json!(crc32fast::hash(&self.made()?.read(offset, bytes)?))
            }
            Order::Send(requests) => json!(self.made()?.send(&requests)?),
            Order::Receive { wr_id, offset, bytes } => {
                json!(self.made()?.receive(wr_id, offset, bytes)?)
            }
            Order::SendTo(datagram) => json!(self.made()?.send_to(&datagram)?),
            Order::Source { offset } => json!(self.made()?.source(offset)?),
            Order::Wait { receives, count, limit_ms } => {
                let limit = Duration::from_millis(limit_ms);
                json!(self.made()?.wait(receives, count, limit)?)
            }
            Order::State => json!(format!("{:?}", self.made()?.side()?.qp.state())),
            Order::Revoke => json!(self.made()?.revocable = None),
            Order::Leave => json!(self.made()?.side = None),
        })
    }

    fn made(&mut self) -> Result<&mut Made> {
        self.made.as_mut().context("nothing was created yet")
    }

    fn make(&mut self, kind: Kind) -> Result<Card> {
        self.made = None;
        while self.context.async_event().is_some() {}
        let mut options = Options { bytes: 64, ..Options::default() };
        if let Kind::Datagrams(qkey) = kind {
            options.service = Service::Ud;
            options.qkey = qkey;
        }
        let mut side = Side::new(Arc::clone(&self.context), &options);
        match kind {
            Kind::Connection => {}
            Kind::Invalidable => options.access |= Access::REMOTE_INVALIDATE,
            Kind::Datagrams(_) => side.connect(side.qp.endpoint(), &options),
            Kind::Kernel(_) => bail!("only agent.py creates {kind:?}"),
        }
        let memory = side.pd.alloc_mr(MEMORY_BYTES, options.access)?;
        let card = Card {
            endpoint: side.qp.endpoint().to_string(),
            qpn: side.qp.qpn(),
            addr: memory.addr(),
            rkey: memory.rkey(),
        };
        self.made = Some(Made { side: Some(side), revocable: Some(memory) });
        Ok(card)
    }

    fn event(&self) -> Result<String> {
        let end = Instant::now() + EVENT_LIMIT;
        loop {
            if let Some(event) = self.context.async_event() {
                return Ok(format!("{event:?}"));
            }
            anyhow::ensure!(Instant::now() < end, "no asynchronous event arrived");
            // Nothing signals an asynchronous event but a poll.
            thread::sleep(POLL);
        }
    }
}

impl Made {
    fn wait(&mut self, receives: bool, count: usize, limit: Duration) -> Result<Vec<Completed>> {
        let side = self.side()?;
        let cq = if receives { &side.recv_cq } else { &side.send_cq };
        wait(&**cq, count, limit)
    }

    fn side(&mut self) -> Result<&mut Side> {
        self.side.as_mut().context("the queue pair was destroyed")
    }

    fn memory(&self) -> Result<&Arc<dyn Mr>> {
        self.revocable.as_ref().context("the memory was deregistered")
    }

    fn connect(&mut self, endpoint: &str, retry_cnt: u8, rnr_retry: u8) -> Result<()> {
        let endpoint = endpoint.parse()?;
        let rts = RtsAttr { timeout: ACK_TIMEOUT, retry_cnt, rnr_retry, ..RtsAttr::default() };
        let side = self.side()?;
        side.init(&Options::default());
        side.qp.modify(QpTransition::ToRtr(RtrAttr::new(endpoint)))?;
        side.qp.modify(QpTransition::ToRts(rts))?;
        Ok(())
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        Ok(self.memory()?.region().whole().write_at(offset, data)?)
    }

    fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        Ok(self.memory()?.region().slice(offset, bytes)?.to_vec())
    }

    fn sge(&self, offset: usize, bytes: usize) -> Result<catchment_verbs::Sge> {
        let memory = self.memory()?;
        Ok(catchment_verbs::Sge {
            addr: memory.addr() + u64::try_from(offset)?,
            bytes: u32::try_from(bytes)?,
            lkey: memory.lkey(),
        })
    }

    fn send(&mut self, requests: &[Request]) -> Result<()> {
        let sges: Result<Vec<_>> =
            requests.iter().map(|request| self.sge(request.offset, request.bytes)).collect();
        let sges = sges?;
        let requests: Vec<_> = requests
            .iter()
            .zip(&sges)
            .map(|(request, sge)| SendWr {
                signaled: request.signaled,
                ..SendWr::new(
                    request.wr_id,
                    request.work.into(),
                    Payload::Sges(std::slice::from_ref(sge)),
                )
            })
            .collect();
        self.side()?.qp.post_send(&requests)?;
        Ok(())
    }

    fn send_to(&mut self, datagram: &Datagram) -> Result<Vec<Completed>> {
        let sge = [self.sge(datagram.offset, datagram.bytes)?];
        let to: Endpoint = datagram.endpoint.parse()?;
        let side = self.side()?;
        let ah = side.pd.create_ah(&PortAddr::from(&to))?;
        let to = Destination { ah: ah.handle(), qpn: to.qpn, qkey: datagram.qkey };
        let op = match datagram.imm {
            Some(imm) => SendOp::SendImmTo(to, imm),
            None => SendOp::SendTo(to),
        };
        side.qp.post_send(&[SendWr::new(0, op, Payload::Sges(&sge))])?;
        wait(&*side.send_cq, 1, EVENT_LIMIT)
    }

    fn source(&self, offset: usize) -> Result<String> {
        let header = self.read(offset, GRH_BYTES)?.try_into().ok().context("a network header")?;
        let gid = source_gid(&header).context("no network header")?;
        Ok(gid.ip().to_string())
    }

    fn receive(&mut self, wr_id: u64, offset: usize, bytes: usize) -> Result<()> {
        let sges = [self.sge(offset, bytes)?];
        let receive = RecvWr { wr_id, sges: &sges };
        self.side()?.qp.post_recv(&[receive])?;
        Ok(())
    }
}

/// Returns the next completions, as many as arrive within the limit, in order.
fn wait(cq: &dyn Cq, count: usize, limit: Duration) -> Result<Vec<Completed>> {
    let end = Instant::now() + limit;
    let mut found = vec![Completion::EMPTY; count];
    let mut seen = 0;
    while seen < count {
        seen += cq.poll(&mut found[seen..])?;
        if Instant::now() > end {
            break;
        }
        if seen < count {
            // A completion channel would wake us, but the data path polls.
            thread::sleep(POLL);
        }
    }
    let outcome = |done: &Completion| done.result.map_err(|failure| failure.status);
    Ok(found[..seen].iter().map(|done| Completed::new(done.wr_id, outcome(done))).collect())
}
