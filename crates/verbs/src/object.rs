//! The objects of a provider, as traits. Dynamic dispatch happens here: one call a batch.
use crate::mem::{Region, RegionOptions};
use crate::{
    Access, Caps, Completion, CqError, DeviceInfo, Endpoint, Gid, Limits, ModifyError, NetEnd,
    PortAddr, PostError, QpCapacity, QpState, QpTransition, RateError, RecvWr, RemoteMapError,
    RemoteWindow, RtrAttr, RtsAttr, SendWr, Service, VerbsError, Watch,
};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A way to move bytes: hardware, shared memory, UDP.
pub trait Provider: Send + Sync {
    /// Short name, as in `--provider`.
    fn name(&self) -> &'static str;
    /// The devices there are now.
    ///
    /// # Errors
    /// When the provider cannot work on this machine, with what to do.
    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError>;
    /// Opens a device.
    ///
    /// # Errors
    /// When there is no such device or it cannot be opened.
    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError>;
}

/// An open device.
pub trait Context: Send + Sync {
    /// What the device can do.
    fn caps(&self) -> &Caps;
    /// The address that peers use in [`Endpoint`].
    fn gid(&self) -> Gid;
    /// What the device takes from the network, the same for all its queue pairs; `None` where the
    /// provider has no packets. An RNIC's, unless the provider says else: it listens on
    /// [`NetEnd::RNIC_UDP_PORT`] and has no extensions.
    fn net(&self) -> Option<NetEnd> {
        self.caps().path_mtu.map(NetEnd::of_rnic)
    }
    /// Makes a protection domain.
    ///
    /// # Errors
    /// When the device has no room.
    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError>;
    /// Makes a channel to sleep on for completions.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError>;
    /// Makes a completion queue of `capacity` entries.
    ///
    /// # Errors
    /// When `capacity` is 0 or beyond [`Caps::max_cqe`].
    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError>;
    /// Takes the oldest asynchronous event, if there is one. Never blocks.
    fn async_event(&self) -> Option<AsyncEvent>;
}

/// Something that happened outside of any request (`ibv_get_async_event(3)`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A queue pair went to the error state by itself.
    QpFatal {
        /// The local queue pair.
        qpn: u32,
        /// What happened.
        reason: String,
    },
    /// A completion queue overran.
    CqOverrun,
    /// The port has no link.
    PortDown,
    /// The port has a link again.
    PortActive,
    /// The device is gone.
    DeviceFatal,
}

/// A protection domain: regions and queue pairs that may work together.
pub trait Pd: Send + Sync {
    /// Registers a region.
    ///
    /// # Errors
    /// When the rights contradict each other (remote writing without local writing), the device does
    /// not have one ([`Caps::remote_invalidate`]), or there is no room.
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError>;
    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// When the service is not offered, a capacity is beyond [`Caps`], or a completion queue belongs
    /// to another context.
    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError>;
    /// Makes an address handle: the way to a port, for datagrams.
    ///
    /// # Errors
    /// When the device has no UD, or no way leads there.
    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError>;
    /// Allocates and registers memory in one step.
    ///
    /// # Errors
    /// As for [`Region::alloc`] and [`Pd::reg_mr`].
    fn alloc_mr(&self, bytes: usize, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        self.reg_mr(Region::alloc(bytes, RegionOptions::default())?, access)
    }
}

/// A registered region. Dropping it takes the keys back; the memory stays mapped until the
/// requests that name it are done.
pub trait Mr: Send + Sync {
    /// The memory.
    fn region(&self) -> &Arc<Region>;
    /// Key for scatter-gather elements.
    fn lkey(&self) -> u32;
    /// Key for peers. Never the same twice in the life of a context, as far as its 32 bits reach.
    fn rkey(&self) -> u32;
    /// The rights.
    fn access(&self) -> Access;
    /// Address of the first byte, for [`crate::Sge`] here and [`crate::RemoteAddr`] at the peer.
    fn addr(&self) -> u64 {
        self.region().addr()
    }
    /// Length in bytes.
    fn bytes(&self) -> usize {
        self.region().bytes()
    }
    /// Returns what to sleep on until a peer has written here; `None` without [`Caps::doorbell`].
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }
    /// Tells peers that watch this region ([`Qp::watch_remote`]) that its owner changed it. Makes
    /// the caller's earlier stores visible first. Costs one load when no peer watches.
    fn notify(&self) {}
}

/// An address handle: the way to a port, for datagrams of UD queue pairs of its protection domain.
/// Dropping it takes the handle back; datagrams posted before still go.
pub trait Ah: Send + Sync {
    /// Number for [`crate::Destination::ah`].
    fn handle(&self) -> u32;
    /// Where the way leads.
    fn to(&self) -> &PortAddr;
}

/// A completion queue.
pub trait Cq: Send + Sync {
    /// Takes up to `out.len()` completions, oldest first, and says how many. Never blocks.
    ///
    /// # Errors
    /// [`CqError::Overrun`] once completions were lost.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError>;
    /// Asks for one event on the channel at the next completion (only a solicited or failed one
    /// if `solicited_only`). Poll once more afterwards: a completion may have come before.
    fn req_notify(&self, solicited_only: bool);
    /// Entries that the queue can hold.
    fn capacity(&self) -> u32;
    /// The provider's own type, so that it can recognise its queues in [`QpInit`].
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Something to sleep on until a completion queue has an entry.
pub trait CompletionChannel: Send + Sync {
    /// Sleeps until an event or until the time is over; takes the events that are there. True if
    /// there was one.
    ///
    /// # Errors
    /// Only what the operating system refuses.
    fn wait(&self, timeout: Duration) -> io::Result<bool>;
    /// Lets the sleeper go, or the next one: as if there had been an event. From any thread.
    fn wake(&self);
    /// Readable while an event is there.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// The provider's own type, so that it can recognise its channels in [`Context::create_cq`].
    fn as_any(&self) -> &dyn std::any::Any;
}

/// What a queue pair is made with.
#[derive(Clone)]
pub struct QpInit {
    /// The transport service ([`Caps::services`]).
    pub service: Service,
    /// Where sends complete.
    pub send_cq: Arc<dyn Cq>,
    /// Where receives complete; may be the same.
    pub recv_cq: Arc<dyn Cq>,
    /// Send requests outstanding at once. A request occupies the queue until a completion of it
    /// or of a later one has been polled.
    pub max_send_wr: u32,
    /// Receive requests outstanding at once; 0 is allowed.
    pub max_recv_wr: u32,
    /// Scatter-gather elements of a request.
    pub max_sge: u32,
    /// Bytes of inline data of a request.
    pub max_inline_bytes: u32,
    /// Exactly these capacities, not rounded up ([`Caps::strict_capacity`]).
    pub strict: bool,
}

impl QpInit {
    /// Describes a reliable connection whose requests complete on `cq`, with one element and no inline
    /// data a request, and capacities that the device may round up.
    pub fn rc(cq: &Arc<dyn Cq>, max_send_wr: u32, max_recv_wr: u32) -> Self {
        Self {
            service: Service::Rc,
            send_cq: Arc::clone(cq),
            recv_cq: Arc::clone(cq),
            max_send_wr,
            max_recv_wr,
            max_sge: 1,
            max_inline_bytes: 0,
            strict: false,
        }
    }

    /// Returns the limits of the requests of a queue pair with exactly these capacities, on a device
    /// with these capabilities.
    pub fn limits(&self, caps: &Caps) -> Limits {
        let capacity = QpCapacity {
            max_send_wr: self.max_send_wr,
            max_recv_wr: self.max_recv_wr,
            max_sge: self.max_sge,
            max_inline_bytes: self.max_inline_bytes,
        };
        let most = caps.max_message_bytes;
        let limits = Limits::new(self.service, capacity, most, caps.send_invalidate);
        match caps.path_mtu {
            Some(mtu) if self.service == Service::Ud => limits.with_message_bytes(mtu.into()),
            _ => limits,
        }
    }
}

/// A queue pair. One thread at a time owns it; that is why no lock is needed.
pub trait Qp: Send {
    /// Its number, 24 bits, unique in the context.
    fn qpn(&self) -> u32;
    /// The state it is in. A peer's death shows here as [`QpState::Err`].
    fn state(&self) -> QpState;
    /// What a peer needs to reach it.
    fn endpoint(&self) -> Endpoint;
    /// Goes to another state.
    ///
    /// # Errors
    /// [`ModifyError::Illegal`] for a transition that does not exist; the state is unchanged then.
    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError>;
    /// Connects a fresh queue pair of [`Service::Rc`]: through INIT, where the peer gets the rights
    /// `access`, and RTR to RTS (IBTA 10.3.1).
    ///
    /// # Errors
    /// As for [`Qp::modify`]; it is in the last state that it reached then.
    fn connect(&mut self, access: Access, rtr: RtrAttr, rts: RtsAttr) -> Result<(), ModifyError> {
        self.modify(QpTransition::ToInit { access })?;
        self.modify(QpTransition::ToRtr(rtr))?;
        self.modify(QpTransition::ToRts(rts))
    }
    /// Posts requests in order. Never blocks.
    ///
    /// # Errors
    /// The first request that could not be posted; those before it are posted.
    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError>;
    /// Posts receives in order. Never blocks.
    ///
    /// # Errors
    /// As for [`Qp::post_send`].
    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError>;
    /// Limits the rate at which the queue pair sends, in bits a second; `None` removes the limit.
    /// Possible in any state; the limit holds through all state changes, until the next call.
    ///
    /// What counts are SENDs and WRITEs, with the headers of their packets where there are packets
    /// ([`Caps::rate`]). Requests beyond the rate stay in the send queue and complete later; no byte
    /// is dropped. Bytes that the application stores through [`Qp::map_remote`] do not count.
    ///
    /// # Errors
    /// [`RateError::Unsupported`] without [`Caps::rate`], [`RateError::OutOfRange`] beyond it,
    /// [`RateError::Device`] when the device refuses. The limit is as before then.
    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), RateError>;
    /// Maps a piece of the peer's memory, to fill it in place ([`Caps::direct`]).
    ///
    /// # Errors
    /// [`RemoteMapError::Unsupported`] without that capability; otherwise as a WRITE of that
    /// range would fail.
    fn map_remote(
        &self,
        _addr: u64,
        _bytes: u64,
        _rkey: u32,
    ) -> Result<RemoteWindow, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }
    /// To sleep until the owner of a remote region calls [`Mr::notify`] ([`Caps::doorbell`] and
    /// [`Caps::direct`]).
    ///
    /// # Errors
    /// As for [`Qp::map_remote`].
    fn watch_remote(&self, _rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }
}
