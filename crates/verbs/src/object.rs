//! The objects of a provider, as traits. Dynamic dispatch happens here: one call per batch.
use crate::mem::{Region, RegionOptions};
use crate::{
    Access, Caps, Completion, CqError, Delivery, DeviceInfo, Endpoint, Gid, Limits, ModifyError,
    NetEnd, PortAddr, PostError, QpCapacity, QpState, QpTransition, RateError, RateLimit, RecvWr,
    RemoteMapError, RemoteWindow, RtrAttr, RtsAttr, SendWr, Service, VerbsError, Watch,
};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A transport for verbs: hardware, shared memory, UDP.
pub trait Provider: Send + Sync {
    /// Returns the short name, as in `--provider`.
    fn name(&self) -> &'static str;
    /// Returns the devices that exist now.
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
    /// Returns what the device can do.
    fn caps(&self) -> &Caps;
    /// Returns the address that peers use in [`Endpoint`].
    fn gid(&self) -> Gid;
    /// Returns what the device accepts from the network, the same for all its queue pairs; `None`
    /// where the provider has no packets. By default that of an RNIC: port
    /// [`NetEnd::RNIC_UDP_PORT`], no extensions.
    fn net(&self) -> Option<NetEnd> {
        self.caps().path_mtu.map(NetEnd::of_rnic)
    }
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// When the device has no room.
    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError>;
    /// Creates a channel to sleep on for completions.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError>;
    /// Creates a completion queue of `capacity` entries.
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
    /// Does work of the device in the caller's thread, where the device was told to let threads that poll do it
    /// (libfabric calls this manual progress). [`Cq::poll`] does the same; a thread that looks at memory which peers
    /// write calls this when a look finds nothing, and arms its watch before it sleeps. Never blocks. Devices that
    /// work by themselves do nothing here.
    fn progress(&self) {}
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
    /// When the rights contradict each other (remote writing without local writing), the device
    /// does not have one ([`Caps::remote_invalidate`]), or there is no room.
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError>;
    /// Creates a queue pair in state RESET.
    ///
    /// # Errors
    /// When the service is not offered, a capacity is beyond [`Caps`], or a completion queue
    /// belongs to another context.
    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError>;
    /// Creates an address handle: the path to a port, for datagrams.
    ///
    /// # Errors
    /// When the device has no UD, or no route to the port exists.
    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError>;
    /// Gives a part of a registered region ([`Region::part`]), or all of it, keys, rights and bounds of its own: a
    /// memory window (IBTA 10.6.7). Nothing is registered; the registration, of any protection domain of the
    /// context, lasts as long as the window. An RNIC has windows with other rules, so `provider-ibverbs` offers none.
    ///
    /// # Errors
    /// When the device has no windows, the part or the region is another's, and as for [`Pd::reg_mr`].
    fn bind(
        &self,
        mr: &Arc<dyn Mr>,
        part: Arc<Region>,
        access: Access,
    ) -> Result<Arc<dyn Mr>, VerbsError> {
        let (_, _, _) = (mr, part, access);
        Err(VerbsError::Unsupported { provider: "this device", what: "memory windows" })
    }
    /// Allocates and registers memory in one step.
    ///
    /// # Errors
    /// As for [`Region::alloc`] and [`Pd::reg_mr`].
    fn alloc_mr(&self, bytes: usize, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        self.reg_mr(Region::alloc(bytes, RegionOptions::default())?, access)
    }
}

/// A registered region. Dropping it revokes the keys; requests that name it keep the memory mapped.
pub trait Mr: Send + Sync {
    /// Returns the memory.
    fn region(&self) -> &Arc<Region>;
    /// Returns the key for scatter-gather elements.
    fn lkey(&self) -> u32;
    /// Returns the key for peers. A context does not use a key twice, as far as 32 bits reach.
    fn rkey(&self) -> u32;
    /// Returns the access rights.
    fn access(&self) -> Access;
    /// Returns the address of the first byte, for [`crate::Sge`] here and [`crate::RemoteAddr`] at
    /// the peer.
    fn addr(&self) -> u64 {
        self.region().addr()
    }
    /// Returns the length in bytes.
    fn bytes(&self) -> usize {
        self.region().bytes()
    }
    /// Returns what to sleep on until a peer has written here; `None` without [`Caps::doorbell`].
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }
    /// Returns the same for a region that consists, from the offset `from` on, of pieces of `every` bytes, whose owner
    /// wants to know of those that are written to their ends: WRITEs before `from`, and those that reach the last
    /// byte of a piece, ring; others need not. Of several calls for a region the first one counts.
    fn watch_ends(&self, from: usize, every: usize) -> Option<Arc<dyn Watch>> {
        let _ = (from, every);
        self.watch()
    }
    /// Notifies peers that watch this region ([`Qp::watch_remote`]) of a change by its owner. Makes
    /// the caller's earlier stores visible first. Costs one load when no peer watches.
    fn notify(&self) {}
}

/// An address handle: the path to a port, for datagrams of UD queue pairs of its protection domain.
/// Dropping it destroys the handle; datagrams posted before are still sent.
pub trait Ah: Send + Sync {
    /// Returns the number for [`crate::Destination::ah`].
    fn handle(&self) -> u32;
    /// Returns the port that the path leads to.
    fn to(&self) -> &PortAddr;
}

/// A completion queue.
pub trait Cq: Send + Sync {
    /// Takes up to `out.len()` completions, oldest first, and returns how many. Never blocks.
    ///
    /// # Errors
    /// [`CqError::Overrun`] once completions were lost.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError>;
    /// Requests one event on the channel at the next completion (only a solicited or failed one
    /// if `solicited_only`). Poll once more afterwards: a completion may have come before.
    fn req_notify(&self, solicited_only: bool);
    /// Returns how many entries the queue can hold.
    fn capacity(&self) -> u32;
    /// Returns the provider's own type, so that it recognises its queues in [`QpInit`].
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Something to sleep on until a completion queue has an entry.
pub trait CompletionChannel: Send + Sync {
    /// Sleeps until an event or a timeout, and takes all events. Returns whether there was one.
    ///
    /// # Errors
    /// Only errors of the operating system.
    fn wait(&self, timeout: Duration) -> io::Result<bool>;
    /// Wakes the current sleeper, or the next one, as an event would. From any thread.
    fn wake(&self);
    /// Returns a descriptor that is readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// Returns the provider's own type, so that it recognises its channels in
    /// [`Context::create_cq`].
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Parameters of a new queue pair.
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
    /// Describes a reliable connection whose requests complete on `cq`, with one element and no
    /// inline data per request, and capacities that the device may round up.
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

    /// Returns the limits of the requests of a queue pair with exactly these capacities, on a
    /// device with these capabilities.
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

/// A queue pair. One thread at a time owns it, so no lock is needed.
pub trait Qp: Send {
    /// Returns its number, 24 bits, unique in the context.
    fn qpn(&self) -> u32;
    /// Returns its state. After a peer's death that is [`QpState::Err`].
    fn state(&self) -> QpState;
    /// Returns what a peer needs to reach it.
    fn endpoint(&self) -> Endpoint;
    /// Changes the state.
    ///
    /// # Errors
    /// [`ModifyError::Illegal`] for a transition that does not exist. The state is then unchanged.
    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError>;
    /// Connects a fresh queue pair of [`Service::Rc`]: through INIT, where the peer gets the rights
    /// `access`, and RTR to RTS (IBTA 10.3.1).
    ///
    /// # Errors
    /// As for [`Qp::modify`]; the queue pair stays in the last state that it reached.
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
    /// Limits the rate at which the queue pair sends; `None` removes the limit.
    /// Possible in any state; the limit holds through all state changes, until the next call.
    /// [`RateLimit::max_burst_bytes`] holds where this host's processor keeps the limit; an adapter has a bound of its
    /// own.
    ///
    /// SENDs and WRITEs count, with the headers of their packets where there are packets
    /// ([`Caps::rate`]). Requests beyond the rate stay in the send queue and complete later; no
    /// byte is dropped. Bytes that the application stores through [`Qp::map_remote`] do not count.
    ///
    /// # Errors
    /// [`RateError::Unsupported`] without [`Caps::rate`], [`RateError::OutOfRange`] beyond it,
    /// [`RateError::Device`] when the device refuses. The limit is then unchanged.
    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError>;
    /// Returns what became of its packets; `None` where the provider loses none, or does not see it.
    fn delivery(&self) -> Option<Delivery> {
        None
    }
    /// Maps part of the peer's memory, to fill it in place ([`Caps::direct`]).
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
    /// Returns a watch to sleep on until the owner of a remote region calls [`Mr::notify`]
    /// ([`Caps::doorbell`] and [`Caps::direct`]).
    ///
    /// # Errors
    /// As for [`Qp::map_remote`].
    fn watch_remote(&self, _rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }
}
