//! Both ends of a mechanism in one process, for what is counted and not timed.
use crate::job::Network;
use crate::link::device::{Device, patient};
use crate::mechanism::Provider;
use crate::times::Constants;
use anyhow::{Context as _, Result};
use catchment_mechanisms::{
    ClaimError, EndNeeds, Helper, Mechanism, Port, QueueNeeds, ReceiveEnd, SendEnd, traced,
};
use catchment_probe::trace::Trace;
use catchment_provider_roce::RoceOptions;
use catchment_sim::verbs::{Fabric, Pace};
use catchment_verbs::{Context, Provider as _};
use std::sync::Arc;

pub(super) struct Ends<M: Mechanism> {
    pub(super) sender: M::Sender,
    pub(super) receiver: M::Receiver,
    pub(super) traces: [Arc<Trace>; 2],
    pub(super) queues: [QueueNeeds; 2],
    fabric: Option<Fabric>,
    packet: u64,
    counted: Option<[Device; 2]>,
    _devices: [Arc<dyn Context>; 2],
}

/// The end at which something failed: the context of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub(super) enum At {
    #[display("at the source")]
    Source,
    #[display("at the collector")]
    Collector,
}

/// What an end is to have other than it asks for.
pub(super) type Change<'a> = &'a dyn Fn(&mut EndNeeds);

impl<M: Mechanism> Ends<M> {
    /// On devices of this provider, with queues changed as said.
    pub(super) fn new(
        provider: Provider,
        constants: Option<Constants>,
        mechanism: &M,
        changes: [Change<'_>; 2],
    ) -> Result<Self> {
        let open = || match provider {
            Provider::Roce => Device::roce(RoceOptions::default(), "127.0.0.1"),
            Provider::Shm | Provider::Sim | Provider::Rxe => Device::without_network(provider),
        };
        if provider != Provider::Sim {
            let devices = [open()?, open()?];
            let contexts = devices.each_ref().map(|one| Arc::clone(&one.context));
            let ends = Self::on(contexts, None, mechanism, changes)?;
            return Ok(Self { counted: Some(devices), ..ends });
        }
        let constants = constants.context("virtual time needs [measure.constants]")?;
        let fabric = Fabric::new(constants.times(), Pace::ByCaller);
        let open = || fabric.provider().open("sim0");
        Self::on([open()?, open()?], Some(&fabric), mechanism, changes)
    }

    pub(super) fn on_fabric(fabric: &Fabric, mechanism: &M) -> Result<Self> {
        let open = || fabric.provider().open("sim0");
        Self::on([open()?, open()?], Some(fabric), mechanism, [&|_| {}; 2])
    }

    fn on(
        devices: [Arc<dyn Context>; 2],
        fabric: Option<&Fabric>,
        mechanism: &M,
        changes: [Change<'_>; 2],
    ) -> Result<Self> {
        let port = |device: &Arc<dyn Context>, mut needs: EndNeeds, change: Change<'_>| {
            change(&mut needs);
            let pd = device.alloc_pd()?;
            anyhow::Ok(traced(Port::open(&**device, &*pd, &needs)?, 0))
        };
        let (mut out, sent) =
            port(&devices[0], mechanism.sender_needs()?, changes[0]).context(At::Source)?;
        let (mut back, answered) =
            port(&devices[1], mechanism.receiver_needs()?, changes[1]).context(At::Collector)?;
        let (there, here) = (out.offer(), back.offer());
        out.connect_with(&here, patient())?;
        back.connect_with(&there, patient())?;
        let queues = [out.queues, back.queues];
        let receiver = mechanism.receiver(back, &there).context(At::Collector)?;
        let sender = mechanism.sender(out, &here).context(At::Source)?;
        Ok(Self {
            sender,
            receiver,
            traces: [sent, answered],
            queues,
            fabric: fabric.cloned(),
            packet: 0,
            counted: None,
            _devices: devices,
        })
    }

    /// The two ends, for programs of their own, and the work for a thread of its own where one is
    /// wanted: what is taken out of the sender, the sender does no more.
    pub(super) fn split(
        mut self,
        with_helper: bool,
    ) -> (M::Sender, M::Receiver, Option<Box<dyn Helper>>) {
        let helper = with_helper.then(|| self.sender.helper()).flatten();
        (self.sender, self.receiver, helper)
    }

    /// What became of the packets of both; nothing where there are none.
    pub(super) fn network(&self) -> Option<Network> {
        let [source, collector] = self.counted.as_ref()?.each_ref().map(Device::network);
        Some(source? + collector?)
    }

    pub(super) fn send(&mut self, bytes: u32) -> Result<bool> {
        let claim = match self.sender.claim(0, bytes) {
            Ok(claim) => claim,
            Err(ClaimError::WouldBlock) => return Ok(false),
            Err(ClaimError::End(error)) => return Err(error).context(At::Source),
            Err(error) => return Err(error).context(At::Source),
        };
        self.sender.commit(claim, self.packet).context(At::Source)?;
        // The paper's formats have 16 bits for it.
        self.packet = (self.packet + 1) % (1 << 16);
        Ok(true)
    }

    pub(super) fn take(&mut self) -> Result<Option<<M::Receiver as ReceiveEnd>::Block>> {
        self.receiver.take().context(At::Collector)
    }

    /// Nothing was found: lets the rest of the world go on.
    pub(super) fn idle(&mut self) -> Result<()> {
        self.sender.progress().context(At::Source)?;
        match &self.fabric {
            Some(fabric) => {
                if let Some(time) = fabric.next_event() {
                    fabric.advance_to(time);
                }
            }
            None => rustix::thread::sched_yield(),
        }
        Ok(())
    }
}
