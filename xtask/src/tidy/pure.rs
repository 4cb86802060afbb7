//! Pure crates decide from what they are told: no clock, no sleep, no chance, no order by hash.
//!
//! Clippy checks the same by `disallowed-methods`; this also catches what a macro or an alias
//! hides from it, and a missing `clippy.toml`.

use super::{Finding, SourceFile, Surroundings};
use crate::rust_text::has_word;

pub(crate) const RULE: &str = "pure";
const FOLDERS: &[&str] = &["crates/roce/src/", "crates/transfer/src/", "testing/sim/src/"];

const FORBIDDEN: &[(&str, &str)] = &[
    ("Instant::now", "take the time as an argument"),
    ("SystemTime", "take the time as an argument"),
    ("thread::sleep", "return what to wait for and let the caller wait"),
    ("thread_rng", "take the random number as an argument"),
    ("HashMap", "its order differs from run to run: use BTreeMap or an index"),
    ("HashSet", "its order differs from run to run: use BTreeSet or an index"),
];

/// Finds forbidden words in the pure crates; their tests may do as they like.
pub(crate) fn check(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    if !FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let is_test = |at: usize| file.code.is_some_and(|code| code.test.get(at) == Some(&true));
    let numbered = file.lines.iter().enumerate();
    numbered
        .filter(|(at, _)| !is_test(*at))
        .flat_map(|(at, line)| forbidden(file, at + 1, &line.code))
        .collect()
}

fn forbidden(file: &SourceFile<'_>, number: usize, code: &str) -> Vec<Finding> {
    let found = FORBIDDEN.iter().filter(|(word, _)| has_word(code, word));
    let what = |(word, remedy): &(&str, &str)| format!("{word} in a pure crate: {remedy}");
    found.map(|row| file.finding(RULE, number, what(row))).collect()
}
