//! `cargo xtask fuzz`: inputs that libFuzzer makes up, for whatever reads bytes of a peer, a store, an application or a user.
//!
//! Inputs that reach something new are kept below `target`, and the next run goes on from them; the corpus in the repository
//! has those that a person named. An input that breaks something is kept, with the command that plays it again.
use crate::repo::Repo;
use crate::{metadata, proc, run};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const FOLDER: &str = "testing/fuzz";

/// Which inputs to make up, and for how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The targets; all if none is named
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many targets run at once
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// List the targets
    #[arg(long)]
    list: bool,
}

/// Something that reads bytes.
struct Target {
    name: &'static str,
    /// Of `testing/fuzz/corpus`.
    corpus: &'static str,
    /// Options of libFuzzer.
    options: &'static [&'static str],
}

impl Target {
    const fn new(name: &'static str, corpus: &'static str) -> Self {
        Self { name, corpus, options: &[] }
    }
}

const TARGETS: &[Target] = &[
    Target::new("session_decoder", "session"),
    Target::new("session_machines", "session"),
    Target::new("roce_packet", "roce"),
    Target::new("roce_responder", "roce_responder"),
    // Threads of its contexts live on from input to input.
    Target { name: "shm_handshake", corpus: "shm_handshake", options: &["-detect_leaks=0"] },
    Target::new("admission_datagram", "admission"),
    Target::new("controller_config", "controller_config"),
    Target::new("store_answer", "store_answer"),
    Target::new("drum_host", "drum_host"),
    Target::new("agent_entry", "agent_entry"),
    Target::new("agent_peer", "agent_peer"),
    Target::new("agent_inband", "agent_inband"),
    Target::new("agent_slot", "agent_slot"),
];

/// Where things are.
struct Places {
    repository: PathBuf,
    programs: PathBuf,
    kept: PathBuf,
}

/// What a run has done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    executions: u64,
    new_inputs: u64,
    /// Edges between blocks of code that some input takes.
    edges: u64,
    /// The longest time of one input, in seconds of a clock: of a machine that stood still, too.
    slowest_s: u64,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let chosen = chosen(&args.targets)?;
    if args.list {
        chosen.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    ensure!(args.at_once > 0, "--at-once 0 runs nothing: give at least 1");
    let places = build(repo)?;
    let (waiting, failures) = (Mutex::new(chosen.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = waiting.lock().ok().and_then(|mut waiting| waiting.next());
            let Some(target) = next else { return };
            if let Err(error) = target.fuzz(&places, args.seconds)
                && let Ok(mut failures) = failures.lock()
            {
                failures.push(format!("{}: {error:#}", target.name));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.at_once {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>> {
    for name in names {
        let known = TARGETS.iter().any(|target| target.name == name);
        ensure!(known, "no target is called {name:?}: cargo xtask fuzz --list");
    }
    let is_chosen =
        |target: &&Target| names.is_empty() || names.iter().any(|name| name == target.name);
    Ok(TARGETS.iter().filter(is_chosen).collect())
}

/// Builds all targets, with the address sanitizer.
fn build(repo: &Repo) -> Result<Places> {
    let mut version = run::nightly_cargo(repo.root(), &["fuzz", "--version"]);
    let is_there = version.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success();
    ensure!(
        is_there,
        "type: rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz --locked"
    );
    run::succeed(&mut run::nightly_cargo(repo.root(), &["fuzz", "build", "--fuzz-dir", FOLDER]))?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    Ok(Places {
        repository: repo.root().to_path_buf(),
        programs: repo.root().join(FOLDER).join("target").join(triple).join("release"),
        kept: metadata::target_folder(repo)?.join("fuzz"),
    })
}

impl Target {
    /// Runs for so long; an error is an input that breaks something.
    fn fuzz(&self, places: &Places, seconds: u64) -> Result<()> {
        let own = places.kept.join(self.name);
        let (inputs, broken, log) = (own.join("inputs"), own.join("broken"), own.join("log"));
        [&inputs, &broken].into_iter().try_for_each(fs::create_dir_all)?;
        let known = inputs_in(&broken)?;
        let corpus = places.repository.join(FOLDER).join("corpus").join(self.corpus);
        let output = File::create(&log)?;
        let mut command = Command::new(places.programs.join(self.name));
        command
            .args([&inputs, &corpus])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", broken.display()))
            .arg("-print_final_stats=1")
            .args(self.options)
            .current_dir(&places.repository)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let (start, mut cpu) = (Instant::now(), Duration::ZERO);
        let mut child = command.spawn().with_context(|| run::shown(&command))?;
        // It ends by itself; an input that takes longer than 20 minutes breaks it.
        let limit = Duration::from_secs(seconds + 30 * 60);
        let status = proc::poll_until(limit, || {
            cpu = proc::cpu_time(child.id()).unwrap_or(cpu);
            Ok(child.try_wait()?)
        })?;
        let Some(status) = status else {
            child.kill()?;
            bail!("still running after {} s, killed: {}", limit.as_secs(), log.display());
        };
        let done = done(&fs::read_to_string(&log)?)?;
        let found = inputs_in(&broken)?.into_iter().find(|file| !known.contains(file));
        let row = json!({
            "what": "fuzz",
            "target": self.name,
            "seconds": start.elapsed().as_secs(),
            "cpu_s": cpu.as_secs(),
            "executions": done.executions,
            "edges": done.edges,
            "slowest_s": done.slowest_s,
            "new_inputs": done.new_inputs,
            "finding": found.as_ref().map(|file| file.display().to_string()),
        });
        println!("{row}");
        match found {
            None if status.success() => Ok(()),
            None => bail!("it ended with {status} and kept no input: {}", log.display()),
            Some(file) => bail!(
                "an input breaks it: cargo +nightly fuzz run --fuzz-dir {FOLDER} {} {}",
                self.name,
                file.display()
            ),
        }
    }
}

/// Lists the inputs that broke something; one that was only slow did not.
fn inputs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut broken = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("slow-unit-") {
            broken.push(entry.path());
        }
    }
    Ok(broken)
}

/// Reads what libFuzzer says.
fn done(log: &str) -> Result<Done> {
    let number = |mark: &str| {
        let after = |line: &str| -> Option<u64> {
            line.split_once(mark)?.1.split_whitespace().next()?.parse().ok()
        };
        log.lines().filter_map(after).next_back()
    };
    let executions = number("stat::number_of_executed_units:");
    Ok(Done {
        executions: executions.with_context(|| {
            format!("it did not say what it did: {}", log.lines().last().unwrap_or("nothing"))
        })?,
        new_inputs: number("stat::new_units_added:").unwrap_or(0),
        edges: number(" cov: ").unwrap_or(0),
        slowest_s: number("stat::slowest_unit_time_sec:").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_run_and_told_of() {
        let repo = Repo::find().unwrap();
        let manifest = repo.read("testing/fuzz/Cargo.toml").unwrap();
        let readme = repo.read("testing/fuzz/README.md").unwrap();
        let bins = manifest.matches("[[bin]]").count();
        assert_eq!(bins, TARGETS.len());
        for Target { name, corpus, .. } in TARGETS {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(readme.contains(&format!("| `{name}` |")), "{name}");
            assert!(repo.root().join("testing/fuzz/corpus").join(corpus).is_dir(), "{corpus}");
        }
        assert!(chosen(&["agent_entry".to_owned()]).is_ok_and(|chosen| chosen.len() == 1));
        let refused = chosen(&["agents".to_owned()]).err().unwrap().to_string();
        assert!(refused.contains("\"agents\"") && refused.contains("--list"), "{refused}");
    }

    #[test]
    fn what_libfuzzer_says_is_read() {
        let log = "#1187\tNEW    cov: 90 ft: 4 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #9999\tREDUCE cov: 93 ft: 4 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            stat::number_of_executed_units: 10000\n\
            stat::new_units_added:          7\n\
            stat::slowest_unit_time_sec:    2\n";
        let wanted = Done { executions: 10_000, new_inputs: 7, edges: 93, slowest_s: 2 };
        assert_eq!(done(log).unwrap(), wanted);
        assert!(
            done("ERROR: libFuzzer: out of memory").unwrap_err().to_string().contains("memory")
        );
    }
}
