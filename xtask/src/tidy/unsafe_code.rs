//! Unsafe code says why it is sound; crates that need none forbid it.

use super::{Finding, SourceFile, Surroundings};
use crate::rust_text::{Line, find_word};

pub(crate) const COMMENT_RULE: &str = "safety-comment";
pub(crate) const FORBID_RULE: &str = "forbid-unsafe";

const SAFE_ROOTS: &[&str] = &[
    "crates/roce/src/lib.rs",
    "crates/transfer/src/lib.rs",
    "crates/doctor/src/lib.rs",
    "crates/observe/src/lib.rs",
    "crates/session/src/lib.rs",
    "crates/catchment/src/lib.rs",
    "crates/cli/src/main.rs",
    "xtask/src/main.rs",
];

pub(crate) fn check_forbid(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    let forbids = |line: &Line| line.code.contains("#![forbid(unsafe_code)]");
    if !SAFE_ROOTS.contains(&file.path) || file.lines.iter().any(forbids) {
        return Vec::new();
    }
    vec![file.finding(FORBID_RULE, 1, "this crate needs #![forbid(unsafe_code)]")]
}

pub(crate) fn check_comments(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in 0..file.lines.len() {
        for column in find_word(&file.lines[at].code, "unsafe") {
            let Some(what) = kind(&file.lines, at, column) else {
                continue;
            };
            if !has_reason(&file.lines, at) {
                let remedy = format!("{what} without a reason: write it above as `// SAFETY:`");
                findings.push(file.finding(COMMENT_RULE, at + 1, remedy));
            }
        }
    }
    findings
}

/// What the word `unsafe` at this place opens; none for the type of a function pointer.
fn kind(lines: &[Line], at: usize, column: usize) -> Option<&'static str> {
    let same_line = &lines[at].code[column + "unsafe".len()..];
    let below = lines.iter().skip(at + 1).take(2).map(|line| line.code.as_str());
    let text: String = std::iter::once(same_line).chain(below).collect::<Vec<_>>().join(" ");
    let mut words = text.split_whitespace().filter(|word| *word != "extern" && *word != "\"\"");
    let word = words.next().unwrap_or_default();
    match word {
        "impl" => Some("unsafe impl"),
        "trait" => Some("unsafe trait"),
        "fn" => Some("unsafe fn"),
        _ if word.starts_with("impl<") => Some("unsafe impl"),
        _ if word.starts_with("fn(") => None,
        _ if word.starts_with('(') => Some("unsafe attribute"),
        _ => Some("unsafe block"),
    }
}

/// Whether a `SAFETY:` comment or a `# Safety` section stands on this line or above it, with only
/// the rest of the statement, attributes and comments between.
fn has_reason(lines: &[Line], at: usize) -> bool {
    if gives_reason(&lines[at].comment) {
        return true;
    }
    for line in lines[..at].iter().rev() {
        if gives_reason(&line.comment) {
            return true;
        }
        if ends_statement(line) {
            return false;
        }
    }
    false
}

fn gives_reason(comment: &str) -> bool {
    comment.contains("SAFETY:") || comment.contains("# Safety")
}

fn ends_statement(line: &Line) -> bool {
    let code = line.code.trim();
    let blank = code.is_empty() && line.comment.is_empty();
    let attribute = code.starts_with("#[");
    blank || (!attribute && code.ends_with([';', '{', '}', ',']))
}
