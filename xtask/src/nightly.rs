//! `cargo xtask nightly`: tests of the suite with the counts that the papers' requirements ask for.
//!
//! Each test multiplies its amount by `CATCHMENT_TEST_SCALE` and says what it did; what was asked for is
//! compared with that. They are the programs of `cargo xtask test --only test`: nothing else is built.
use crate::repo::Repo;
use crate::run::{self, Show};
use anyhow::{Context as _, Result, bail, ensure};
use std::time::{Duration, Instant};

/// Which counts to reach.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only of this requirement, such as S1.2; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// List the counts and their commands
    #[arg(long)]
    list: bool,
}

/// Tests that do what a requirement counts.
struct Count {
    id: &'static str,
    /// Each of them does as many, and says so.
    least: u64,
    scale: u32,
    package: &'static str,
    /// Arguments of cargo that choose the programs.
    targets: &'static str,
    filter: &'static str,
    /// How often it is said: by mode, provider and test.
    times: usize,
}

const MILLION: u64 = 1_000_000;

const COUNTS: &[Count] = &[
    Count {
        id: "S1.2",
        least: MILLION,
        scale: 10,
        package: "catchment-transfer",
        targets: "--test shm --test roce",
        filter: "s1_2_",
        times: 3,
    },
    Count {
        id: "S1.10",
        least: MILLION,
        scale: 10,
        package: "catchment-transfer",
        targets: "--test shm --test roce",
        filter: "s1_10_",
        times: 3,
    },
    Count {
        id: "S1.10",
        least: MILLION,
        scale: 10,
        package: "catchment-mechanisms",
        targets: "--test shm",
        filter: "s1_10_",
        times: 1,
    },
    Count {
        id: "S1.20",
        least: MILLION,
        scale: 50,
        package: "catchment-transfer",
        targets: "--test shm --test roce",
        filter: "s1_20_",
        times: 2,
    },
    Count {
        id: "S1.20",
        least: MILLION,
        scale: 200,
        package: "catchment-mechanisms",
        targets: "--test shm --test roce",
        filter: "with_the_queues_of_the_paper",
        times: 4,
    },
    Count {
        id: "S1.31",
        least: 10 * MILLION,
        scale: 100,
        package: "catchment-transfer",
        targets: "--test shm",
        filter: "s1_31_",
        times: 2,
    },
    Count {
        id: "S3.4",
        least: MILLION,
        scale: 10,
        package: "catchment-provider-shm",
        targets: "--test conformance",
        filter: "keys_are_unique",
        times: 1,
    },
    Count {
        id: "S3.4",
        least: MILLION,
        scale: 10,
        package: "catchment-provider-roce",
        targets: "--test conformance_ipv4",
        filter: "keys_are_unique",
        times: 1,
    },
    Count {
        id: "S3.12",
        least: MILLION,
        scale: 50,
        package: "catchment-duplex",
        targets: "--test duplex",
        filter: "s3_12_no_wake_up_is_lost",
        times: 1,
    },
    Count {
        id: "S5.2",
        least: 65_536,
        scale: 128,
        package: "catchment-agent",
        targets: "--test many",
        filter: "s5_2_",
        times: 1,
    },
    Count {
        id: "S5.7",
        least: 10 * MILLION,
        scale: 100,
        package: "catchment-agent",
        targets: "--test shared",
        filter: "s5_7_",
        times: 1,
    },
    Count {
        id: "S5.8",
        least: MILLION,
        scale: 20,
        package: "catchment-agent",
        targets: "--test messages",
        filter: "s5_8_",
        times: 1,
    },
    Count {
        id: "S5.24",
        least: MILLION,
        scale: 170,
        package: "catchment-kv",
        targets: "--test histories",
        filter: "s5_24_processes",
        times: 1,
    },
    Count {
        id: "S5.25",
        least: MILLION,
        scale: 50,
        package: "catchment-cli",
        targets: "--test cli",
        filter: "s5_25_redis_does",
        times: 2,
    },
];

/// Time after which the tests of one count are considered hung.
const LIMIT: Duration = Duration::from_secs(60 * 60);

impl Count {
    fn words(&self) -> Vec<&'static str> {
        let mut words = vec!["test", "--package", self.package];
        words.extend(self.targets.split(' '));
        words.extend([self.filter, "--", "--nocapture"]);
        words
    }

    fn command(&self) -> String {
        format!("CATCHMENT_TEST_SCALE={} cargo {}", self.scale, self.words().join(" "))
    }

    /// Runs the tests, and returns what they said they did.
    fn reach(&self, repo: &Repo) -> Result<Vec<String>> {
        let mut command = run::cargo(repo.root(), &self.words());
        command.env("CATCHMENT_TEST_SCALE", self.scale.to_string());
        let finished = run::finish(&mut command, LIMIT, Show::All)?;
        let stdout = finished.stdout.clone();
        let tally = run::counted(&command, finished)?;
        ensure!(tally.failed == 0, "{} tests failed: {}", tally.failed, tally.names_of_failures());
        self.demand(&stdout)
    }

    /// Returns the lines that say what was done of this, of which there are enough, each with enough.
    fn demand(&self, stdout: &str) -> Result<Vec<String>> {
        let mark = format!("did {}: ", self.id);
        let mut done = Vec::new();
        let mut enough = 0;
        for line in stdout.lines() {
            let Some((_, said)) = line.split_once(&mark) else { continue };
            let number = said.split(' ').next().unwrap_or_default();
            let number: u64 = number.parse().with_context(|| format!("no number: {line}"))?;
            enough += usize::from(number >= self.least);
            done.push(said.to_owned());
        }
        let (times, least) = (self.times, self.least);
        if enough < times {
            bail!("{enough} of {times} did {least} or more: {done:?}");
        }
        Ok(done)
    }
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let chosen = chosen(&args.only)?;
    if args.list {
        chosen.iter().for_each(|count| println!("{:<6} {}", count.id, count.command()));
        return Ok(());
    }
    let mut lines = Vec::new();
    let mut failed = 0;
    for count in chosen {
        println!("\n=== {}: {}", count.id, count.command());
        let start = Instant::now();
        let outcome = match count.reach(repo) {
            Ok(done) => done.join("; "),
            Err(error) => {
                failed += 1;
                format!("FAILED: {error:#}")
            }
        };
        let seconds = start.elapsed().as_secs();
        lines.push(format!("{:<6} {seconds:>5} s  {}: {outcome}", count.id, count.package));
    }
    println!("\n{}", lines.join("\n"));
    ensure!(failed == 0, "{failed} counts were not reached");
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Count>> {
    for id in only {
        let known = COUNTS.iter().any(|count| count.id == id);
        ensure!(known, "no count is of {id:?}: cargo xtask nightly --list");
    }
    let is_chosen = |count: &&Count| only.is_empty() || only.iter().any(|id| id == count.id);
    Ok(COUNTS.iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_say_is_compared_with_what_was_asked() {
        let count = Count {
            id: "S1.2",
            least: 100,
            scale: 10,
            package: "p",
            targets: "--test shm",
            filter: "s1_2_",
            times: 2,
        };
        let both = "test a ... did S1.2: 100 blocks, copied\nok\ndid S1.2: 120 blocks in place\n";
        assert_eq!(count.demand(both).unwrap(), ["100 blocks, copied", "120 blocks in place"]);
        let refused = |text: &str| count.demand(text).unwrap_err().to_string();
        assert!(refused("did S1.20: 100 blocks\ndid S1.2: 100 x").starts_with("1 of 2 did 100"));
        assert!(refused("did S1.2: 100 x\ndid S1.2: 99 x").starts_with("1 of 2"));
        assert!(refused("did S1.2: many").contains("no number"));
    }

    #[test]
    fn counts_are_chosen_by_id_and_named_in_the_table() {
        assert_eq!(chosen(&["S1.10".to_owned()]).unwrap().len(), 2);
        assert!(chosen(&["S1.1".to_owned()]).is_err());
        let repo = Repo::find().unwrap();
        let pages = ["docs/reference/requirements.md", "docs/results/nightly.md"];
        let pages = pages.map(|page| repo.read(page).unwrap());
        for count in COUNTS {
            let row = format!("| {} |", count.id);
            let command = format!("`cargo xtask nightly --only {}`", count.id);
            let mut lines = pages.iter().flat_map(|page| page.lines());
            let found = lines.any(|line| line.starts_with(&row) && line.contains(&command));
            assert!(found, "{command}");
        }
    }
}
