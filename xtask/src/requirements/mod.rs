//! `cargo xtask requirements`: which requirements of the papers hold, and the tests that hold them.
//!
//! What is printed is the table of `docs/reference/requirements.md`, nothing else. It is checked first:
//! each test exists and names its requirement. That each one passed in the last `cargo xtask test` is
//! checked by a step of that command.
mod facts;
mod sources;

use crate::passed;
use crate::repo::Repo;
use anyhow::{Result, bail, ensure};
use facts::{Fact, State};
use serde_json::json;
use sources::Functions;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const PAGE: &str = "docs/reference/requirements.md";

/// The requirements of these papers, and how many each has.
const PAPERS: &[(&str, u32)] = &[("S1", 35), ("S2", 22), ("S3", 16), ("S5", 27)];

/// Most requirements that one test may stand for.
const IDS_OF_A_TEST_MAX: usize = 3;

/// How to show them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// One JSON object on a line for each requirement
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let facts = checked(repo)?;
    for fact in &facts {
        println!("{}", if args.json { object(fact) } else { line(fact) });
    }
    if !args.json {
        let count = |state| facts.iter().filter(|fact| fact.state == state).count();
        let [all, part, none] = [State::True, State::Partly, State::Not].map(count);
        println!("{all} true, {part} partly, {none} not");
    }
    Ok(())
}

fn object(fact: &Fact) -> String {
    json!({
        "id": fact.id,
        "state": fact.state.word(),
        "tests": fact.tests,
        "command": fact.command,
        "note": fact.note,
    })
    .to_string()
}

fn line(fact: &Fact) -> String {
    format!("{:<6} {:<6} {}", fact.id, fact.state.word(), fact.note)
}

/// Reads the page and demands that it follows its rules.
fn checked(repo: &Repo) -> Result<Vec<Fact>> {
    let (facts, faults) = read(repo)?;
    ensure!(faults.is_empty(), "{PAGE}:\n  {}", faults.join("\n  "));
    Ok(facts)
}

/// Returns what is wrong with the page and with the tests that it names.
pub(crate) fn find_faults(repo: &Repo) -> Result<Vec<String>> {
    Ok(read(repo)?.1)
}

fn read(repo: &Repo) -> Result<(Vec<Fact>, Vec<String>)> {
    let facts = facts::read(&repo.read(PAGE)?)?;
    let mut faults = faults(&facts);
    let functions = Functions::named_in(repo, &facts)?;
    for fact in &facts {
        faults.extend(fact.tests.iter().filter_map(|test| functions.fault(test, &fact.id)));
    }
    Ok((facts, faults))
}

/// Returns what is wrong with the table by itself.
fn faults(facts: &[Fact]) -> Vec<String> {
    let mut faults = Vec::new();
    let seen: Vec<_> = facts.iter().map(|fact| fact.id.as_str()).collect();
    if seen != ids() {
        faults.push(format!("the ids are not {} in this order: {seen:?}", ids().join(", ")));
    }
    let mut of_test: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for fact in facts {
        for test in &fact.tests {
            of_test.entry(test).or_default().insert(&fact.id);
        }
        if fact.state == State::True && fact.tests.is_empty() {
            faults.push(format!("{} is true, and no test shows it", fact.id));
        }
    }
    for (test, ids) in of_test {
        if ids.len() > IDS_OF_A_TEST_MAX {
            faults.push(format!("{test} stands for {} ids: {ids:?}", ids.len()));
        }
    }
    faults
}

fn ids() -> Vec<String> {
    PAPERS
        .iter()
        .flat_map(|(paper, count)| (1..=*count).map(move |n| format!("{paper}.{n}")))
        .collect()
}

/// Demands that every test that a requirement names has passed in the last `cargo xtask test`. With
/// `packages` only those of these.
pub(crate) fn demand_passed(repo: &Repo, packages: &[String]) -> Result<()> {
    let facts = checked(repo)?;
    let mut wanted: BTreeSet<_> = facts.iter().flat_map(|fact| &fact.tests).collect();
    if !packages.is_empty() {
        wanted.retain(|test| packages.iter().any(|one| test.starts_with(&format!("{one}::"))));
        println!("only those of {}", packages.join(", "));
    }
    let passed = passed::all(repo)?;
    let missing: Vec<_> = wanted.iter().filter(|test| !passed.contains(**test)).collect();
    if missing.is_empty() {
        println!("{} tests of {} requirements have passed", wanted.len(), facts.len());
        return Ok(());
    }
    let lines: String = missing.iter().map(|test| format!("\n  {test}")).collect();
    bail!("named in {PAGE}, and not among the {} tests that passed:{lines}", passed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(id: &str, state: State, tests: &[&str]) -> Fact {
        Fact {
            id: id.to_owned(),
            state,
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            command: String::new(),
            note: String::new(),
        }
    }

    #[test]
    fn every_requirement_names_tests_that_exist_and_say_its_id() {
        let facts = checked(&Repo::find().unwrap()).unwrap();
        assert_eq!(facts.len(), ids().len());
        assert!(facts.iter().map(|fact| fact.tests.len()).sum::<usize>() > 50);
    }

    #[test]
    fn ids_that_lack_tests_and_tests_for_all_are_faults() {
        let found = faults(&[fact("S1.1", State::True, &[]), fact("S1.1", State::Not, &[])]);
        assert!(found[0].starts_with("the ids are not S1.1, S1.2,"), "{found:?}");
        assert!(found[1].contains("S1.1 is true, and no test"), "{found:?}");
        let all: Vec<_> = ids().iter().map(|id| fact(id, State::Partly, &["a::b"])).collect();
        let found = faults(&all);
        assert_eq!(found.len(), 1, "{found:?}");
        let stands = format!("a::b stands for {} ids", ids().len());
        assert!(found[0].starts_with(&stands), "{found:?}");
    }

    #[test]
    fn a_line_of_json_has_five_fields() {
        let shown = object(&fact("S1.2", State::Partly, &["a::b"]));
        let value: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 5);
        assert_eq!((&value["id"], &value["state"]), (&json!("S1.2"), &json!("partly")));
        assert_eq!(value["tests"], json!(["a::b"]));
    }
}
