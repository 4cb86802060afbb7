//! Leftovers: unfinished places, assertions that cannot fail, unexplained sleeps. Clippy finds `todo!`,
//! `dbg!` and the like; an ignored test fails `cargo xtask test`.
use super::words::{has_word, split_comment};
use super::{Finding, SourceFile};

pub(super) const RULE: &str = "leftover";
pub(super) const SLEEP_RULE: &str = "sleep-reason";

const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX"];

pub(super) fn check(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    if file.path.ends_with(".lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        let (code, comment) = if file.is_rust() { split_comment(line) } else { ("", line) };
        for word in UNFINISHED.iter().filter(|word| has_word(comment, word)) {
            let what = format!("{word}: do it now, or open an issue and remove this");
            findings.push(file.finding(RULE, number, what));
        }
        if code.split(".is_ok()").skip(1).any(|rest| rest.trim_start().starts_with("||")) {
            let what = "an assertion of both outcomes cannot fail: decide which is right";
            findings.push(file.finding(RULE, number, what));
        }
    }
    findings
}

/// Finds sleeps without an explanation on the same line or just above.
pub(super) fn check_sleep(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let mut explained_above = false;
    let unexplained = file.lines().filter(|(_, line)| {
        let (code, comment) = split_comment(line);
        let explained = explained_above || !comment.is_empty();
        explained_above = code.trim().is_empty() && !comment.is_empty();
        let mut calls = code.split("thread::sleep").skip(1);
        file.is_rust() && !explained && calls.any(|rest| rest.starts_with('('))
    });
    let what = "explain in a comment what this sleep waits for and why there is no event for it";
    file.findings(SLEEP_RULE, unexplained.map(|(line, _)| (line, what)))
}
