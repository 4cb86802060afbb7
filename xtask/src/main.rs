//! The recipes of this repository: `cargo xtask` lists them.
//!
//! Each recipe is one file here. The crate has few dependencies, so that the first `cargo xtask` of a
//! fresh clone starts quickly.
#![forbid(unsafe_code)]

mod ahead;
mod attack;
mod bench;
mod deny;
mod docs;
mod fuzz;
mod lab;
mod limited;
mod metadata;
mod nightly;
mod passed;
mod prerequisites;
mod proc;
mod programs;
mod repo;
mod requirements;
mod run;
mod soak;
mod steps;
mod stress;
mod test;
mod tidy;

use clap::builder::StyledStr;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

/// The recipes of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    recipe: Option<Recipe>,
}

#[derive(Subcommand)]
enum Recipe {
    /// Everything that continuous integration runs, in at most 25 minutes on two cores
    Test(test::Args),
    /// Measure throughput, latency and CPU time beside those of others
    Bench(bench::Args),
    /// Check the rules of this repository that no compiler checks
    Tidy(tidy::Args),
    /// The requirements of the papers, how far each holds, and the tests that show it
    Requirements(requirements::Args),
    /// Build the API documentation without warnings and check the links of every page
    Docs,
    /// Other people's stacks and hardware, in virtual machines
    Lab(lab::Args),
    /// Attacks and faults of use, played from outside against a build of the command
    Attack(attack::Args),
    /// Long runs that look for rare faults, with the seed that replays them
    Soak(soak::Args),
    /// Inputs that are made up, for whatever reads bytes of others; with a nightly compiler
    Fuzz(fuzz::Args),
    /// Tests with the counts that the papers ask for, for the night
    Nightly(nightly::Args),
    /// Run one program with a limit, for `cargo xtask test`
    #[command(hide = true)]
    Limited(limited::Args),
}

fn main() -> ExitCode {
    let Some(recipe) = Cli::parse().recipe else {
        print!("{}", listing("cargo xtask", &Cli::command()));
        return ExitCode::SUCCESS;
    };
    match perform(recipe) {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

fn perform(recipe: Recipe) -> anyhow::Result<ExitCode> {
    // All but `limited` need the repository.
    let repo = repo::Repo::find;
    match recipe {
        Recipe::Test(args) => test::run(&repo()?, &args),
        Recipe::Bench(args) => bench::run(&repo()?, &args),
        Recipe::Tidy(args) => tidy::run(&repo()?, &args),
        Recipe::Requirements(args) => requirements::run(&repo()?, &args),
        Recipe::Docs => docs::run(&repo()?),
        Recipe::Lab(args) => lab::run(&repo()?, &args),
        Recipe::Attack(args) => attack::run(&repo()?, &args),
        Recipe::Soak(args) => soak::run(&repo()?, &args),
        Recipe::Fuzz(args) => fuzz::run(&repo()?, &args),
        Recipe::Nightly(args) => nightly::run(&repo()?, &args),
        Recipe::Limited(args) => return limited::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn report(error: &anyhow::Error) {
    eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}

/// Returns one line for each subcommand.
fn listing(prefix: &str, command: &clap::Command) -> String {
    let shown = command.get_subcommands().filter(|recipe| !recipe.is_hide_set());
    lines(prefix, shown.map(|recipe| (recipe.get_name(), recipe.get_about())).collect())
}

/// Returns one line for each value of an argument.
fn value_listing<V: ValueEnum>(prefix: &str) -> String {
    let values: Vec<_> = V::value_variants().iter().filter_map(V::to_possible_value).collect();
    lines(prefix, values.iter().map(|value| (value.get_name(), value.get_help())).collect())
}

fn lines(prefix: &str, named: Vec<(&str, Option<&StyledStr>)>) -> String {
    let width = named.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, about): (&str, Option<&StyledStr>)| {
        format!("{prefix} {name:<width$} {}\n", about.map(ToString::to_string).unwrap_or_default())
    };
    named.into_iter().map(line).collect()
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_listed_with_one_line() {
        let text = listing("cargo xtask", &Cli::command());
        let names: Vec<_> =
            text.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
        assert_eq!(
            names,
            [
                "test", "bench", "tidy", "requirements", "docs", "lab", "attack", "soak", "fuzz",
                "nightly"
            ]
        );
        assert!(text.lines().all(|line| line.split_whitespace().count() > 4), "{text}");
    }

    #[test]
    fn an_unknown_measurement_is_refused_with_the_known_ones() {
        let refused = Cli::try_parse_from(["xtask", "bench", "speed"]).err().unwrap().to_string();
        assert!(refused.contains("'speed'") && refused.contains("transfer, "), "{refused}");
    }

    #[test]
    fn every_part_of_the_lab_is_listed() {
        let listing = value_listing::<lab::Part>("cargo xtask lab");
        for part in ["rxe", "verbs", "wan", "all", "table", "guest"] {
            assert!(listing.contains(&format!("cargo xtask lab {part} ")), "{listing}");
        }
        assert_eq!(listing.lines().count(), 6);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
