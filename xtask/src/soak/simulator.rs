//! `soak roce`, `soak control` and `soak drum`: the simulator of `testing/sim`, seed after seed.
use crate::repo::Repo;
use crate::{programs, run};
use anyhow::Result;
use std::process::Command;

/// Runs this command of the simulator's release build with these options.
pub(super) fn run(repo: &Repo, what: &str, options: &[String]) -> Result<()> {
    let mut command = Command::new(programs::built(repo, programs::SIM)?);
    command.arg(what).args(with_first(options)).current_dir(repo.root());
    let status = command.status()?;
    run::demand_success(&command, status)
}

/// Adds a new first seed if the options name none.
fn with_first(options: &[String]) -> Vec<String> {
    let mut words = options.to_vec();
    let names_seed = |word: &String| matches!(word.split('=').next(), Some("--first" | "--seed"));
    if !options.iter().any(names_seed) {
        // Short enough to type, and sparse enough that runs do not overlap.
        words.push(format!("--first={}", fastrand::u64(..) >> 16));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_options_reach_the_program() {
        let words =
            |text: &str| with_first(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(words("--first=7 --seeds=300"), ["--first=7", "--seeds=300"]);
        assert_eq!(words("--seed 12 --pcap=a.pcap"), ["--seed", "12", "--pcap=a.pcap"]);
        assert_ne!(words("--seeds=1"), words("--seeds=1"));
    }
}
