//! Many clients whose READs, WRITEs and compare-and-swaps take turns word by word, killed anywhere, over tables that
//! grow meanwhile: what they saw is linearizable, and nothing is lost. A failing seed is printed.
mod words;
mod world;

use catchment_linear::{search, versions};
use catchment_probe::load::scaled;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Planted, Tally, World};

fn run(seed: u64, planted: Planted, operations: u64) -> (Result<(), String>, World) {
    let mut world = World::new(seed, 3 + (seed % 4) as usize, planted);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run(operations)));
    let verdict = ran.map_err(|_| "the world fell apart".to_owned()).and_then(|()| {
        versions::check(&world.history).map_err(|fault| format!("by versions: {fault}"))?;
        search::check(&world.history).map_err(|fault| format!("by search: {fault}"))
    });
    (verdict, world)
}

#[test]
fn s5_24_every_interleaving_is_linearizable_and_loses_no_block() {
    let mut all = Tally::default();
    for seed in 0..scaled(150) {
        let (verdict, mut world) = run(seed, Planted::Nothing, 400);
        assert_eq!(verdict, Ok(()), "seed {seed}");
        let (linked, owned) = world.close();
        assert_eq!(
            owned,
            linked.len() as u64,
            "seed {seed}: blocks that are not free, and those in the index"
        );
        let tally = world.tally;
        all.ended += tally.ended;
        all.retries += tally.retries;
        all.known += tally.known;
        all.killed += tally.killed;
        all.tables += tally.tables;
        all.full += tally.full;
    }
    println!("{all:?}");
    // What is to be tried does happen.
    assert!(all.retries > 0 && all.known > 0 && all.killed > 0 && all.tables > 0, "{all:?}");
}

#[test]
fn planted_faults_are_found() {
    for planted in [
        Planted::NoMark,
        Planted::LateMark,
        Planted::LateItem,
        Planted::BlindSwap,
        Planted::EarlyAnswer,
        Planted::StalePut,
    ] {
        let found = (0..2000).find(|seed| run(*seed, planted, 400).0.is_err());
        println!("{planted:?}: seed {found:?}");
        assert!(found.is_some(), "{planted:?} was not found");
    }
}
