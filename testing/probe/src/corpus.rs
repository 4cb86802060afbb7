//! Inputs of the fuzz targets, which ordinary tests replay: whatever was found once stays found.
use std::fs;

/// Checks each input of a folder of `testing/fuzz/corpus`, of which there are so many at least.
///
/// # Panics
/// If there are fewer, or one cannot be read.
pub fn replay(corpus: &str, least: usize, check: impl Fn(&[u8])) {
    let folder = format!("{}/../fuzz/corpus/{corpus}", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut count = 0;
    for file in files {
        let path = file.unwrap_or_else(|error| panic!("{folder}: {error}")).path();
        check(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        count += 1;
    }
    assert!(count >= least, "{count} files in {folder}");
}
