//! Opening a device, and creating objects from devices and protection domains.
use crate::ah::RoceAh;
use crate::cq::RoceCq;
use crate::device::Device;
use crate::engine::{Parts, QpShared, TurnKind, thread};
use crate::handles::{RoceContext, RocePd};
use crate::io::{BindError, Datagrams, UdpSocket, Waiter};
use crate::mr::RoceMr;
use crate::qp::{RoceQp, draw_key};
use crate::region::MrCore;
use crate::{RoceOptions, name};
use catchment_roce::wire::PathMtu;
use catchment_roce::{self as roce};
use catchment_verbs::mem::Region;
use catchment_verbs::provider::{
    CompletionQueue, EventChannel, check_bind, check_cq, check_mr, check_qp, own_channel, own_cq,
    random,
};
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, Gid, Mr, NetEnd, Pd, PortAddr,
    Qp, QpInit, RateRange, Services, VerbsError,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Longest inline payload: what fits into the send batch besides the headers for every packet.
const MAX_INLINE_BYTES: u32 = 256;
/// A peer whose engine does not run for a time slice of the scheduler is no loss.
const RTO_MIN: Duration = Duration::from_millis(4);
/// Bytes of a packet's Ethernet, IP and UDP headers and frame check.
const FRAME_BYTES: u32 = 14 + 8 + 4;
/// BTH, RETH and ICRC of a packet of a WRITE.
const WRITE_BYTES: u32 = 12 + 16 + 4;

fn ip_bytes(local: &IpAddr) -> u32 {
    if local.is_ipv4() { 20 } else { 40 }
}

/// Returns the limits of a device.
fn caps(path_mtu: PathMtu, ip_bytes: u32, doorbell: bool) -> Caps {
    Caps {
        services: Services::all(),
        max_send_wr: 1 << 14,
        max_recv_wr: 1 << 14,
        max_sge: 16,
        max_inline_bytes: MAX_INLINE_BYTES,
        max_cqe: 1 << 18,
        max_message_bytes: 1 << 31,
        max_rd_atomic: 64,
        path_mtu: Some(path_mtu.bytes() as u32),
        atomics: true,
        send_invalidate: true,
        remote_invalidate: true,
        data_in_order: true,
        writes_in_order: true,
        direct: false,
        doorbell,
        rate: Some(RateRange {
            min_bps: 1000,
            max_bps: 1_000_000_000_000,
            step_bps: 1,
            packet_overhead_bytes: FRAME_BYTES + ip_bytes + WRITE_BYTES,
        }),
        strict_capacity: true,
    }
}

/// Binds the socket of a device, at another port where the options allow that.
fn bind(address: SocketAddr, options: &RoceOptions) -> Result<UdpSocket, BindError> {
    match UdpSocket::bind(address, &options.socket) {
        Err(BindError::InUse(_)) if options.other_port => {
            let mut free = address;
            free.set_port(0);
            let socket = UdpSocket::bind(free, &options.socket)?;
            let port = socket.local().port();
            tracing::info!(%address, port, "UDP port is taken; using another port, which RNICs cannot reach");
            Ok(socket)
        }
        bound => bound,
    }
}

impl RoceContext {
    pub(crate) fn open(name: &str, options: &RoceOptions) -> Result<Arc<Self>, VerbsError> {
        let address = name::resolve(name, options.port)?;
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            return Err(VerbsError::Invalid(format!(
                "{address} is not the address of a device: name an address of this host"
            )));
        }
        let socket =
            bind(address, options).map_err(|error| VerbsError::Invalid(error.to_string()))?;
        Self::open_on(Box::new(socket), options)
    }

    /// Opens the device that sends and receives through `datagrams`.
    pub(crate) fn open_on(
        datagrams: Box<dyn Datagrams>,
        options: &RoceOptions,
    ) -> Result<Arc<Self>, VerbsError> {
        let path_mtu = path_mtu(&*datagrams, options)?;
        let os = |what: &'static str| move |error| VerbsError::os(what, error);
        let waiter = Waiter::new().map_err(os("eventfd for the engine"))?;
        let caps = caps(path_mtu, ip_bytes(&datagrams.local().ip()), options.doorbell);
        let device = Arc::new(Device::new(datagrams, path_mtu, caps, options.clone(), &waiter)?);
        let thread = thread::start(Arc::clone(&device), waiter)
            .map_err(os("starting the engine's thread"))?;
        Ok(Self::of(device, thread))
    }
}

/// Returns the largest path MTU that the carrier of the packets and the options allow.
fn path_mtu(datagrams: &dyn Datagrams, options: &RoceOptions) -> Result<PathMtu, VerbsError> {
    let local = datagrams.local();
    let mtu = datagrams.ip_mtu();
    let mtu = mtu.map_err(|e| VerbsError::os("asking for the MTU of an address", e))?;
    let room = (mtu as usize).saturating_sub(options.trailer_bytes());
    let largest = PathMtu::for_interface_mtu(room, local.is_ipv6()).ok_or_else(|| {
        VerbsError::Invalid(format!(
            "the MTU of {mtu} at {} is too small for RoCE, which needs at least 324",
            local.ip()
        ))
    })?;
    Ok(options.path_mtu.map_or(largest, |most| most.min(largest)))
}

impl Context for RoceContext {
    fn caps(&self) -> &Caps {
        &self.device().caps
    }

    fn gid(&self) -> Gid {
        self.device().gid
    }

    fn net(&self) -> Option<NetEnd> {
        Some(self.device().net())
    }

    fn progress(&self) {
        self.device().help(TurnKind::Full, true);
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        Ok(Arc::new(RocePd { id: self.device().next_id(), context: self.clone() }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        Ok(Arc::new(EventChannel::new().map_err(|e| VerbsError::os("eventfd for a channel", e))?))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        check_cq(&self.device().caps, capacity)?;
        let channel = own_channel::<EventChannel>(channel.as_ref(), |_| true)?.cloned();
        let core = Arc::new(CompletionQueue::new(capacity, channel));
        Ok(Arc::new(RoceCq { core, context: self.clone() }))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.device().events.take()
    }
}

impl RocePd {
    fn cq(&self, cq: &Arc<dyn Cq>) -> Result<Arc<CompletionQueue>, VerbsError> {
        let ours = own_cq(cq, |cq: &RoceCq| Arc::ptr_eq(cq.context.device(), self.device()))?;
        Ok(Arc::clone(&ours.core))
    }

    /// Returns the protocol's limits for a queue pair; its number comes later.
    fn config(&self, init: &QpInit) -> roce::Config {
        let device = self.device();
        let config = roce::Config::new(0, init.service);
        roce::Config {
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_sge: init.max_sge.max(1),
            max_inline_bytes: init.max_inline_bytes,
            window_bytes: device.window_bytes(),
            long_window_bytes: device.options.long_window_bytes,
            rto_min: RTO_MIN,
            pacing: roce::PacingConfig {
                overhead_bytes: FRAME_BYTES
                    + ip_bytes(&device.local.ip())
                    + device.options.trailer_bytes() as u32,
                react_to_cnp: device.options.ecn,
                ..config.pacing
            },
            ..config
        }
    }
}

impl RocePd {
    fn add_key(
        &self,
        region: Arc<Region>,
        access: Access,
        of: Option<Arc<dyn Mr>>,
    ) -> Result<Arc<dyn Mr>, VerbsError> {
        let mut keys = self.device().keys_mut();
        let core = keys.insert(|key| MrCore::new(key, self.id, access, region))?;
        drop(keys);
        Ok(Arc::new(RoceMr { core, pd: self.clone(), _of: of }))
    }
}

impl Pd for RocePd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        check_mr(&self.device().caps, &region, access)?;
        self.add_key(region, access, None)
    }

    fn bind(
        &self,
        mr: &Arc<dyn Mr>,
        part: Arc<Region>,
        access: Access,
    ) -> Result<Arc<dyn Mr>, VerbsError> {
        let registered =
            self.device().keys().lookup(mr.lkey()).map(|core| Arc::clone(&core.region));
        check_bind(&self.device().caps, (&**mr, registered.as_ref()), &part, access)?;
        self.add_key(part, access, Some(Arc::clone(mr)))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        let caps = &self.device().caps;
        check_qp(caps, &init)?;
        let shared = Arc::new(QpShared::new(init.limits(caps)));
        let parts = Parts {
            shared: Arc::clone(&shared),
            config: self.config(&init),
            pd: self.id,
            send_cq: self.cq(&init.send_cq)?,
            recv_cq: self.cq(&init.recv_cq)?,
        };
        let secrets = (random()?, draw_key(self.device())?);
        let place = self.device().engine().add(parts)?;
        Ok(Box::new(RoceQp::new(shared, self.clone(), place, secrets)))
    }

    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        Ok(Arc::new(RoceAh::new(self.clone(), to)?))
    }
}
