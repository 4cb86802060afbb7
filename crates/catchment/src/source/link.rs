//! The connection to a collector that filling threads use: a sender, and how to wait for it.
use super::{
    driver::{self, Completions},
    gate::Gate,
};
use catchment_transfer::{
    CopyMemory, Napper, Naps, QueueLimits, RemoteRing, ReserveError, Sender, SenderError,
    SenderOptions, WriteBlock,
};
use catchment_verbs::{
    Access, CompletionChannel, Context, Cq, Endpoint, ModifyError, Pd, Qp, QpInit, QpTransition,
    RtrAttr, RtsAttr, VerbsError, Watch,
};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Send requests outstanding at once where blocks are copied.
const SEND_WRS: u32 = 256;
const COMPLETIONS: u32 = 64;
/// Inline bytes of a request: status bytes of neighbouring blocks.
const INLINE_BYTES: u32 = 64;
/// How long a thread that finds the link dead waits for the control thread to notice.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A queue pair that the collector may be told of.
pub(super) struct Prepared {
    pd: Arc<dyn Pd>,
    cq: Arc<dyn Cq>,
    qp: Box<dyn Qp>,
    direct: bool,
    /// Where completions are told of, if requests take time.
    channel: Option<Arc<dyn CompletionChannel>>,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Modify(#[from] ModifyError),
    #[error(transparent)]
    Sender(#[from] SenderError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl Prepared {
    /// Makes a queue pair in state INIT.
    pub(super) fn new(context: &Arc<dyn Context>) -> Result<Prepared, LinkError> {
        let pd = context.alloc_pd()?;
        let direct = context.caps().direct;
        let channel = (!direct).then(|| context.create_channel()).transpose()?;
        let cq = context.create_cq(COMPLETIONS, channel.clone())?;
        let mut qp = pd.create_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            max_send_wr: SEND_WRS,
            max_recv_wr: 0,
            max_sge: 1,
            max_inline_bytes: INLINE_BYTES,
            strict: false,
        })?;
        qp.modify(QpTransition::ToInit {
            access: Access::empty(),
        })?;
        Ok(Prepared {
            pd,
            cq,
            qp,
            direct,
            channel,
        })
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Connects to the collector's queue pair, which is ready by now.
    pub(super) fn connect(
        mut self,
        collector: Endpoint,
        ring: RemoteRing,
        epoch: u64,
        streams: u32,
        in_place: bool,
    ) -> Result<Arc<Link>, LinkError> {
        self.qp
            .modify(QpTransition::ToRtr(RtrAttr::new(collector)))?;
        self.qp.modify(QpTransition::ToRts(RtsAttr::default()))?;
        let quota = quota(ring.layout.blocks(), streams);
        let options = SenderOptions {
            max_streams: streams,
            quota,
            ..SenderOptions::default()
        };
        let completions = self.channel.take().map(|channel| Completions {
            cq: self.cq.clone(),
            channel,
        });
        let sender = if in_place && self.direct {
            Sender::in_place(self.qp, self.cq, ring, epoch, options)?
        } else {
            self.copying(ring, epoch, options)?
        };
        let link = Arc::new(Link {
            watch: sender.free_watch(),
            payload_bytes_max: sender.layout().max_payload_bytes() as usize,
            sender,
            gate: Gate::default(),
            quota: quota as usize,
            on_watch: Mutex::new(false),
            woken: Condvar::new(),
            napper: Mutex::new(Napper::new(Naps::default())),
        });
        if let Some(completions) = completions {
            driver::start(&link, completions).map_err(LinkError::Thread)?;
        }
        Ok(link)
    }

    fn copying(
        self,
        ring: RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Sender, LinkError> {
        let layout = ring.layout;
        let bytes = layout.blocks() as usize * layout.block_bytes() as usize;
        let memory = CopyMemory {
            blocks: self.pd.alloc_mr(bytes, Access::LOCAL_WRITE)?,
            status: self
                .pd
                .alloc_mr(layout.status_bytes(), Access::LOCAL_WRITE)?,
        };
        let limits = QueueLimits {
            max_send_wr: SEND_WRS,
            max_inline_bytes: INLINE_BYTES,
        };
        Ok(Sender::copying(
            self.qp, self.cq, limits, memory, ring, epoch, options,
        )?)
    }
}

/// Blocks that one stream may have outstanding: its share, and at least one. So a slow device
/// leaves the others theirs.
fn quota(blocks: u32, streams: u32) -> u32 {
    (blocks / streams.max(1)).max(1)
}

pub(super) struct Link {
    sender: Sender,
    watch: Option<Arc<dyn Watch>>,
    pub(super) gate: Gate,
    payload_bytes_max: usize,
    quota: usize,
    /// Whether a thread sleeps on the watch, or is about to. A ring wakes one thread only, so the
    /// others wait for that one.
    on_watch: Mutex<bool>,
    woken: Condvar,
    /// How long the next thread sleeps that waits for room without a doorbell.
    napper: Mutex<Napper>,
}

/// What a thread that waits for room sees.
enum Look {
    Room,
    Full,
    Dead,
}

/// What became of a claim.
pub(super) enum Reserve {
    Block(WriteBlock),
    /// No block is free for this stream at the moment.
    Full,
    /// The session is over.
    Dead,
}

impl Link {
    pub(super) fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Most bytes of a frame that fit one block.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// Blocks that one stream may have outstanding.
    pub(super) fn quota(&self) -> usize {
        self.quota
    }

    /// Blocks of a stream that are claimed or not yet released.
    pub(super) fn outstanding(&self, stream: u32) -> u32 {
        self.sender.outstanding(stream).unwrap_or(0)
    }

    /// Claims a block of at most [`Link::payload_bytes_max`].
    pub(super) fn reserve(&self, stream: u32, bytes: usize) -> Reserve {
        let Ok(bytes) = u32::try_from(bytes) else {
            return Reserve::Dead;
        };
        match self.sender.reserve(stream, bytes) {
            Ok(block) => Reserve::Block(block),
            Err(ReserveError::WouldBlock | ReserveError::Quota { .. }) => Reserve::Full,
            Err(error) => {
                tracing::debug!(%error, "no block");
                Reserve::Dead
            }
        }
    }

    /// Sleeps until a block may be free for the stream, the session is over, or the time is.
    pub(super) fn wait_for_room(&self, stream: u32, timeout: Duration) {
        let Some(watch) = &self.watch else {
            return self.nap(stream, timeout);
        };
        let mut on_watch = self.on_watch();
        let follows = std::mem::replace(&mut *on_watch, true);
        if !follows {
            watch.arm();
        }
        // The watch is armed: a release that this look misses will ring.
        match self.look(stream) {
            Look::Full if follows => {
                drop(self.woken.wait_timeout(on_watch, timeout));
                return;
            }
            Look::Full => {
                drop(on_watch);
                if watch.wait(timeout).is_err() {
                    // The doorbell fails: only time tells.
                    std::thread::sleep(A_MOMENT);
                }
            }
            Look::Room => {
                drop(on_watch);
                std::thread::yield_now();
            }
            Look::Dead => {
                drop(on_watch);
                // Until the control thread notices and takes the link away.
                std::thread::sleep(A_MOMENT);
            }
        }
        if !follows {
            *self.on_watch() = false;
            self.woken.notify_all();
        }
    }

    /// Without a doorbell only time tells. One thread looks again and again, at growing intervals
    /// while there is nothing; the others wait for it.
    fn nap(&self, stream: u32, timeout: Duration) {
        let mut on_watch = self.on_watch();
        if std::mem::replace(&mut *on_watch, true) {
            drop(self.woken.wait_timeout(on_watch, timeout));
            return;
        }
        drop(on_watch);
        let nap = self.napper().nap();
        // Waits for the collector to release a block; without a doorbell nothing tells it.
        std::thread::sleep(timeout.min(nap));
        if matches!(self.look(stream), Look::Room) {
            self.napper().found();
        }
        *self.on_watch() = false;
        self.woken.notify_all();
    }

    /// Ends the sleep of all who wait for room.
    pub(super) fn wake_all(&self) {
        if let Some(watch) = &self.watch {
            watch.wake();
        }
    }

    fn napper(&self) -> MutexGuard<'_, Napper> {
        self.napper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_watch(&self) -> MutexGuard<'_, bool> {
        self.on_watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, stream: u32) -> Look {
        if self.is_closed() || self.sender.refresh().is_err() {
            return Look::Dead;
        }
        let outstanding = self.sender.outstanding(stream).unwrap_or(u32::MAX);
        if self.sender.known_free() > 0 && (outstanding as usize) < self.quota {
            Look::Room
        } else {
            Look::Full
        }
    }
}
