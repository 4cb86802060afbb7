//! An open agent, protection domains, and what is made from them.
use super::AgentOptions;
use super::ah::AgentAh;
use super::chunks::Place;
use super::cq::{AgentChannel, AgentCq};
use super::handles::{AgentContext, AgentPd};
use super::link::Link;
use super::mr::AgentMr;
use super::qp::AgentQp;
use super::qp_core::QpCore;
use crate::protocol::{self, Reply, Request};
use catchment_verbs::mem::{MemError, Region, RegionOptions};
use catchment_verbs::provider::{
    CompletionQueue, EventChannel, check_cq, check_mr, check_qp, own_channel, own_cq,
};
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, Gid, Mr, NetEnd, Pd, PortAddr,
    Qp, QpInit, Service, VerbsError,
};
use std::os::fd::AsFd as _;
use std::sync::Arc;

fn refused(reason: String) -> VerbsError {
    VerbsError::Invalid(format!("the agent: {reason}"))
}

impl AgentContext {
    pub(super) fn open(options: &AgentOptions) -> Result<Self, VerbsError> {
        let link = Arc::new(Link::connect(options)?);
        let watcher = Arc::clone(&link);
        let thread = std::thread::Builder::new().name("agent-link".to_owned());
        let thread = thread.spawn(move || watcher.watch());
        let thread = thread.map_err(|error| VerbsError::os("starting a thread", error))?;
        Ok(Self::of(link, thread))
    }
}

impl Context for AgentContext {
    fn caps(&self) -> &Caps {
        &self.link().caps
    }

    fn gid(&self) -> Gid {
        self.link().gid
    }

    fn net(&self) -> Option<NetEnd> {
        self.link().device.net.map(protocol::net_end)
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        let reply = self.link().call(&Request::AllocPd, &[]).map_err(refused)?;
        let Reply::Pd { pd } = reply else { return Err(refused(Link::misfit())) };
        Ok(Arc::new(AgentPd::of(pd, self.clone())))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        let events = EventChannel::new();
        let events = events.map_err(|e| VerbsError::os("eventfd for a channel", e))?;
        Ok(Arc::new(AgentChannel { events, link: Arc::clone(self.link()) }))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        check_cq(&self.link().caps, capacity)?;
        let ours = |channel: &AgentChannel| Arc::ptr_eq(&channel.link, self.link());
        let channel = own_channel(channel.as_ref(), ours)?;
        let queue = CompletionQueue::new(capacity, channel.map(|channel| channel.events.clone()));
        let queue = Arc::new(queue);
        self.link().add_queue(&queue);
        Ok(Arc::new(AgentCq { queue, context: self.clone() }))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.link().progress();
        self.link().events.take()
    }
}

impl AgentPd {
    fn mr_of(
        &self,
        reply: Reply,
        region: Arc<Region>,
        access: Access,
    ) -> Result<Arc<dyn Mr>, VerbsError> {
        let Reply::Region { lkey, rkey, addr } = reply else {
            return Err(refused(Link::misfit()));
        };
        Ok(Arc::new(AgentMr { region, access, lkey, rkey, addr, pd: self.clone() }))
    }

    /// Makes a region of a slice; `None` where requests that are under way use some of it.
    fn bind_slice(
        &self,
        region: &Arc<Region>,
        access: Access,
        (chunk, offset): (u32, u64),
        again: bool,
    ) -> Result<Option<Arc<dyn Mr>>, VerbsError> {
        let request = Request::Bind {
            pd: self.number(),
            chunk,
            offset,
            bytes: region.bytes() as u64,
            access: access.bits(),
            again,
        };
        let reply = self.link().call(&request, &[]).map_err(refused)?;
        if reply == Reply::Busy {
            return Ok(None);
        }
        self.mr_of(reply, Arc::clone(region), access).map(Some)
    }

    fn cq(&self, cq: &Arc<dyn Cq>) -> Result<Arc<CompletionQueue>, VerbsError> {
        let ours = own_cq(cq, |cq: &AgentCq| Arc::ptr_eq(cq.context.link(), self.link()))?;
        Ok(Arc::clone(&ours.queue))
    }
}

impl Pd for AgentPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        check_mr(&self.link().caps, &region, access)?;
        let link = self.link();
        if let Some((chunk, offset)) = link.place_of(&region).filter(|_| link.may_slice(access)) {
            let bound = self.bind_slice(&region, access, (chunk, offset), true)?;
            return bound.ok_or_else(|| refused(Link::misfit()));
        }
        let fd = region.lend().map_err(|error| {
            if matches!(error, MemError::NoDescriptor) {
                let what = "memory that came from another process";
                return VerbsError::Unsupported { provider: super::INFO.name, what };
            }
            error.into()
        })?;
        let request = Request::Register {
            pd: self.number(),
            bytes: region.bytes() as u64,
            access: access.bits(),
            writable: region.is_writable(),
        };
        let reply = link.or_without_free_chunks(|| link.call(&request, &[fd.as_fd()]));
        let reply = reply.map_err(refused)?;
        self.mr_of(reply, region, access)
    }

    /// A slice of a memory chunk, where these rights allow one.
    fn alloc_mr(&self, bytes: usize, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        if bytes == 0 || !self.link().may_slice(access) {
            return self.reg_mr(Region::alloc(bytes, RegionOptions::default())?, access);
        }
        let mut busy = Vec::new();
        loop {
            let place = self.link().take_slice(bytes).map_err(refused)?;
            let Place { region, chunk, offset, was_used } = place;
            check_mr(&self.link().caps, &region, access)?;
            region.populate()?;
            if let Some(mr) = self.bind_slice(&region, access, (chunk, offset), false)? {
                if was_used {
                    region.whole().fill(0)?;
                }
                return Ok(mr);
            }
            // Not free again before there is another.
            busy.push(region);
        }
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        let caps = &self.link().caps;
        check_qp(caps, &init)?;
        let (send_cq, recv_cq) = (self.cq(&init.send_cq)?, self.cq(&init.recv_cq)?);
        let (max_send_wr, max_recv_wr) = (init.max_send_wr, init.max_recv_wr);
        let datagrams = init.service == Service::Ud;
        let request = Request::CreateQp { pd: self.number(), datagrams, max_send_wr, max_recv_wr };
        let reply = self.link().call(&request, &[]).map_err(refused)?;
        let Reply::Created { queue_pair, endpoint } = reply else {
            return Err(refused(Link::misfit()));
        };
        let endpoint = protocol::endpoint(&endpoint).ok_or_else(|| refused(Link::misfit()))?;
        let numbers = (endpoint.qpn, queue_pair);
        let core = Arc::new(QpCore::new(numbers, init.limits(caps), send_cq, recv_cq));
        self.link().add(&core).map_err(refused)?;
        Ok(Box::new(AgentQp::new(core, endpoint, self.clone())))
    }

    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        let offered = self.link().caps.services;
        if !offered.has(Service::Ud) {
            return Err(VerbsError::Service { asked: Service::Ud, offered });
        }
        let net = to.net.map(protocol::net_of);
        let request = Request::CreateAh { pd: self.number(), gid: to.gid.to_string(), net };
        let reply = self.link().call(&request, &[]).map_err(refused)?;
        let Reply::Ah { ah } = reply else { return Err(refused(Link::misfit())) };
        let made = AgentAh::of(ah, *to, self.clone());
        Ok(Arc::new(made.ok_or_else(|| refused(Link::misfit()))?))
    }
}
