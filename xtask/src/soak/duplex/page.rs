//! The page of results.

use super::Report;
use crate::repo::Repo;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;

/// Writes docs/results/soak-duplex.md.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(repo: &Repo, report: &Report) -> Result<()> {
    let path = repo.root().join("docs/results/soak-duplex.md");
    fs::write(&path, page(report)).with_context(|| path.display().to_string())?;
    println!("written: {}", path.display());
    Ok(())
}

fn page(report: &Report) -> String {
    let mut rows = String::new();
    for (minutes, mib) in report.memory.tenths() {
        let _ = writeln!(rows, "| {minutes:.1} | {mib:.1} |");
    }
    format!(
        "# Duplex channels: clients that come, go and are killed

`cargo xtask soak duplex --minutes {:.0} --provider {} --clients {} --record`, release build:

```text
{report}
```

Every client is a process. It sends messages of 0 to 16,384 bytes without waiting for the answers, and the
server answers each; both sides compare every byte with what it must be. Now and then a client WRITEs to
the server's memory and READs it back. At random moments a client is killed with `kill -9`, or ends and
says goodbye; another one takes its place. At the end the server must have as many objects of its device,
descriptors, mappings and threads as before the first client came, its count of clients that ended well
must be ours, and its memory must not grow: at most 1 MiB, or 1 MiB an hour, after the first quarter.

Resident memory of the server, shared memory included, as the median of each tenth of the run:

| until minute | MiB |
|---|---|
{rows}",
        report.length.as_secs_f64() / 60.0,
        report.provider,
        report.clients,
    )
}
