//! Queues and memory of an end, and what the two ends tell each other about them.
use super::setup_error::SetupError;
use catchment_channel::RemoteMemory;
use catchment_verbs::{
    Access, CompletionChannel, Context, Cq, Endpoint, Mr, Pd, Qp, QpInit, RtrAttr, RtsAttr,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Queues of an end, in the words of `ibv_create_qp(3)`. Exactly these are made where the provider
/// can ([`catchment_verbs::Caps::strict_capacity`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueNeeds {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receives posted.
    pub max_recv_wr: u32,
    /// Entries of the completion queue of the sends.
    pub send_cqe: u32,
    /// Entries of that of the receives; 0 where the sends' serves for both.
    pub recv_cqe: u32,
    /// Longest inline data.
    pub max_inline_bytes: u32,
}

impl QueueNeeds {
    /// Returns how many completion queues there are.
    pub fn completion_queues(&self) -> u32 {
        1 + u32::from(self.recv_cqe > 0)
    }
}

/// A piece of registered memory of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Its purpose, for errors.
    pub what: &'static str,
    /// Its length.
    pub bytes: usize,
    /// Rights of the region.
    pub access: Access,
}

impl MemoryNeed {
    /// Describes a region.
    pub fn new(what: &'static str, bytes: usize, access: Access) -> Self {
        Self { what, bytes, access }
    }
}

/// All that an end needs. Its fields may be changed before [`Port::open`]; what is too small is then
/// refused, or fails as verbs say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndNeeds {
    /// Its queue pair and completion queues.
    pub queues: QueueNeeds,
    /// Memory, in the order in which the mechanism wants it.
    pub memory: Vec<MemoryNeed>,
}

impl EndNeeds {
    /// Returns the needs of a receiver that posts nothing and owns a ring of status bytes and slots, which its peer writes
    /// and reads. A queue has at least one place.
    pub fn passive(ring_bytes: usize) -> Self {
        Self {
            queues: QueueNeeds {
                max_send_wr: 1,
                max_recv_wr: 0,
                send_cqe: 1,
                recv_cqe: 0,
                max_inline_bytes: 0,
            },
            memory: vec![MemoryNeed::new(
                "the ring",
                ring_bytes,
                Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
            )],
        }
    }
}

/// What an end tells its peer before they connect. As text:
/// `ENDPOINT ADDR:RKEY:BYTES ADDR:RKEY:BYTES ...`, numbers decimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its queue pair.
    pub endpoint: Endpoint,
    /// Its memory that the peer may reach, in the order of its [`EndNeeds::memory`].
    pub memory: Vec<RemoteMemory>,
}

impl Offer {
    /// Returns the peer's memory number `index`, if it has at least `needed` bytes.
    ///
    /// # Errors
    /// [`SetupError::Offer`].
    pub fn memory(
        &self,
        index: usize,
        what: &'static str,
        needed: usize,
    ) -> Result<RemoteMemory, SetupError> {
        let needed = needed as u64;
        match self.memory.get(index) {
            Some(memory) if memory.bytes >= needed => Ok(*memory),
            other => Err(SetupError::Offer {
                what,
                given: other.map_or(0, |memory| memory.bytes),
                needed,
            }),
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        self.memory.iter().try_for_each(|m| write!(f, " {}:{}:{}", m.addr, m.rkey, m.bytes))
    }
}

/// Descriptions of a side's two ports, as text for the other side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ports {
    pub(super) sends: String,
    pub(super) takes: String,
}

/// A text that describes no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an offer: ENDPOINT ADDR:RKEY:BYTES ... is needed")]
pub struct OfferParseError(pub String);

impl FromStr for Offer {
    type Err = OfferParseError;

    fn from_str(text: &str) -> Result<Self, OfferParseError> {
        parse(text).ok_or_else(|| OfferParseError(text.chars().take(256).collect()))
    }
}

fn parse(text: &str) -> Option<Offer> {
    let mut words = text.split(' ');
    let endpoint = words.next()?.parse().ok()?;
    let memory = words.map(|word| {
        let mut numbers = word.split(':');
        let memory = RemoteMemory {
            addr: numbers.next()?.parse().ok()?,
            rkey: numbers.next()?.parse().ok()?,
            bytes: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(memory)
    });
    Some(Offer { endpoint, memory: memory.collect::<Option<_>>()? })
}

/// Queue pair, completion queues and memory of an end.
pub struct Port {
    /// Its queue pair.
    pub qp: Box<dyn Qp>,
    /// Where sends complete.
    pub send_cq: Arc<dyn Cq>,
    /// Where receives complete; the same one if [`QueueNeeds::recv_cqe`] is 0.
    pub recv_cq: Arc<dyn Cq>,
    /// To sleep on until a receive completes, or a send where there is one queue for both.
    pub channel: Arc<dyn CompletionChannel>,
    /// Memory, in the order of [`EndNeeds::memory`].
    pub memory: Vec<Arc<dyn Mr>>,
    /// Sizes of its queues.
    pub queues: QueueNeeds,
    /// Longest message of its device.
    pub max_message_bytes: u64,
}

impl Port {
    /// Acquires what an end needs.
    ///
    /// # Errors
    /// What the device refused.
    pub fn open(context: &dyn Context, pd: &dyn Pd, needs: &EndNeeds) -> Result<Self, SetupError> {
        let queues = needs.queues;
        let channel = context.create_channel()?;
        let (send_cq, recv_cq) = completion_queues(context, &queues, &channel)?;
        let init = QpInit {
            recv_cq: Arc::clone(&recv_cq),
            max_inline_bytes: queues.max_inline_bytes,
            strict: context.caps().strict_capacity,
            ..QpInit::rc(&send_cq, queues.max_send_wr, queues.max_recv_wr)
        };
        let memory = needs.memory.iter().map(|need| pd.alloc_mr(need.bytes, need.access));
        Ok(Self {
            qp: pd.create_qp(init)?,
            send_cq,
            recv_cq,
            channel,
            memory: memory.collect::<Result<_, _>>()?,
            queues,
            max_message_bytes: context.caps().max_message_bytes,
        })
    }

    /// Returns what the peer must know of it.
    pub fn offer(&self) -> Offer {
        Offer {
            endpoint: self.qp.endpoint(),
            memory: self
                .memory
                .iter()
                .filter(|mr| mr.access().is_remote())
                .map(|mr| RemoteMemory {
                    addr: mr.addr(),
                    rkey: mr.rkey(),
                    bytes: mr.bytes() as u64,
                })
                .collect(),
        }
    }

    /// Returns memory number `index`, if it has at least `bytes` bytes.
    ///
    /// # Errors
    /// [`SetupError::NoMemory`], [`SetupError::Memory`].
    pub fn mr(
        &self,
        index: usize,
        what: &'static str,
        bytes: usize,
    ) -> Result<Arc<dyn Mr>, SetupError> {
        let mr = self.memory.get(index).ok_or(SetupError::NoMemory { what })?;
        match mr.region().slice(0, bytes) {
            Ok(_) => Ok(Arc::clone(mr)),
            Err(source) => Err(SetupError::Memory { what, source }),
        }
    }

    /// Connects the queue pair with the peer's: from RESET to RTS.
    ///
    /// # Errors
    /// [`SetupError::Connect`].
    pub fn connect(&mut self, peer: &Offer) -> Result<(), SetupError> {
        self.connect_with(peer, RtsAttr::default())
    }

    /// Connects with other retries and timeouts.
    ///
    /// # Errors
    /// [`SetupError::Connect`].
    pub fn connect_with(&mut self, peer: &Offer, rts: RtsAttr) -> Result<(), SetupError> {
        Ok(self.qp.connect(Access::REMOTE, RtrAttr::new(peer.endpoint), rts)?)
    }
}

type CqPair = (Arc<dyn Cq>, Arc<dyn Cq>);

fn completion_queues(
    context: &dyn Context,
    queues: &QueueNeeds,
    channel: &Arc<dyn CompletionChannel>,
) -> Result<CqPair, SetupError> {
    let awaited = |capacity| context.create_cq(capacity, Some(Arc::clone(channel)));
    if queues.recv_cqe == 0 {
        let both = awaited(queues.send_cqe)?;
        return Ok((Arc::clone(&both), both));
    }
    Ok((context.create_cq(queues.send_cqe, None)?, awaited(queues.recv_cqe)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs::Gid;

    #[test]
    fn an_offer_reads_back_what_it_prints() {
        let endpoint = Endpoint { gid: Gid([3; 16]), qpn: 5, psn: 6, net: None };
        let memory = RemoteMemory { addr: u64::MAX, rkey: 7, bytes: 4096 };
        for memory in [vec![], vec![memory], vec![memory, memory]] {
            let offer = Offer { endpoint, memory };
            assert_eq!(offer.to_string().parse(), Ok(offer));
        }
        let good = endpoint.to_string();
        for bad in ["", "a", " ", " 1:2", " 1:2:3:4", " 1:2:x"] {
            let text = if bad.is_empty() { String::new() } else { format!("{good}{bad}") };
            assert!(text.parse::<Offer>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn memory_that_is_missing_or_short_is_named() {
        let endpoint = Endpoint { gid: Gid([3; 16]), qpn: 5, psn: 6, net: None };
        let offer = Offer { endpoint, memory: vec![RemoteMemory { addr: 0, rkey: 1, bytes: 10 }] };
        assert!(offer.memory(0, "the ring", 10).is_ok());
        let short = offer.memory(0, "the ring", 11).unwrap_err();
        assert!(short.to_string().contains("offers 10 bytes as the ring, 11"));
        assert!(offer.memory(1, "the credit", 1).is_err());
    }
}
