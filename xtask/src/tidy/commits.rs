//! The subject of a commit is short enough to be read in a list.
use super::Finding;
use crate::repo::Repo;
use std::process::Command;

pub(crate) const RULE: &str = "commit-subject";

/// The rule holds for commits after this one.
const BASE: &str = "c62d8cb";

const MOST_CHARACTERS: usize = 72;

/// Finds commits whose subject is too long. Without git, or in a clone that does not reach back to the
/// base, checks nothing.
pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let range = format!("{BASE}..HEAD");
    let output = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", &range])
        .current_dir(repo.root())
        .output();
    match output {
        Ok(output) if output.status.success() => too_long(&String::from_utf8_lossy(&output.stdout)),
        _ => Vec::new(),
    }
}

fn too_long(log: &str) -> Vec<Finding> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter(|(_, subject)| subject.chars().count() > MOST_CHARACTERS);
    let found = long.map(|(hash, subject)| {
        let what = format!("its subject has more than {MOST_CHARACTERS} characters: {subject}");
        Finding::new(&format!("commit {hash}"), 0, RULE, what)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_over_72_characters_is_refused() {
        let fits = format!("1234567 {}\n", "x".repeat(72));
        let long = format!("89abcde {}\n", "y".repeat(73));
        assert_eq!(too_long(&fits), []);
        let found = too_long(&(fits + &long));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "commit 89abcde");
    }
}
