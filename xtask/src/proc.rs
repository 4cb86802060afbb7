//! Other processes, as seen in `/proc`.
//!
//! Every state may change as soon as it is read: a process that ends meanwhile counts as having
//! nothing.
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What a process holds, with counts: descriptors by what they refer to, such as `socket` or
/// `memfd:ring`, and mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint(BTreeMap<String, usize>);

impl Footprint {
    /// Returns the footprint of `pid` without descriptors of files in the folder `except`, which are
    /// opened and closed during normal work.
    pub(crate) fn of(pid: u32, except: &Path) -> Self {
        let mut held = BTreeMap::from([("mappings of memfds".to_owned(), memfd_mappings(pid))]);
        for target in descriptor_targets(pid) {
            if !Path::new(&target).starts_with(except) {
                *held.entry(format!("descriptors of kind {}", kind(&target))).or_insert(0) += 1;
            }
        }
        Self(held)
    }

    pub(crate) fn max(mut self, other: &Self) -> Self {
        for (what, count) in &other.0 {
            let mine = self.0.entry(what.clone()).or_insert(0);
            *mine = (*mine).max(*count);
        }
        self
    }

    /// Lists what exceeds `baseline`.
    pub(crate) fn beyond(&self, baseline: &Self) -> Vec<String> {
        let before = |what: &str| baseline.0.get(what).copied().unwrap_or(0);
        let more = self.0.iter().filter(|(what, count)| **count > before(what));
        more.map(|(what, count)| format!("{count} {what} (before: {})", before(what))).collect()
    }
}

fn descriptor_targets(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.to_string_lossy().into_owned()).collect()
}

/// Strips the number from `socket:[123]` and `pipe:[9]`; memfds and files keep their name.
fn kind(target: &str) -> String {
    let name = target.strip_prefix('/').filter(|name| name.starts_with("memfd:"));
    match (name, target.split_once(":[")) {
        (Some(memfd), _) => memfd.trim_end_matches(" (deleted)").to_owned(),
        (None, Some((class, rest))) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
            class.to_owned()
        }
        (None, _) => target.to_owned(),
    }
}

fn memfd_mappings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

/// Returns whether `pid` runs; a zombie does not.
pub(crate) fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

pub(crate) fn gone_within(pid: u32, limit: Duration) -> bool {
    poll_until(limit, || Ok((!alive(pid)).then_some(()))).is_ok_and(|gone| gone.is_some())
}

/// Polls until `look` finds something, or the limit has passed.
pub(crate) fn poll_until<T>(
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let start = Instant::now();
    loop {
        let found = look()?;
        if found.is_some() || start.elapsed() > limit {
            return Ok(found);
        }
        // Other processes and the files that they write give no event.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the state letter and the parent of `pid`.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// Returns the processor time of `pid` so far, of all of its threads.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // User and system time, in what the kernel tells programs is a hundredth of a second.
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let parents: BTreeMap<u32, u32> =
        all().into_iter().filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, p)| **p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// Returns the running processes that were started with `variable=value` in their environment, with
/// their command lines. Children inherit it, so this finds orphans too.
pub(crate) fn with_environment(variable: &str, value: &str) -> Vec<(u32, String)> {
    let wanted = format!("{variable}={value}");
    let marked = all().into_iter().filter(|pid| alive(*pid) && has_entry(*pid, &wanted));
    marked.map(|pid| (pid, command_line(pid))).collect()
}

fn has_entry(pid: u32, wanted: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

fn command_line(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ").trim_end().to_owned()
}

/// Lists the threads of `pid` and its descendants, one per line: name (of the test, if a test program
/// runs several), state, and the kernel function in which it waits.
pub(crate) fn threads_below(pid: u32) -> String {
    let mut text = String::new();
    for pid in std::iter::once(pid).chain(descendants(pid)) {
        text += &format!("  process {pid}: {}\n", command_line(pid));
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let (name, stat, waits) = (read("comm"), read("stat"), read("wchan"));
            let state = stat.rsplit_once(") ").map_or("?", |(_, rest)| &rest[..1]);
            text += &format!("    {:<16} {state} {}\n", name.trim(), waits.trim());
        }
    }
    text
}

pub(crate) fn signal(pid: u32, name: &str) -> Result<()> {
    // `kill` is a built-in of every shell; the program is not installed everywhere.
    let output = Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()])
        .output()
        .context("cannot run sh")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot signal process {pid}: {}", message.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Command, Stdio};

    #[test]
    fn kinds_lose_what_differs_from_run_to_run() {
        assert_eq!(kind("socket:[4321]"), "socket");
        assert_eq!(kind("anon_inode:[eventfd]"), "anon_inode:[eventfd]");
        assert_eq!(kind("/memfd:ring (deleted)"), "memfd:ring");
        assert_eq!(kind("/dev/null"), "/dev/null");
    }

    #[test]
    fn an_open_file_shows_unless_it_is_excepted() {
        let pid = std::process::id();
        let name = std::env::current_exe().unwrap();
        let none = Path::new("/nowhere");
        let before = Footprint::of(pid, none);
        let file = File::open(&name).unwrap();
        let more = Footprint::of(pid, none).beyond(&before).join("; ");
        assert!(more.contains(&*name.to_string_lossy()), "{more}");
        let excepted = Footprint::of(pid, name.parent().unwrap()).beyond(&before).join("; ");
        assert!(!excepted.contains(&*name.to_string_lossy()), "{excepted}");
        drop(file);
    }

    #[test]
    fn more_mappings_are_beyond_and_max_covers_them() {
        let [few, many] =
            [1, 2].map(|count| Footprint([("mappings of memfds".to_owned(), count)].into()));
        assert_eq!(many.beyond(&few), ["2 mappings of memfds (before: 1)"]);
        assert_eq!(many.beyond(&few.clone().max(&many)), Vec::<String>::new());
        assert_eq!(few.beyond(&many), Vec::<String>::new());
    }

    #[test]
    fn a_marked_child_is_found_until_it_is_killed() {
        let value = format!("proc-test-{}", std::process::id());
        let mut child = Command::new("sh")
            .args(["-c", "sleep 4321 & wait"])
            .env("CATCHMENT_PROC_TEST", &value)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A process that is about to run another program shows no environment for a moment.
        let start = Instant::now();
        let (below, marked) = loop {
            let below = descendants(child.id());
            let marked: Vec<_> = with_environment("CATCHMENT_PROC_TEST", &value)
                .into_iter()
                .map(|(pid, _)| pid)
                .collect();
            if below.first().is_some_and(|pid| marked.contains(pid)) {
                break (below, marked);
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{marked:?}");
        };
        assert!(marked.contains(&child.id()), "{marked:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!alive(child.id()));
        signal(below[0], "KILL").unwrap();
        assert!(gone_within(below[0], Duration::from_secs(5)));
        assert_eq!(with_environment("CATCHMENT_PROC_TEST", &value), []);
    }
}
