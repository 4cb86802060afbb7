//! Load beside the tests: tests that assert a time fail under it.
use crate::run::KillOnDrop;
use anyhow::{Context as _, Result};
use std::process::{Command, Stdio};

/// More than the two cores that the tests are designed for.
const LOOPS: usize = 4;

/// Loops until the process that started the shell is gone, however that ends.
const SCRIPT: &str = "while kill -0 \"$0\" 2> /dev/null; do :; done";

/// Processes that use all available processor time. Dropping this ends them.
pub(crate) struct BusyLoops(Vec<KillOnDrop>);

impl BusyLoops {
    pub(crate) fn start() -> Result<Self> {
        let mut loops = Self(Vec::new());
        for _ in 0..LOOPS {
            let child = Command::new("sh")
                .args(["-c", SCRIPT, &std::process::id().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .context("cannot start a busy loop")?;
            loops.0.push(KillOnDrop(child));
        }
        Ok(loops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc;

    #[test]
    fn the_loops_run_until_they_are_dropped() {
        let loops = BusyLoops::start().unwrap();
        let pids: Vec<u32> = loops.0.iter().map(|kept| kept.0.id()).collect();
        assert_eq!(pids.len(), LOOPS);
        assert!(pids.iter().all(|pid| proc::alive(*pid)));
        drop(loops);
        assert!(!pids.iter().any(|pid| proc::alive(*pid)));
    }
}
