//! Opening a device, and creating objects from devices and protection domains.
use crate::cq::{ShmChannel, ShmCq};
use crate::cq_core::CqCore;
use crate::handles::{ShmContext, ShmPd};
use crate::mr::ShmMr;
use crate::qp::ShmQp;
use crate::qp_core::QpCore;
use crate::region::MrCore;
use crate::state::State;
use crate::{service, socket};
use catchment_verbs::mem::Region;
use catchment_verbs::provider::{
    MAX_24_BITS, check_bind, check_cq, check_mr, check_qp, own_channel, own_cq, random,
};
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, Gid, Mr, Pd, PortAddr, Qp,
    QpInit, Service, VerbsError,
};
use std::sync::Arc;

impl ShmContext {
    /// Opens the device: a name, a socket, a thread.
    pub(crate) fn open() -> Result<Self, VerbsError> {
        let state = Arc::new(State::new()?);
        let listener = socket::listen(state.gid)
            .map_err(|e| VerbsError::os("listening on an abstract unix socket", e))?;
        let thread = service::start(Arc::clone(&state), listener)
            .map_err(|e| VerbsError::os("starting a service thread", e))?;
        Ok(Self::of(state, thread))
    }
}

impl Context for ShmContext {
    fn caps(&self) -> &Caps {
        &self.state().caps
    }

    fn gid(&self) -> Gid {
        self.state().gid
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        Ok(Arc::new(ShmPd { id: self.state().next_id(), context: self.clone() }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        Ok(Arc::new(ShmChannel::new().map_err(|e| VerbsError::os("eventfd for a channel", e))?))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        check_cq(&self.state().caps, capacity)?;
        let channel = own_channel(channel.as_ref(), |_: &ShmChannel| true)?;
        let channel = channel.map(|channel| Arc::clone(&channel.0));
        let core = CqCore::new(capacity, channel, Arc::clone(self.state().core()));
        Ok(Arc::new(ShmCq { core, _context: self.clone() }))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.state().events.take()
    }
}

impl ShmPd {
    fn add_key(
        &self,
        region: Arc<Region>,
        access: Access,
        of: Option<Arc<dyn Mr>>,
    ) -> Result<Arc<dyn Mr>, VerbsError> {
        let keys = &self.state().keys;
        let (bells, fences) = (&keys.bells, keys.fences_for_writers);
        let core = keys.insert(|key| MrCore::new(key, self.id, access, region, bells, fences))?;
        Ok(Arc::new(ShmMr { core, pd: self.clone(), _of: of }))
    }

    fn cq(&self, cq: &Arc<dyn Cq>) -> Result<Arc<CqCore>, VerbsError> {
        let ours = own_cq(cq, |cq: &ShmCq| cq.core.is_of(self.state().core()))?;
        Ok(Arc::clone(&ours.core))
    }
}

impl Pd for ShmPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        check_mr(&self.state().caps, &region, access)?;
        self.add_key(region, access, None)
    }

    fn bind(
        &self,
        mr: &Arc<dyn Mr>,
        part: Arc<Region>,
        access: Access,
    ) -> Result<Arc<dyn Mr>, VerbsError> {
        let registered = self.state().keys.lookup(mr.lkey());
        let registered = registered.as_ref().map(|core| &core.region);
        check_bind(&self.state().caps, (&**mr, registered), &part, access)?;
        self.add_key(part, access, Some(Arc::clone(mr)))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        let state = self.state();
        check_qp(&state.caps, &init)?;
        let (send_cq, recv_cq) = (self.cq(&init.send_cq)?, self.cq(&init.recv_cq)?);
        let psn = random()? & MAX_24_BITS;
        let core = state.add_queue_pair(|qpn| {
            let context = Arc::clone(state.core());
            QpCore::new(context, self.id, (qpn, psn), &init, send_cq, recv_cq).map(Arc::new)
        })?;
        Ok(Box::new(ShmQp::new(core, self.clone())))
    }

    /// Always refused: there are no datagrams here.
    fn create_ah(&self, _: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        Err(VerbsError::Service { asked: Service::Ud, offered: self.state().caps.services })
    }
}
