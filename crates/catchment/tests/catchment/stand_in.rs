//! In the place of an RNIC: software RoCE that has what an RNIC has (port 4791, go-back-N, no
//! doorbell), and can fail as one does.
use catchment::providers::{OpenRnics, PathProvider, ProviderOptions, Rnics};
use catchment_provider_roce::{Faults, RoceOptions, RoceProvider};
use catchment_verbs::mem::Region;
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, Delivery, Endpoint, Gid,
    ModifyError, Mr, NetEnd, Pd, PortAddr, PostError, Provider, ProviderInfo, Qp, QpInit, QpState,
    QpTransition, RateError, RateLimit, RecvWr, RemoteMapError, RemoteWindow, SendWr, VerbsError,
    Watch,
};
use std::net::IpAddr;
use std::sync::Arc;

/// What does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    /// All that the device sends is lost.
    Cable,
    /// Packets of more than 1024 bytes are lost.
    LargePackets,
    /// No memory can be registered.
    Memory,
}

/// A machine with one RDMA device at this address.
#[derive(Debug, Clone)]
pub(super) struct StandIn {
    pub(super) address: IpAddr,
    pub(super) broken: Broken,
}

impl StandIn {
    pub(super) fn at(last: u8, broken: Broken) -> Self {
        Self { address: IpAddr::from([127, 0, 0, last]), broken }
    }
}

impl ProviderOptions for StandIn {
    fn info(&self) -> ProviderInfo {
        catchment_provider_ibverbs::INFO
    }

    fn provider(&self) -> Arc<dyn PathProvider> {
        Arc::new(OpenRnics::new(Arc::new(self.clone())))
    }
}

impl Rnics for StandIn {
    fn device_for(&self, local: IpAddr) -> Result<String, String> {
        Err(format!("no RDMA device is on the interface with {local}"))
    }

    fn may_return(&self, _: IpAddr) -> bool {
        false
    }

    fn names(&self) -> Result<Vec<String>, String> {
        Ok(vec!["standin0".to_owned()])
    }

    fn open(&self, _: &str) -> Result<Arc<dyn Context>, VerbsError> {
        let lost = self.broken == Broken::Cable;
        let fault = lost.then(|| "drop=1,seed=1".parse::<Faults>().unwrap());
        let provider = RoceProvider::new(RoceOptions {
            selective_repeat: false,
            doorbell: false,
            fault,
            ..RoceOptions::default()
        });
        let inner = provider.open(&self.address.to_string())?;
        let caps = inner.caps().clone();
        Ok(Arc::new(StandInContext { inner, caps, broken: self.broken }))
    }
}

struct StandInContext {
    inner: Arc<dyn Context>,
    caps: Caps,
    broken: Broken,
}

impl Context for StandInContext {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn gid(&self) -> Gid {
        self.inner.gid()
    }

    fn net(&self) -> Option<NetEnd> {
        self.inner.net()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        let (inner, broken) = (self.inner.alloc_pd()?, self.broken);
        Ok(Arc::new(StandInPd { inner, broken }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        self.inner.create_channel()
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        self.inner.create_cq(capacity, channel)
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.inner.async_event()
    }

    fn progress(&self) {
        self.inner.progress();
    }
}

struct StandInPd {
    inner: Arc<dyn Pd>,
    broken: Broken,
}

impl Pd for StandInPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        if self.broken == Broken::Memory {
            let what = format!("registering {} bytes", region.bytes());
            return Err(VerbsError::os(what, std::io::Error::from_raw_os_error(12)));
        }
        self.inner.reg_mr(region, access)
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        Ok(Box::new(StandInQp {
            inner: self.inner.create_qp(init)?,
            broken: self.broken,
            path_mtu: 0,
        }))
    }

    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        self.inner.create_ah(to)
    }
}

struct StandInQp {
    inner: Box<dyn Qp>,
    broken: Broken,
    path_mtu: u32,
}

impl StandInQp {
    /// Whether a request would go in packets that are lost.
    fn is_lost(&self, request: &SendWr<'_>) -> bool {
        let packet = request.payload.bytes().min(self.path_mtu.into());
        self.broken == Broken::LargePackets && packet > 1024
    }
}

impl Qp for StandInQp {
    fn qpn(&self) -> u32 {
        self.inner.qpn()
    }

    fn state(&self) -> QpState {
        self.inner.state()
    }

    fn endpoint(&self) -> Endpoint {
        self.inner.endpoint()
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        if let QpTransition::ToRtr(attr) = &transition {
            self.path_mtu = attr.remote.net.map_or(4096, |net| net.path_mtu);
        }
        self.inner.modify(transition)
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        if requests.iter().any(|request| self.is_lost(request)) {
            return Ok(());
        }
        self.inner.post_send(requests)
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.inner.post_recv(requests)
    }

    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError> {
        self.inner.set_rate(limit)
    }

    fn delivery(&self) -> Option<Delivery> {
        self.inner.delivery()
    }

    fn map_remote(&self, addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError> {
        self.inner.map_remote(addr, bytes, rkey)
    }

    fn watch_remote(&self, rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        self.inner.watch_remote(rkey)
    }
}
