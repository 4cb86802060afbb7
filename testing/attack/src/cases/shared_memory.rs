//! Part 2: shared memory.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::place::User;
use crate::host::process::pass;
use crate::learned::{Own, few_descriptors, half_session, own_session, told};
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked, newcomer};
use crate::wire::{http, shm};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick(
        "2.reopen-read-only",
        "Memory that a peer may only read cannot be opened for writing",
        |h, n| attacked(h, n, &relayed(), reopen),
    ),
    quick("2.fchmod", "One fchmod of a peer does not end later sessions", |h, n| {
        attacked(h, n, &relayed(), fchmod)
    }),
    quick(
        "2.foreign-ring",
        "A process of the same user in another container maps no session's ring",
        |h, n| attacked(h, n, &relayed(), |scene| foreign_ring(scene, None)),
    ),
    quick(
        "2.foreign-ring-own-session",
        "What one session is told lets nobody into another",
        |h, n| {
            attacked(h, n, &relayed(), |scene| {
                let own = own_session(scene, "own", &[])?;
                foreign_ring(scene, Some(&own))
            })
        },
    ),
    quick("2.gid-in-proc", "/proc/net/unix shows nothing that lets a stranger in", |h, n| {
        attacked(h, n, &relayed(), gid_in_proc)
    }),
    quick("2.other-user", "A process of another user is let in nowhere", |h, n| {
        attacked(h, n, &relayed(), |scene| let_in(scene, User::Other))
    }),
    quick(
        "2.same-user-stranger",
        "A process of the same user that was told nothing is let in nowhere",
        |h, n| attacked(h, n, &relayed(), |scene| let_in(scene, User::Same)),
    ),
    quick("2.numbers-random", "Queue pair numbers and keys do not count up", |h, n| {
        attacked(h, n, &relayed(), numbers)
    }),
    quick("2.key-table", "The key table holds nothing that lets a stranger in", |h, n| {
        attacked(h, n, &relayed(), key_table)
    }),
    quick(
        "2.hugetlb",
        "Memory of huge pages is refused, and nobody dies of SIGBUS in it",
        |h, n| attacked(h, n, &relayed(), |scene| inbox(scene, true)),
    ),
    quick("2.sigbus", "SIGBUS in a peer's memory is an error of its session only", |h, n| {
        attacked(h, n, &relayed(), |scene| inbox(scene, false))
    }),
    slow("2.flood-hello", "One peer's connections that said Hello are limited", |h, n| {
        attacked(h, n, &relayed(), |scene| flood(scene, false, 20_000))
    }),
    slow("2.flood-silent", "Connections that never say Hello keep nobody out", |h, n| {
        attacked(h, n, &relayed(), |scene| flood(scene, true, 4_000))
    }),
    quick("2.watches", "One peer's watches are limited", |h, n| {
        attacked(h, n, &relayed(), watches)
    }),
    quick("2.descriptors", "One peer's sessions take few descriptors each", |h, n| {
        attacked(h, n, &relayed(), few_descriptors)
    }),
    quick("2.spec", "docs/spec/shm.md says what a second implementation needs", |h, _| spec(h)),
];

fn relayed() -> Setup {
    Setup { relay: true, ..Setup::over("shm") }
}

/// The mappings of a process that are shared memory of the command and not its own to write.
fn read_only_maps(process: u32) -> Result<Vec<PathBuf>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let shared = maps.lines().filter(|line| line.contains(" r--s ") && line.contains("memfd:"));
    let range = shared.filter_map(|line| line.split(' ').next());
    Ok(range.map(|range| PathBuf::from(format!("/proc/{process}/map_files/{range}"))).collect())
}

/// The inode is what it is, whoever opens it: a peer would do so through its own descriptors.
fn reopen(scene: &mut Scene<'_>) -> Result<Check> {
    let own = own_session(scene, "own", &[])?;
    let maps = read_only_maps(own.source.id())?;
    let mut written = 0;
    for map in &maps {
        let Ok(file) = File::options().read(true).write(true).open(map) else { continue };
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0)?;
        written += usize::from(file.write_all_at(&byte, 0).is_ok());
    }
    let text = format!("{written} of {} read-only mappings could be written", maps.len());
    Ok((written == 0 && !maps.is_empty(), text))
}

fn fchmod(scene: &mut Scene<'_>) -> Result<Check> {
    let own = own_session(scene, "own", &[])?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", own.source.id()))?;
    let shared = maps.lines().filter(|line| line.contains("memfd:catchment"));
    let mut changed = 0;
    for range in shared.filter_map(|line| line.split(' ').next()) {
        let path = format!("/proc/{}/map_files/{range}", own.source.id());
        let nothing = fs::Permissions::from_mode(0o0);
        changed += usize::from(fs::set_permissions(path, nothing).is_ok());
    }
    let (held, text) = newcomer(scene, "later")?;
    Ok((held, format!("{changed} descriptors made useless; {text}")))
}

/// What the session of a bystander was told; the attacker is given its numbers.
fn numbers_of(scene: &Scene<'_>) -> Result<(Value, Value)> {
    let relay = &scene.relays[0];
    Ok((told(relay, "welcome", "/endpoint/qpn")?, told(relay, "welcome", "/ring/rkey")?))
}

fn foreign_ring(scene: &mut Scene<'_>, own: Option<&Own>) -> Result<Check> {
    let (qpn, rkey) = numbers_of(scene)?;
    let mut args = json!({ "qpn": qpn, "rkey": rkey, "callers": [], "secrets": [] });
    if let Some(own) = own {
        let mine = own.told("welcome", "/path/source_gid")?;
        args["callers"] = json!([mine]);
        args["secrets"] = json!([own.told("welcome", "/endpoint/gid")?, mine]);
    }
    let found = scene.attack(User::Same, "foreign_ring", &args)?;
    let rings = found["rings"].as_array().map_or(0, Vec::len);
    Ok((rings == 0, format!("{} tries got {rings} rings of another session", found["tries"])))
}

fn gid_in_proc(scene: &mut Scene<'_>) -> Result<Check> {
    let names = shm::listeners().join(" ");
    let mut shown = 0;
    for relay in &scene.relays {
        for pointer in ["/endpoint/gid", "/path/source_gid"] {
            let gid = told(relay, "welcome", pointer)?;
            shown += usize::from(names.contains(gid.as_str().context("no GID")?));
        }
    }
    Ok((
        shown == 0 && !names.is_empty(),
        format!("{shown} GIDs of sessions stand in /proc/net/unix"),
    ))
}

fn let_in(scene: &mut Scene<'_>, user: User) -> Result<Check> {
    let found = scene.attack(user, "strangers", &json!({}))?;
    let held = found["let_in"] == 0 && found["contexts"] != 0;
    Ok((held, format!("let in {} times at {} sockets", found["let_in"], found["contexts"])))
}

fn numbers(scene: &mut Scene<'_>) -> Result<Check> {
    let mut seen = Vec::new();
    for number in 0..3 {
        let own = own_session(scene, &format!("own{number}"), &[])?;
        let told = |pointer| -> Result<u64> {
            own.told("welcome", pointer)?.as_u64().context("no number")
        };
        seen.push([told("/endpoint/qpn")?, told("/ring/rkey")?]);
    }
    let near = seen.windows(2).filter(|w| w[1][0].abs_diff(w[0][0]) < 16).count();
    let slots = seen.iter().filter(|keys| keys[1] & 0xffff < 64).count();
    let text = format!("queue pair numbers and keys of own sessions: {seen:?}");
    Ok((near == 0 && slots < 3, text))
}

fn key_table(scene: &mut Scene<'_>) -> Result<Check> {
    let (_, rkey) = numbers_of(scene)?;
    let rkey = rkey.as_u64().context("no key")? as u32;
    let own = own_session(scene, "own", &[])?;
    let mut found = 0;
    let maps = read_only_maps(own.source.id())?;
    for map in &maps {
        let mut bytes = Vec::new();
        File::open(map)?.read_to_end(&mut bytes)?;
        found += bytes.chunks_exact(4).filter(|word| **word == rkey.to_le_bytes()).count();
    }
    // Where keys can be read, they must be of no use.
    let (held, text) = foreign_ring(scene, Some(&own))?;
    Ok((
        held,
        format!("the key of another session stands {found} times in {} tables; {text}", maps.len()),
    ))
}

/// Huge pages of the system, while a case needs them.
struct HugePages;

const HUGE_PAGES: &str = "/proc/sys/vm/nr_overcommit_hugepages";

impl HugePages {
    fn promise() -> Self {
        // Without huge pages, such memory cannot even be offered.
        let _ = fs::write(HUGE_PAGES, "8");
        Self
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(HUGE_PAGES, "0");
    }
}

fn inbox(scene: &mut Scene<'_>, huge: bool) -> Result<Check> {
    let _pages = huge.then(HugePages::promise);
    let own = half_session(scene, "own")?;
    let args = json!({
        "own": own.told("welcome", "/path/source_gid")?, "secret": own.told("welcome", "/endpoint/gid")?,
        "qpn": own.told("welcome", "/endpoint/qpn")?, "own_qpn": own.told("connect", "/endpoint/qpn")?,
        "huge": huge,
    });
    let found = scene.attack(User::Same, "inbox", &args)?;
    let taken = found["replies"].as_array().is_some_and(|all| all.contains(&json!(102)));
    let alive = scene.collector.code();
    let text = format!("replies {}, the collector's end {alive:?}", found["replies"]);
    Ok((!taken && alive.is_none(), text))
}

fn flood(scene: &mut Scene<'_>, silent: bool, count: u64) -> Result<Check> {
    let own = own_session(scene, "own", &[])?;
    let args = json!({
        "own": own.told("welcome", "/path/source_gid")?, "secret": own.told("welcome", "/endpoint/gid")?,
        "count": count, "silent": silent, "seconds": 60.0,
    });
    scene.beside((User::Same, "shm_flood", &args), |scene| {
        pass(Duration::from_secs(5));
        let during = scene.collector.usage().fds.saturating_sub(scene.before.fds);
        let page = scene.page.context("no page")?;
        let page = http::get(page, "/metrics").map_or(0, |(status, _)| status);
        let (served, text) = newcomer(scene, "during")?;
        let text = format!("{during} descriptors taken, the page answered {page}; {text}");
        Ok((served && page == 200 && during < 2000, text))
    })
}

fn watches(scene: &mut Scene<'_>) -> Result<Check> {
    let own = own_session(scene, "own", &[])?;
    let args = json!({
        "own": own.told("welcome", "/path/source_gid")?, "secret": own.told("welcome", "/endpoint/gid")?,
        "qpn": own.told("welcome", "/endpoint/qpn")?, "rkey": own.told("welcome", "/ring/rkey")?,
        "count": 2000, "seconds": 1.0,
    });
    let before = scene.collector.usage().fds;
    let mut attack = scene.start_attack(User::Same, "watches", &args)?;
    let mut most = 0;
    while attack.code().is_none() {
        most = most.max(scene.collector.usage().fds.saturating_sub(before));
        pass(Duration::from_millis(20));
    }
    let found = scene.end_attack(&mut attack)?;
    Ok((most < 100, format!("{} watches taken, {most} descriptors more", found["asked"])))
}

fn spec(host: &Host) -> Result<Verdict> {
    let page = fs::read_to_string(host.docs.join("docs/spec/shm.md")).unwrap_or_default();
    let needed = ["CShm", "SCM_RIGHTS", "Hello", "seal", "rkey", "version"];
    let missing: Vec<_> = needed.iter().filter(|word| !page.contains(**word)).collect();
    if page.is_empty() {
        return Ok(Verdict::new(false, "there is no docs/spec/shm.md"));
    }
    Ok(Verdict::new(
        missing.is_empty(),
        format!("{} lines, missing {missing:?}", page.lines().count()),
    ))
}
