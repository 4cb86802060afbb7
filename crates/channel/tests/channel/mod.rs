//! The duplex channel, over the provider that the test file names.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]
mod cleanup;
mod driver;
mod establish;
mod exchange;
mod hostile;
mod one_sided;

use catchment_channel::{Card, Channel, ChannelError, ChannelShape, Mode, Resources};
use catchment_probe::patience::patient;
use catchment_verbs::Context;
use std::sync::Arc;

fn shape(blocks: u32, payload_bytes: u32) -> ChannelShape {
    ChannelShape::new(blocks, payload_bytes)
}

/// The modes that these devices offer. WRITE needs a promise of the order of its bytes; without it, it is refused by name.
fn modes() -> Vec<Mode> {
    let [device, _] = crate::two_devices();
    if device.caps().data_in_order {
        return Mode::ALL.to_vec();
    }
    let refused = Resources::acquire(device, shape(1, 64).with_mode(Mode::Write));
    assert!(matches!(refused.err(), Some(ChannelError::Order)));
    vec![Mode::WriteImm, Mode::Send]
}

/// Both ends, connected, on these devices.
fn joined(contexts: [Arc<dyn Context>; 2], shape: ChannelShape) -> [Channel; 2] {
    let [a, b] = contexts.map(|context| Resources::acquire(context, shape).unwrap());
    let (card_a, card_b) = (card(&a), card(&b));
    let a = Channel::connect(a, &card_b, patient()).unwrap();
    [a, Channel::connect(b, &card_a, patient()).unwrap()]
}

/// As the peer gets it: through the bytes on the wire.
fn card(resources: &Resources) -> Card {
    Card::decode(&resources.card().encode()).unwrap()
}

fn pair(shape: ChannelShape) -> [Channel; 2] {
    joined(crate::two_devices(), shape)
}
