//! Blocks that arrive in any order, and the directory that they end in.
use super::bad::{Bad, header};
use super::world::{World, eventually};
use catchment::sink::DirectorySink;
use catchment_probe::random::Random;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const BLOCKS: u32 = 64;
const ROUNDS: u32 = 6;

/// The numbers of the frames in a directory, in the order of their names.
fn listed(directory: &Path) -> Vec<u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}"))
}

/// The newest file that is listed has all those before it, from this one on. A listing that files are added
/// to meanwhile may leave some out, so each is looked for.
fn demand_no_gap(directory: &Path, from: u32) {
    let newest = listed(directory).last().copied().unwrap_or(0);
    for number in u64::from(from)..newest {
        assert!(file(directory, number).exists(), "{newest} is there, and {number} is not");
    }
}

/// S1.25: whatever order the blocks of a device come in, its directory has no gap at any moment: a file is
/// there when all before it are.
#[test]
fn s1_25_a_directory_is_gapless_and_ordered_whatever_order_blocks_come_in() {
    let root = tempfile::tempdir().unwrap();
    let world = World::start(|collector| collector.sink(DirectorySink::new(root.path())));
    let ringed = Bad::new(&world).ringed("cam", BLOCKS, 0);
    let directory = root.path().join("cam");
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        let first = round * BLOCKS;
        let mut left: Vec<u32> = (0..BLOCKS).collect();
        for slot in 0..BLOCKS {
            let number = left.swap_remove(random.index(left.len()));
            let number = u64::from(first + number);
            let header = header(number, 10);
            ringed.payload(slot, &header, number as u8);
            ringed.commit(slot, u64::from(round) + 1, &header);
            demand_no_gap(&directory, first);
        }
        eventually("all frames of the round", || {
            demand_no_gap(&directory, first);
            listed(&directory).len() == (first + BLOCKS) as usize
        });
        assert!(listed(&directory).into_iter().eq(0..u64::from(first + BLOCKS)), "in order");
        eventually("all slots are back", || {
            (0..BLOCKS).all(|slot| ringed.is_released(slot, u64::from(round) + 1))
        });
    }
    for number in listed(&directory) {
        let bytes = fs::read(file(&directory, number)).unwrap();
        assert_eq!(bytes, [number as u8; 10], "frame {number}");
    }
    drop(ringed);
    world.finish_uncounted();
}
