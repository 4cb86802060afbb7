//! `stream` in virtual time.
use super::bench::Experiment;
use super::record::Conditions;
use super::simulated::Simulated;
use crate::times::Law;
use anyhow::{Context as _, Result};
use catchment_mechanisms::Shape;

/// Blocks of a run in virtual time: enough that the beginning does not show, and not more memory is
/// moved than this.
pub(super) fn count(bytes: usize) -> u64 {
    const MOST: u64 = 20_000;
    const MOST_BYTES: u64 = 1 << 30;
    (MOST_BYTES / bytes as u64).clamp(300, MOST)
}

const SEED: u64 = 1;

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    let constants = of.part.constants.context("virtual time needs [measure.constants]")?;
    for (mechanism, bytes, blocks) in of.cells() {
        of.progress(&format!("{bytes} B, {blocks} blocks"));
        let simulated = Simulated {
            constants,
            bytes: u32::try_from(bytes)?,
            count: count(bytes),
            workers: 0,
            law: Law::Nothing,
            seed: SEED,
            helper: mechanism.has_helper(),
        };
        let came = mechanism.with(shape(bytes, blocks)?, simulated);
        let came = came.with_context(|| format!("{mechanism}, {bytes} B, {blocks} blocks"))?;
        let (cell, speed) = (of.cell(mechanism, (bytes, blocks)), came.blocks_per_s);
        let metrics = [
            (("blocks_per_s", "1/s"), speed),
            (("bytes_per_s", "B/s"), speed * bytes as f64),
            (("block_ns", "ns"), 1e9 / speed),
            (("interactions_per_block", "1"), came.interactions_per_block),
        ];
        of.found(&cell, &conditions(None, Some(speed * bytes as f64)), metrics);
    }
    Ok(())
}

pub(super) fn shape(bytes: usize, blocks: usize) -> Result<Shape> {
    Ok(Shape { blocks: u32::try_from(blocks)?, payload_bytes: u32::try_from(bytes)? })
}

pub(super) fn conditions(seed: Option<u64>, achieved_bytes_per_s: Option<f64>) -> Conditions {
    Conditions {
        wait: "looking takes no time".to_owned(),
        caches: "none",
        restarts: 1,
        achieved_bytes_per_s,
        seed,
        ..Conditions::default()
    }
}
