//! Proves that packets pass between two queue pairs in both directions, before a session relies on it.
//!
//! WRITEs go to the payload of slot 0, which means nothing without a commit word; READs come from the
//! beginning of the ring. First short ones, then as long as a full packet: so a firewall and a too
//! small MTU on the path are distinguished. See docs/spec/session.md, section 9.
use catchment_transfer::RemoteRing;
use catchment_verbs::wait::{Backoff, BackoffPolicy};
use catchment_verbs::{
    Access, Completion, Cq, CqError, Endpoint, Mr, NetEnd, Pd, PostError, Qp, RemoteAddr, SendOp,
    SendWr, Sge, VerbsError, WcStatus,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the whole proof may take.
const LIMIT: Duration = Duration::from_secs(2);
/// Length of the short requests.
const SHORT_BYTES: u32 = 64;
/// The largest path MTU.
const LONGEST: usize = 4096;
/// The byte that is written; not zero, so that a collector sees whether it arrived.
pub(crate) const MARK: u8 = 0xa5;

/// Packets do not pass, or the proof failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// Memory could not be registered.
    #[error("no memory to prove the path with: {0}")]
    Verbs(#[from] VerbsError),
    /// A request could not be posted.
    #[error("the path cannot be proven: {0}")]
    Post(#[from] PostError),
    /// The completion queue failed.
    #[error("the path cannot be proven: {0}")]
    Cq(#[from] CqError),
    /// Nothing came back.
    #[error(
        "no answer from {} within {waited:.1?} ({cause}): packets do not pass in both directions; open {} \
         in every firewall between (answers use that port too), and check that both addresses are \
         in networks that reach each other (VLAN, routes)", at(*.peer), ports(**.local, *.peer)
    )]
    Silent {
        /// This side's queue pair.
        local: Box<Endpoint>,
        /// The collector's queue pair.
        peer: Endpoint,
        /// How long an answer was waited for.
        waited: Duration,
        /// The status of the request that failed.
        cause: &'static str,
    },
    /// Short packets pass, full ones do not.
    #[error(
        "packets of {path_mtu} bytes get no answer from {}, packets of {SHORT_BYTES} bytes do: \
         some hop has a smaller MTU than the interfaces; set an MTU of {} or more along the whole \
         path, or a smaller --roce-mtu on this side", at(*.peer), .path_mtu + 104
    )]
    TooLarge {
        /// The collector's queue pair.
        peer: Endpoint,
        /// The path MTU in bytes that does not pass.
        path_mtu: u32,
    },
    /// The collector's side refused the requests.
    #[error("{} refuses WRITE or READ: {status}", at(*.peer))]
    Refused {
        /// The collector's queue pair.
        peer: Endpoint,
        /// What it said.
        status: WcStatus,
    },
    /// It was cancelled.
    #[error("the proof was cancelled")]
    Cancelled,
}

/// Address and port of a queue pair, as text.
fn at(end: Endpoint) -> String {
    format!("{} UDP port {}", end.gid.ip(), port(end))
}

fn port(end: Endpoint) -> u16 {
    end.net.map_or(NetEnd::RNIC_UDP_PORT, |net| net.udp_port)
}

fn ports(local: Endpoint, peer: Endpoint) -> String {
    let (here, there) = (port(local), port(peer));
    if here == there {
        format!("UDP port {here} in both directions")
    } else {
        format!("UDP port {there} there and {here} here")
    }
}

/// A path to prove.
pub(super) struct PathProof<'a> {
    pub(super) cq: &'a dyn Cq,
    /// Connected, state RTS, nothing posted.
    pub(super) qp: &'a mut dyn Qp,
    pub(super) ring: &'a RemoteRing,
    /// This end and the collector's.
    pub(super) ends: (Endpoint, Endpoint),
    pub(super) cancelled: &'a dyn Fn() -> bool,
}

/// Why a round did not complete.
enum Stuck {
    Error(ProofError),
    /// With the provider's reason, if it gave up before the limit.
    Silent(&'static str),
}

impl<E: Into<ProofError>> From<E> for Stuck {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl PathProof<'_> {
    /// Proves that packets of up to `path_mtu` bytes pass. Blocks, at most 2 s.
    pub(super) fn prove(&mut self, pd: &dyn Pd, path_mtu: u32) -> Result<(), ProofError> {
        let memory = pd.alloc_mr(2 * LONGEST, Access::LOCAL_WRITE)?;
        let _ = memory.region().whole().write_at(0, &[MARK; LONGEST]);
        let begun = Instant::now();
        let (local, peer) = self.ends;
        match self.round(&memory, SHORT_BYTES, begun) {
            Ok(()) => {}
            Err(Stuck::Error(error)) => return Err(error),
            Err(Stuck::Silent(cause)) => {
                let (local, waited) = (Box::new(local), begun.elapsed());
                return Err(ProofError::Silent { local, peer, waited, cause });
            }
        }
        match self.round(&memory, path_mtu, begun) {
            Ok(()) => Ok(()),
            Err(Stuck::Error(error)) => Err(error),
            Err(Stuck::Silent(_)) => Err(ProofError::TooLarge { peer, path_mtu }),
        }
    }

    /// Runs a WRITE and a READ of `bytes` bytes.
    fn round(&mut self, memory: &Arc<dyn Mr>, bytes: u32, begun: Instant) -> Result<(), Stuck> {
        let layout = &self.ring.layout;
        let piece = |from: usize, bytes: u32| Sge {
            addr: memory.addr() + from as u64,
            bytes,
            lkey: memory.lkey(),
        };
        let place = |offset: usize| RemoteAddr {
            addr: self.ring.addr + offset as u64,
            rkey: self.ring.rkey,
        };
        let out = [piece(0, bytes.min(layout.max_payload_bytes()))];
        let back = [piece(LONGEST, bytes)];
        let write = SendOp::Write(place(layout.slot_offset(0)));
        let read = SendOp::Read(place(0));
        // One after the other: the completion queue may have one place only.
        for (op, sges) in [(write, &out), (read, &back)] {
            let request = SendWr::new(0, op, catchment_verbs::Payload::Sges(sges));
            self.qp.post_send(&[request])?;
            self.wait(begun)?;
        }
        Ok(())
    }

    /// Waits for the completion of the only request.
    fn wait(&self, begun: Instant) -> Result<(), Stuck> {
        let mut backoff = Backoff::new(BackoffPolicy::default());
        let mut completion = [Completion::EMPTY];
        while self.cq.poll(&mut completion)? == 0 {
            if (self.cancelled)() {
                return Err(Stuck::Error(ProofError::Cancelled));
            }
            if begun.elapsed() > LIMIT {
                return Err(Stuck::Silent("nothing arrived"));
            }
            // Waits for the collector's answer; without one, the limit ends it.
            std::thread::sleep(backoff.next_sleep());
        }
        self.judge(&completion[0])
    }

    fn judge(&self, completion: &Completion) -> Result<(), Stuck> {
        let Err(failure) = completion.result else { return Ok(()) };
        let status = failure.status;
        if status == WcStatus::TransportRetryExceeded {
            return Err(Stuck::Silent("retries exhausted"));
        }
        Err(Stuck::Error(ProofError::Refused { peer: self.ends.1, status }))
    }
}
