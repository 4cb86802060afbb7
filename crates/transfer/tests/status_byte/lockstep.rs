//! How many READs a source makes for a collector that takes all blocks and gives them back together.
use super::super::common::*;
use super::modes;

/// Sends the whole ring, takes it, gives it back: as often as so many blocks need. Returns the READs a block.
fn reads_a_block(sides: &Pair, blocks: u32, count: u64) -> f64 {
    let Pair { sender, receiver, .. } = sides;
    let before = sender.stats();
    for round in 0..count / u64::from(blocks) {
        let first = round * u64::from(blocks);
        (0..u64::from(blocks)).for_each(|i| send(sender, 0, first + i, &[1; 256], false));
        let taken: Vec<_> = (0..blocks)
            .map(|_| {
                until("a block came", || {
                    sender.progress().unwrap();
                    receiver.poll().unwrap()
                })
            })
            .collect();
        drop(taken);
    }
    let after = sender.stats();
    (after.status_reads - before.status_reads) as f64 / (after.blocks - before.blocks) as f64
}

#[test]
fn s1_33_blocks_given_back_together_are_read_together() {
    for mode in modes().into_iter().filter(|mode| *mode != Mode::InPlace) {
        for blocks in [3, 4, 16, 64] {
            let sides = pair(mode, blocks, 256);
            // What is learnt at the beginning does not count.
            reads_a_block(&sides, blocks, 600);
            let reads = reads_a_block(&sides, blocks, 6_000);
            // A thread that loses its processor may find a part of them: more than one a round. The exact
            // limits are kept in virtual time (`tests/reads.rs`).
            let most = 2.0 / f64::from(blocks) + 0.01;
            assert!(reads <= most, "{blocks} slots: {reads:.4} READs a block, {most:.4} at most");
        }
    }
}
