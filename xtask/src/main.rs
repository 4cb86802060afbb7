//! The recipes of this repository: `cargo xtask` lists them.
//!
//! A recipe is one file here. The crate depends on little, so that the first `cargo xtask` of a
//! fresh clone starts soon.
#![forbid(unsafe_code)]

mod bench;
mod docs;
mod lab;
mod limited;
mod metadata;
mod prerequisites;
mod proc;
mod programs;
mod repo;
mod run;
mod soak;
mod steps;
mod stress;
mod test;
mod tidy;

use clap::{CommandFactory, Parser, Subcommand};
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
    /// Measure: throughput, latency and CPU time beside those of others
    Bench(bench::Args),
    /// Check the rules of this repository that no compiler checks
    Tidy(tidy::Args),
    /// Build the API documentation without warnings and check the links of every page
    Docs,
    /// Other people's stacks and hardware, in virtual machines
    Lab(lab::Args),
    /// Long runs that hunt for rare faults, with the seed that replays them
    Soak(soak::Args),
    /// Run one program with a limit, as `cargo xtask test` has cargo do
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
    // All but one run in the repository.
    let repo = repo::Repo::find;
    match recipe {
        Recipe::Test(args) => test::run(&repo()?, &args),
        Recipe::Bench(args) => bench::run(&repo()?, &args),
        Recipe::Tidy(args) => tidy::run(&repo()?, &args),
        Recipe::Docs => docs::run(&repo()?),
        Recipe::Lab(args) => lab::run(&repo()?, &args),
        Recipe::Soak(args) => soak::run(&repo()?, &args),
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

/// One line for each subcommand.
fn listing(prefix: &str, command: &clap::Command) -> String {
    let shown = command.get_subcommands().filter(|recipe| !recipe.is_hide_set());
    let lines = shown.map(|recipe| {
        let about = recipe.get_about().map(ToString::to_string);
        format!("{prefix} {:<6} {}\n", recipe.get_name(), about.unwrap_or_default())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_listed_with_one_line() {
        let text = listing("cargo xtask", &Cli::command());
        let names: Vec<_> =
            text.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
        assert_eq!(names, ["test", "bench", "tidy", "docs", "lab", "soak"]);
        assert!(text.lines().all(|line| line.split_whitespace().count() > 4), "{text}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
