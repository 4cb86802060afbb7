//! What must hold for every mechanism over verbs.
#![allow(unreachable_pub, reason = "the crate is a test")]
pub use super::ends::*;
use catchment_mechanisms::*;
pub use catchment_probe::load::{did, scaled};
use catchment_probe::patience::patient;
use catchment_verbs::{Context, Pd};
use std::sync::Arc;

/// A device of its own for one end.
pub struct Host {
    pub context: Arc<dyn Context>,
    pub pd: Arc<dyn Pd>,
}

pub fn host() -> Host {
    on(crate::context())
}

/// The ends of a connection between two processes: this one's, and the one of the process that it
/// starts, which calls this too.
pub fn two_hosts() -> [Host; 2] {
    crate::two_devices().map(on)
}

fn on(context: Arc<dyn Context>) -> Host {
    let pd = context.alloc_pd().unwrap();
    Host { context, pd }
}

pub fn open(host: &Host, needs: &EndNeeds) -> Port {
    Port::open(&*host.context, &*host.pd, needs).unwrap()
}

/// The ports of both ends.
pub fn ports<M: Mechanism>(mechanism: &M) -> [Port; 2] {
    let (source, collector) = (mechanism.sender_needs(), mechanism.receiver_needs());
    [open(&host(), &source.unwrap()), open(&host(), &collector.unwrap())]
}

/// Connects two ports, and returns the offers of both.
pub fn connect([source, collector]: &mut [Port; 2]) -> [Offer; 2] {
    let (out, back) = (source.offer(), collector.offer());
    source.connect_with(&back, patient()).unwrap();
    collector.connect_with(&out, patient()).unwrap();
    [out, back]
}

/// Both ends, connected.
pub fn pair<M: Mechanism>(mechanism: &M) -> Ends<M::Sender, M::Receiver> {
    join(mechanism, ports(mechanism))
}

pub fn join<M: Mechanism>(mechanism: &M, mut ports: [Port; 2]) -> Ends<M::Sender, M::Receiver> {
    let [out, back] = connect(&mut ports);
    let [source, collector] = ports;
    Ends {
        receiver: mechanism.receiver(collector, &out).unwrap(),
        sender: mechanism.sender(source, &back).unwrap(),
        shape: mechanism.shape(),
        features: mechanism.features(),
        // As many send blocks as slots.
        most_on_their_way: 2 * u64::from(mechanism.shape().blocks),
    }
}
