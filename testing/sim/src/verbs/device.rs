//! The provider, its devices and protection domains.
use super::Fabric;
use super::caps::CAPS;
use super::connection::QpData;
use super::memory::{Registered, SimMr};
use super::qp::SimQp;
use super::queue::{CqData, SimChannel, SimCq};
use catchment_verbs::mem::Region;
use catchment_verbs::provider::{
    CompletionQueue, check_cq, check_mr, check_qp, own_channel, own_cq,
};
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, DeviceInfo, Gid, Mr, Pd,
    PortAddr, Provider, Qp, QpInit, Service, VerbsError,
};
use std::sync::Arc;

/// The only name; each open makes a new device.
const DEVICE: &str = "sim0";

/// A provider of devices on a [`Fabric`].
#[derive(Clone)]
pub struct SimProvider {
    fabric: Fabric,
}

impl SimProvider {
    pub(super) fn new(fabric: Fabric) -> Self {
        Self { fabric }
    }
}

impl Provider for SimProvider {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        Ok(vec![DeviceInfo {
            name: DEVICE.to_owned(),
            description: "a device in virtual time".to_owned(),
        }])
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        if device != DEVICE {
            return Err(VerbsError::NoDevice {
                name: device.to_owned(),
                known: vec![DEVICE.to_owned()],
            });
        }
        let id = self.fabric.world().number();
        let mut gid = [0; 16];
        gid[12..].copy_from_slice(&id.to_be_bytes());
        Ok(Arc::new(SimContext { fabric: self.fabric.clone(), id, gid: Gid(gid) }))
    }
}

#[derive(Clone)]
struct SimContext {
    fabric: Fabric,
    id: u32,
    gid: Gid,
}

impl Context for SimContext {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn gid(&self) -> Gid {
        self.gid
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        Ok(Arc::new(SimPd { context: self.clone(), id: self.fabric.world().number() }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        let channel = SimChannel::new(self.fabric.clone(), self.id);
        let channel = channel.map_err(|e| VerbsError::os("eventfd for a channel", e))?;
        Ok(Arc::new(channel))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        check_cq(&CAPS, capacity)?;
        let channel = own_channel(channel.as_ref(), |ours: &SimChannel| ours.device == self.id)?;
        let channel = channel.map(|ours| ours.events.clone());
        let mut world = self.fabric.world();
        let id = world.number();
        let queue = Arc::new(CompletionQueue::new(capacity, channel));
        let data = CqData { device: self.id, queue: Arc::clone(&queue) };
        world.cqs.insert(id, data);
        Ok(Arc::new(SimCq { fabric: self.fabric.clone(), device: self.id, id, queue }))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        let take = || self.fabric.world().events.get_mut(&self.id)?.pop_front();
        take().or_else(|| {
            self.fabric.idle();
            take()
        })
    }
}

struct SimPd {
    context: SimContext,
    id: u32,
}

impl SimPd {
    fn cq(&self, cq: &Arc<dyn Cq>) -> Result<u32, VerbsError> {
        Ok(own_cq(cq, |cq: &SimCq| cq.device == self.context.id)?.id)
    }
}

impl Pd for SimPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        check_mr(&CAPS, &region, access)?;
        let mut world = self.context.fabric.world();
        let key = world.number();
        let registered = Registered { region: Arc::clone(&region), access, pd: self.id };
        world.regions.insert(key, registered);
        Ok(Arc::new(SimMr { fabric: self.context.fabric.clone(), region, access, key }))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        check_qp(&CAPS, &init)?;
        if init.max_send_wr == 0 {
            let what = "max_send_wr = 0: a queue pair needs room for one request";
            return Err(VerbsError::Invalid(what.to_owned()));
        }
        let (send_cq, recv_cq) = (self.cq(&init.send_cq)?, self.cq(&init.recv_cq)?);
        let mut world = self.context.fabric.world();
        let qpn = world.number();
        let data = QpData::new(self.context.id, self.id, (send_cq, recv_cq));
        world.qps.insert(qpn, data);
        drop(world);
        let fabric = self.context.fabric.clone();
        let limits = init.limits(&CAPS);
        Ok(Box::new(SimQp::new(fabric, qpn, self.context.gid, limits)))
    }

    /// Always refused: UD is not offered.
    fn create_ah(&self, _: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        Err(VerbsError::Service { asked: Service::Ud, offered: CAPS.services })
    }
}
