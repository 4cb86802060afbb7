//! Pure crates decide from what they are told: no clock, no sleep, no chance, no order by hash.
//!
//! Clippy checks the same by `disallowed-methods`; this also catches what a macro or an alias
//! hides from it, and a missing `clippy.toml`.

use super::{Finding, SourceFile, Surroundings};
use crate::rust_text::{has_word, test_lines};

pub(crate) const RULE: &str = "pure";

/// Folders of the crates that are pure.
const FOLDERS: &[&str] = &[
    "crates/roce/src/",
    "crates/transfer/src/",
    "testing/sim/src/",
];

/// Words that such a crate may not hold, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("Instant::now", "take the time as an argument"),
    ("SystemTime", "take the time as an argument"),
    (
        "thread::sleep",
        "return what to wait for and let the caller wait",
    ),
    ("thread_rng", "take the random number as an argument"),
    (
        "HashMap",
        "its order differs from run to run: use BTreeMap or an index",
    ),
    (
        "HashSet",
        "its order differs from run to run: use BTreeSet or an index",
    ),
];

/// Finds forbidden words in the pure crates; their tests may do as they like.
pub(crate) fn check(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    if !FOLDERS.iter().any(|folder| file.path.starts_with(folder)) || is_test_file(file.path) {
        return Vec::new();
    }
    let marks = test_lines(&file.lines);
    let numbered = file
        .lines
        .iter()
        .zip(marks)
        .enumerate()
        .filter(|(_, (_, test))| !test);
    numbered
        .flat_map(|(at, (line, _))| forbidden(file, at + 1, &line.code))
        .collect()
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

fn forbidden(file: &SourceFile<'_>, number: usize, code: &str) -> Vec<Finding> {
    let found = FORBIDDEN.iter().filter(|(word, _)| has_word(code, word));
    let what = |(word, remedy): &(&str, &str)| format!("{word} in a pure crate: {remedy}");
    found
        .map(|row| file.finding(RULE, number, what(row)))
        .collect()
}
