//! A device of a provider, and ports of two roles that find each other.
use crate::control::Control;
use crate::job::{Job, Network, Queues, Role};
use crate::mechanism::Provider;
use anyhow::{Context as _, Result, ensure};
use catchment_mechanisms::{Offer, Port};
use catchment_netns::Namespace;
use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider as _, RtsAttr};
use std::sync::Arc;

/// Returns the patience of a queue pair on a busy machine, where the peer may not run for half a
/// second and is not dead.
pub(crate) fn patient() -> RtsAttr {
    RtsAttr { timeout: 4 * RtsAttr::default().timeout, ..RtsAttr::default() }
}

const KERNEL_DEVICES: &str = "CATCHMENT_IBVERBS_DEVICE";
/// How to have them.
pub(crate) const KERNEL_DEVICES_HINT: &str = "CATCHMENT_IBVERBS_DEVICE names no two RDMA devices, such as rxv0,rxv1 in a guest of `cargo xtask lab`";

/// Returns the names of the two devices of the kernel's Soft-RoCE at a cable, where they are given.
pub(crate) fn kernel_devices() -> Option<[String; 2]> {
    let names = std::env::var(KERNEL_DEVICES).ok()?;
    let (source, collector) = names.split_once(',')?;
    Some([source.to_owned(), collector.to_owned()])
}

fn kernel_device(role: Role) -> Result<String> {
    let [source, collector] = kernel_devices().context(KERNEL_DEVICES_HINT)?;
    Ok(if role == Role::Source { source } else { collector })
}

/// Returns the network interface of the device of a role: the end of the cable.
pub(crate) fn kernel_interface(role: Role) -> Result<String> {
    let name = kernel_device(role)?;
    let path = format!("/sys/class/infiniband/{name}/ports/1/gid_attrs/ndevs/0");
    let text = std::fs::read_to_string(&path).context(path)?;
    Ok(text.trim().to_owned())
}

pub(crate) struct Device {
    pub(crate) context: Arc<dyn Context>,
    /// The same, where packets are counted.
    roce: Option<Arc<RoceContext>>,
}

impl Device {
    /// Opens that of a role. For a network the role goes into its namespace first.
    pub(crate) fn open(job: &Job, role: Role) -> Result<Self> {
        match job.provider {
            Provider::Roce => {}
            Provider::Rxe => return Self::kernel_roce(role),
            Provider::Shm | Provider::Sim => return Self::without_network(job.provider),
        }
        let ends = job.network.as_ref().context("the job has no addresses for its network")?;
        let end = match role {
            Role::Source => &ends[0],
            Role::Collector => &ends[1],
        };
        Namespace::open(&end.netns)?.enter()?;
        let options = RoceOptions {
            // Its own thread sleeps when it finds nothing: the role shares its core with it.
            spin: std::time::Duration::ZERO,
            // A role that polls has no reason to wait for that thread.
            inline_polling: job.wait.polls(),
            ..RoceOptions::default()
        };
        Self::roce(options, &end.address.to_string())
    }

    pub(crate) fn without_network(provider: Provider) -> Result<Self> {
        ensure!(provider == Provider::Shm, "{provider} has no such device");
        Ok(Self { context: ShmProvider::new().open("shm0")?, roce: None })
    }

    /// The device of a role, of the two that are named.
    pub(crate) fn kernel_roce(role: Role) -> Result<Self> {
        let name = kernel_device(role)?;
        let context = IbverbsProvider::new(IbverbsOptions::default()).open(&name)?;
        Ok(Self { context, roce: None })
    }

    /// Software RoCE at an address. Devices that are measured in turn live side by side, so each has
    /// a port of its own.
    pub(crate) fn roce(options: RoceOptions, address: &str) -> Result<Self> {
        let options = RoceOptions { port: 0, ..options };
        let context = RoceProvider::new(options).open_device(address)?;
        Ok(Self { roce: Some(Arc::clone(&context)), context })
    }

    /// Does its work in this thread, after a look at memory that found nothing.
    #[inline]
    pub(crate) fn progress(&self) {
        if let Some(roce) = &self.roce {
            roce.progress();
        }
    }

    /// What became of its packets since it was opened.
    pub(crate) fn network(&self) -> Option<Network> {
        let counted = self.roce.as_ref()?.counters().protocol;
        Some(Network {
            lost: counted.lost,
            sent_again: counted.retransmitted + counted.responses_repeated,
        })
    }
}

/// Connects ports to those of the other role, its last to our first: who sends by its first port takes
/// by its last. What the other role offers, in our order.
pub(crate) fn connect(control: &mut Control, ports: &mut [Port]) -> Result<Vec<Offer>> {
    let ours: Vec<String> = ports.iter().map(|port| port.offer().to_string()).collect();
    control.send(&ours)?;
    let theirs: Vec<String> = control.recv()?;
    ensure!(theirs.len() == ports.len(), "the other role has {} ports", theirs.len());
    let offers = theirs.iter().rev().map(|offer| Ok(offer.parse()?));
    let offers: Vec<Offer> = offers.collect::<Result<_>>()?;
    for (port, offer) in ports.iter_mut().zip(&offers) {
        port.connect_with(offer, patient())?;
    }
    control.meet()?;
    Ok(offers)
}

/// What a port's queue pair was made for.
pub(crate) fn queues(port: &Port) -> Queues {
    let queues = port.queues;
    Queues {
        queue_pairs: 1,
        completion_queues: queues.completion_queues(),
        send_queue_depth: queues.max_send_wr,
        receive_queue_depth: queues.max_recv_wr,
        completion_queue_depth: queues.send_cqe + queues.recv_cqe,
    }
}
