//! Chooses few of many cases such that every value of every group occurs.
//!
//! The name of a case is its group and values, `group/value, value/value`: what is tried, between
//! which ends, over which version of IP. The full matrix has every combination of them.
use std::collections::{BTreeMap, BTreeSet};

/// Keeps items, in their order, until every value has occurred in its group, and no value much more
/// often than others.
pub(crate) fn retain<T>(items: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let names: Vec<_> = items.iter().map(|item| values(name(item))).collect();
    let chosen = cover(&names);
    let mut at = 0..;
    items.retain(|_| at.next().is_some_and(|at| chosen.contains(&at)));
}

fn values(name: &str) -> Vec<(&str, &str)> {
    let (group, values) = name.split_once('/').unwrap_or((name, ""));
    let values = values.split('/').flat_map(|part| part.split(", "));
    values.map(|value| (group, value)).collect()
}

/// Chooses greedily: always the case with the most missing values and, among those, the one whose
/// values were chosen least often.
fn cover(cases: &[Vec<(&str, &str)>]) -> BTreeSet<usize> {
    let mut missing: BTreeSet<_> = cases.iter().flatten().collect();
    let mut used = BTreeMap::new();
    let mut chosen = BTreeSet::new();
    while !missing.is_empty() {
        let worth = |at: &usize| {
            let values = &cases[*at];
            let new = values.iter().filter(|value| missing.contains(value));
            let old = values.iter().filter_map(|value| used.get(value));
            (new.count(), usize::MAX - old.sum::<usize>())
        };
        let rest = (0..cases.len()).rev().filter(|at| !chosen.contains(at));
        let Some(best) = rest.max_by_key(worth) else { break };
        for value in &cases[best] {
            missing.remove(value);
            *used.entry(value).or_default() += 1;
        }
        chosen.insert(best);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_group_occurs_and_versions_alternate() {
        let mut names = Vec::new();
        for group in ["ours asks", "ours answers"] {
            for operation in ["READ", "WRITE", "SEND", "SEND with immediate data"] {
                for mtu in [256, 1024, 4096] {
                    for version in ["v4", "v6"] {
                        names.push(format!("{group}/{operation}, MTU {mtu}/{version}"));
                    }
                }
            }
        }
        let all: BTreeSet<_> = names.iter().flat_map(|name| values(name)).collect();
        let mut kept = names.clone();
        retain(&mut kept, |name| name);
        let occur: BTreeSet<_> = kept.iter().flat_map(|name| values(name)).collect();
        assert_eq!(occur, all);
        assert_eq!(kept.len(), 8, "{kept:?}");
        let v6 = kept.iter().filter(|name| name.ends_with("v6"));
        assert_eq!(v6.count(), 4, "{kept:?}");
        assert!(kept.is_sorted_by_key(|name| names.iter().position(|other| other == name)));
    }

    #[test]
    fn a_case_that_is_alone_in_something_is_kept() {
        let mut names = vec!["suite/conformance/one", "suite/conformance/two", "demo"];
        retain(&mut names, |name| name);
        assert_eq!(names, ["suite/conformance/one", "suite/conformance/two", "demo"]);
    }
}
