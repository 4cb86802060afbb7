//! System calls of other processes, counted by strace.
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Runs `during` while the system calls of these processes are counted, by name; not counted
/// where there is no strace.
pub(super) fn count<T>(
    processes: &[u32],
    during: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<BTreeMap<String, u64>>)> {
    let summary = std::env::temp_dir().join(format!("catchment-calls-{}", std::process::id()));
    let mut command = Command::new("strace");
    command
        .args(["-f", "-c", "-U", "calls,name", "-o"])
        .arg(&summary);
    for process in processes {
        command.args(["-p", &process.to_string()]);
    }
    let strace = command.stderr(Stdio::piped()).spawn();
    let mut strace = match strace {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((during()?, None)),
        other => other.context("cannot start strace")?,
    };
    let said = strace
        .stderr
        .take()
        .context("strace has no standard error")?;
    let mut said = BufReader::new(said).lines();
    // It says so once for each process, when all of its threads are traced.
    for _ in processes {
        let line = said.next().context("strace ended at once")??;
        ensure!(line.contains("attached"), "strace cannot trace: {line}");
    }
    let result = during();
    let pid = i32::try_from(strace.id()).ok().and_then(Pid::from_raw);
    rustix::process::kill_process(pid.context("strace has no id")?, Signal::INT)?;
    strace.wait()?;
    let text = std::fs::read_to_string(&summary).context("the summary of strace")?;
    let _ = std::fs::remove_file(&summary);
    Ok((result?, Some(parse(&text))))
}

/// Reads lines of a number and a name.
fn parse(summary: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (calls, name) = (words.next()?.parse().ok()?, words.next()?);
        (name != "total").then(|| (name.to_owned(), calls))
    };
    summary.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_by_name() {
        let summary = "    calls syscall\n--------- ----------------\n       12 futex\n        3 write\n\
                       --------- ----------------\n       15 total\n";
        let expected = [("futex", 12), ("write", 3)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(parse(summary), BTreeMap::from(expected));
    }
}
