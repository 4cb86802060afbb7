//! What must hold for every mechanism over verbs.
#![allow(unreachable_pub, reason = "the crate is a test")]
use super::ends;
pub use super::ends::{Ends, Patience, finish, send, take};
use catchment_mechanisms::*;
pub use catchment_probe::load::scaled;
use catchment_probe::patience::patient;
use catchment_transfer::WaitPolicy;
use catchment_verbs::{Context, Pd};
use std::ops::Range;
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

/// Both ends, connected.
pub fn pair<M: Mechanism>(mechanism: &M) -> (M::Sender, M::Receiver) {
    let source = open(&host(), &mechanism.sender_needs().unwrap());
    join(mechanism, source, open(&host(), &mechanism.receiver_needs().unwrap()))
}

pub fn join<M: Mechanism>(
    mechanism: &M,
    mut source: Port,
    mut collector: Port,
) -> (M::Sender, M::Receiver) {
    let (out, back) = (source.offer(), collector.offer());
    source.connect_with(&back, patient()).unwrap();
    collector.connect_with(&out, patient()).unwrap();
    let receiver = mechanism.receiver(collector, &out).unwrap();
    (mechanism.sender(source, &back).unwrap(), receiver)
}

fn connected<M: Mechanism>(mechanism: &M) -> Ends<M::Sender, M::Receiver> {
    let (sender, receiver) = pair(mechanism);
    ends_of(mechanism, sender, receiver)
}

fn ends_of<M: Mechanism>(
    mechanism: &M,
    sender: M::Sender,
    receiver: M::Receiver,
) -> Ends<M::Sender, M::Receiver> {
    Ends {
        sender,
        receiver,
        shape: mechanism.shape(),
        features: mechanism.features(),
        // As many send blocks as slots.
        most_on_their_way: 2 * u64::from(mechanism.shape().blocks),
    }
}

/// One block after the other, each taken and given back before the next one.
pub fn lockstep<M: Mechanism>(
    mechanism: &M,
    ends: (M::Sender, M::Receiver),
    packets: Range<u64>,
) -> (M::Sender, M::Receiver) {
    let mut ends = ends_of(mechanism, ends.0, ends.1);
    ends::lockstep(&mut ends, packets);
    (ends.sender, ends.receiver)
}

/// Lengths and contents at random, each block verified.
pub fn random_blocks<M: Mechanism>(mechanism: &M, count: u64) {
    random_blocks_by(mechanism, count, WaitPolicy::Yield, false);
}

/// The same, with what the mechanism wants a thread of its own for in one.
pub fn with_helper<M: Mechanism>(mechanism: &M, count: u64, policy: WaitPolicy) {
    random_blocks_by(mechanism, count, policy, true);
}

/// All threads wait as the policy says.
pub fn random_blocks_by<M: Mechanism>(
    mechanism: &M,
    count: u64,
    policy: WaitPolicy,
    with_helper: bool,
) {
    ends::random_blocks(connected(mechanism), count, policy, with_helper);
}

pub fn any_order<M: Mechanism>(mechanism: &M, count: u64) {
    ends::any_order(connected(mechanism), count);
}

pub fn kept_block<M: Mechanism>(mechanism: &M) {
    ends::kept_block(connected(mechanism));
}

pub fn slow_receiver<M: Mechanism>(mechanism: &M) {
    ends::slow_receiver(connected(mechanism));
}
