//! The load of tests: its amount, and bytes from a seed.
use crate::random::Random;

/// Returns `count` times `CATCHMENT_TEST_SCALE`: 10 for a long run, 0.01 on an emulated machine.
///
/// # Panics
/// If that is not a number.
pub fn scaled(count: u64) -> u64 {
    ((count as f64 * scale()) as u64).max(1)
}

/// Returns `CATCHMENT_TEST_SCALE`; 1 if it is not set.
///
/// # Panics
/// If that is not a number.
pub fn scale() -> f64 {
    let scale = std::env::var("CATCHMENT_TEST_SCALE");
    scale.map_or(1.0, |text| text.parse::<f64>().expect("the scale is a number"))
}

/// Says how much of what a requirement counts a test has done, for `cargo xtask nightly`.
pub fn did(id: &str, count: u64, what: &str) {
    println!("did {id}: {count} {what}");
}

/// Fills in the bytes of message `packet` of a stream, the same at both ends, and returns their number,
/// at most the length of `payload`.
pub fn content(stream: u32, packet: u64, payload: &mut [u8]) -> usize {
    let seed = packet.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(stream) << 32;
    let mut random = Random::new(seed);
    let bytes = random.below(payload.len() as u64 + 1) as usize;
    random.fill(&mut payload[..bytes]);
    bytes
}
