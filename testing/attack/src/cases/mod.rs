//! The cases: one for each sentence of what must not happen, at least.
mod commands;
mod damage;
mod disk;
mod identity;
mod messages;
mod network;
mod packets;
mod pages;
mod pauses;
mod service;
mod shared_memory;
mod startup;

use crate::host::Host;
use crate::report::Verdict;
use anyhow::Result;

/// A case. Its name begins with the part that it belongs to.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What must hold.
    pub(crate) sentence: &'static str,
    /// Whether it takes but a moment.
    pub(crate) quick: bool,
    pub(crate) play: Play,
}

type Play = fn(&Host, &str) -> Result<Verdict>;

const fn quick(name: &'static str, sentence: &'static str, play: Play) -> Case {
    Case { name, sentence, quick: true, play }
}

const fn slow(name: &'static str, sentence: &'static str, play: Play) -> Case {
    Case { name, sentence, quick: false, play }
}

pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let parts: [&'static [Case]; 12] = [
        damage::CASES,
        shared_memory::CASES,
        packets::CASES,
        network::CASES,
        service::CASES,
        identity::CASES,
        pages::CASES,
        pauses::CASES,
        disk::CASES,
        startup::CASES,
        commands::CASES,
        messages::CASES,
    ];
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_committed_lists_have_every_case_and_no_other() {
        let names: BTreeSet<_> = all().map(|case| case.name.to_owned()).collect();
        for list in ["c62d8cb", "now"] {
            let path = format!("{}/lists/{list}.jsonl", env!("CARGO_MANIFEST_DIR"));
            let listed = crate::report::read(path.as_ref()).unwrap();
            assert_eq!(listed.into_keys().collect::<BTreeSet<_>>(), names, "{list}");
        }
    }

    #[test]
    fn cases_have_names_of_their_own_that_begin_with_their_part() {
        let names: BTreeSet<_> = all().map(|case| case.name).collect();
        assert_eq!(names.len(), all().count());
        assert!(names.len() >= 60, "{} cases", names.len());
        for case in all() {
            let (part, rest) = case.name.split_once('.').unwrap();
            assert!(["1", "2", "3", "4", "5"].contains(&part) && !rest.is_empty(), "{}", case.name);
            assert!(case.sentence.len() > 20, "{}", case.name);
        }
    }
}
