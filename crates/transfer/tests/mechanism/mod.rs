//! One suite for every mechanism, over the provider that the test file names.
mod suite;

use catchment_transfer::mechanism::*;
use suite::*;

fn status_byte(blocks: u32, payload_bytes: u32, way: Way) -> StatusByte {
    let shape = Shape {
        blocks,
        payload_bytes,
    };
    StatusByte::new(shape, way)
}

/// The ways that the provider has.
fn ways() -> Vec<Way> {
    if crate::context().caps().direct {
        vec![Way::InPlace, Way::Copy]
    } else {
        vec![Way::Copy]
    }
}

#[test]
fn status_byte_moves_random_blocks() {
    for way in ways() {
        random_blocks(&status_byte(8, 3000, way), scaled(100_000));
    }
}

#[test]
fn status_byte_releases_in_any_order() {
    for way in ways() {
        any_order(&status_byte(16, 64, way), scaled(20_000));
        kept_block(&status_byte(4, 64, way));
    }
}

#[test]
fn status_byte_waits_for_a_slow_receiver() {
    for way in ways() {
        slow_receiver(&status_byte(3, 64, way));
    }
}
