//! Whether this is a container, and what it may do and use.
use super::Check;
use super::facts::{Facts, binary};

const CAPABILITIES: [(&str, u32); 3] = [("NET_ADMIN", 12), ("IPC_LOCK", 14), ("SYS_ADMIN", 21)];
/// Less than this is less than a collector with a few sources takes.
const MEMORY_LEAST: u64 = 1 << 30;
/// cgroup v1 writes about this much for "no limit".
const NO_LIMIT: u64 = 1 << 60;

fn kind(facts: &Facts) -> Option<&'static str> {
    let cgroup = facts.proc("self/cgroup").unwrap_or_default();
    if cgroup.contains("kubepods") || facts.has_file("var/run/secrets/kubernetes.io") {
        Some("a pod of Kubernetes")
    } else if facts.has_file("run/.containerenv") {
        Some("a container of podman")
    } else if facts.has_file(".dockerenv") {
        Some("a container of Docker")
    } else if cgroup.contains("/lxc/") || cgroup.contains("machine.slice") {
        Some("a container")
    } else {
        None
    }
}

/// Whether user ids are mapped: root here is not root on the host.
fn has_user_namespace(facts: &Facts) -> bool {
    let map = facts.proc("self/uid_map").unwrap_or_default();
    let mut fields = map.split_whitespace();
    let whole = [Some("0"), Some("0"), Some("4294967295")];
    !map.is_empty() && whole.into_iter().any(|field| fields.next() != field)
}

pub(super) fn container(facts: &Facts) -> Check {
    let has = CAPABILITIES
        .iter()
        .filter(|(_, number)| facts.has_capability(*number))
        .map(|(name, _)| *name);
    let has: Vec<&str> = has.collect();
    let has = if has.is_empty() { "none that matters".to_owned() } else { has.join(", ") };
    let user = if has_user_namespace(facts) { ", in a user namespace" } else { "" };
    let netns = std::fs::read_link(facts.proc.join("self/ns/net"));
    let netns =
        netns.map_or(String::new(), |link| format!(", network namespace {}", link.display()));
    let what = kind(facts).unwrap_or("no container that it shows");
    Check::ok("container", format!("{what}{user}; capabilities: {has}{netns}"))
}

/// Processors and memory of the control group, where they are limited.
pub(super) fn limits(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(cpus) = cpus(facts)
        && cpus < 2.0
    {
        checks.push(Check::note(
            "cpu-limit",
            format!(
                "the control group may use {cpus:.2} processors, then it is stopped for a while"
            ),
            "frames wait meanwhile: give it 2 or more (podman --cpus, Kubernetes limits.cpu)",
        ));
    }
    if let Some(memory) = memory(facts) {
        let seen = format!("the control group may use {}", binary(memory));
        let remedy = "a collector's rings take as much as its sources ask for (--ring-bytes limits \
                      each): give it more, or it is killed";
        checks.push(if memory < MEMORY_LEAST {
            Check::note("memory-limit", seen, remedy)
        } else {
            Check::ok("memory-limit", seen)
        });
    }
    checks
}

fn cpus(facts: &Facts) -> Option<f64> {
    let ratio = |quota: &str, period: &str| -> Option<f64> {
        let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    if let Some(both) = facts.sys("fs/cgroup/cpu.max") {
        let (quota, period) = both.split_once(' ')?;
        return ratio(quota, period);
    }
    let quota = facts.sys("fs/cgroup/cpu/cpu.cfs_quota_us")?;
    ratio(&quota, &facts.sys("fs/cgroup/cpu/cpu.cfs_period_us")?)
}

fn memory(facts: &Facts) -> Option<u64> {
    let limit = facts
        .sys("fs/cgroup/memory.max")
        .or_else(|| facts.sys("fs/cgroup/memory/memory.limit_in_bytes"))?;
    limit.parse().ok().filter(|limit| *limit < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Level;
    use crate::checks::facts::Machine;

    #[test]
    fn containers_are_recognised() {
        for (files, expected) in [
            (vec![], None),
            (vec![("run/.containerenv", "")], Some("a container of podman")),
            (vec![(".dockerenv", "")], Some("a container of Docker")),
            (
                vec![("proc/self/cgroup", "0::/kubepods/burstable/pod1/x")],
                Some("a pod of Kubernetes"),
            ),
        ] {
            assert_eq!(kind(&Machine::with(&files).facts), expected);
        }
        let mapped = "         0       1000          1\n";
        let machine = Machine::with(&[("proc/self/uid_map", mapped)]);
        assert!(container(&machine.facts).seen.contains("in a user namespace"));
        let whole = "         0          0 4294967295\n";
        let machine = Machine::with(&[("proc/self/uid_map", whole)]);
        assert!(!container(&machine.facts).seen.contains("user namespace"));
    }

    #[test]
    fn limits_of_both_versions_of_control_groups_are_read() {
        let two = [
            ("sys/fs/cgroup/cpu.max", "25000 100000\n"),
            ("sys/fs/cgroup/memory.max", "33554432\n"),
        ];
        let one = [
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n"),
        ];
        for files in [&two[..], &one[..]] {
            let checks = limits(&Machine::with(files).facts);
            let seen: Vec<&str> = checks.iter().map(|check| check.seen.as_str()).collect();
            assert_eq!(checks.len(), 2, "{seen:?}");
            assert!(checks.iter().all(|check| check.level == Level::Note));
            assert!(seen[0].contains("0.25 processors"), "{seen:?}");
            assert!(seen[1].contains("32 MiB"), "{seen:?}");
        }
        let free =
            [("sys/fs/cgroup/cpu.max", "max 100000\n"), ("sys/fs/cgroup/memory.max", "max\n")];
        let machine = Machine::with(&free);
        assert!(limits(&machine.facts).is_empty());
        let free = [
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert!(limits(&Machine::with(&free).facts).is_empty());
    }
}
