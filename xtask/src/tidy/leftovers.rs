//! What is left over from writing: unfinished code, silenced lints and tests, unexplained waits.

use super::{Finding, SourceFile, Surroundings};
use crate::rust_text::{Line, has_word};

pub(crate) const RULE: &str = "leftover";
pub(crate) const ALLOW_RULE: &str = "allow-reason";
pub(crate) const SLEEP_RULE: &str = "sleep-reason";
const IN_COMMENTS: &[&str] = &["TODO", "FIXME", "XXX"];

const IN_CODE: &[(&str, &str)] = &[
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "remove it"),
    ("#[ignore", "a test that does not run proves nothing: fix or delete it"),
    ("assert!(true", "this cannot fail: assert what must hold"),
    (".is_ok() ||", "an assertion on both outcomes cannot fail: decide which it is"),
];

pub(crate) fn check(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    if file.is_rust() {
        let numbered = file.lines.iter().enumerate();
        return numbered.flat_map(|(at, line)| in_rust(file, at + 1, line)).collect();
    }
    if !file.path.ends_with(".lock") {
        let numbered = file.text.lines().enumerate();
        return numbered.flat_map(|(at, line)| in_text(file, at + 1, line)).collect();
    }
    Vec::new()
}

fn in_rust(file: &SourceFile<'_>, number: usize, line: &Line) -> Vec<Finding> {
    let mut findings = in_text(file, number, &line.comment);
    let found = IN_CODE.iter().filter(|(word, _)| has_word(&line.code, word));
    findings.extend(
        found.map(|(word, remedy)| file.finding(RULE, number, format!("{word}: {remedy}"))),
    );
    findings
}

fn in_text(file: &SourceFile<'_>, number: usize, text: &str) -> Vec<Finding> {
    let found = IN_COMMENTS.iter().filter(|word| has_word(text, word));
    let what = |word: &&str| format!("{word}: do it now, or open an issue and remove this");
    found.map(|word| file.finding(RULE, number, what(word))).collect()
}

pub(crate) fn check_allow(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    let silences = |line: &Line| {
        let code = line.code.trim_start();
        code.starts_with('#') && (has_word(code, "allow(") || has_word(code, "expect("))
    };
    let places = (0..file.lines.len()).filter(|at| silences(&file.lines[*at]));
    let bare = places.filter(|at| !attribute(&file.lines[*at..]).contains("reason ="));
    let what = "a lint is switched off without `reason = \"...\"`";
    bare.map(|at| file.finding(ALLOW_RULE, at + 1, what)).collect()
}

fn attribute(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        text.push_str(line.code.trim());
        if text.matches('[').count() <= text.matches(']').count() {
            break;
        }
    }
    text
}

/// Finds sleeps that no comment explains, on the same line or just above.
pub(crate) fn check_sleep(file: &SourceFile<'_>, _: &Surroundings<'_>) -> Vec<Finding> {
    let sleeps = |at: &usize| has_word(&file.lines[*at].code, "thread::sleep(");
    let explained = |at: usize| {
        let above = at.checked_sub(1).map(|above| &file.lines[above]);
        let comment_above =
            above.is_some_and(|line| line.code.trim().is_empty() && has_comment(line));
        has_comment(&file.lines[at]) || comment_above
    };
    let bare = (0..file.lines.len()).filter(sleeps).filter(|at| !explained(*at));
    let what = "say in a comment what this sleep waits for and why nothing better tells it";
    bare.map(|at| file.finding(SLEEP_RULE, at + 1, what)).collect()
}

fn has_comment(line: &Line) -> bool {
    !line.comment.is_empty()
}
