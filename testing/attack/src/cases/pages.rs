//! Part 4: the page and the metrics; what pages of the documentation promise.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::place::User;
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked};
use crate::wire::http;
use anyhow::{Context as _, Result};
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

pub(super) const CASES: &[Case] = &[
    quick("4.page-slow", "256 slow readers do not blind the next one", |h, n| {
        attacked(h, n, &Setup::over("shm"), |scene| page(scene, 256))
    }),
    quick("4.page-flood", "One address's connections to the page are limited", |h, n| {
        attacked(h, n, &Setup::over("shm"), |scene| page(scene, 3000))
    }),
    slow("4.page-unfinished", "Requests that are not finished end after 5 s", |h, n| {
        attacked(h, n, &Setup::over("shm"), unfinished)
    }),
    quick(
        "5.page-names",
        "The page answers under the host names that dashboard.md names",
        |h, n| attacked(h, n, &Setup::over("shm"), host_names),
    ),
    quick("5.docs-options", "Every option in README and guides exists", |h, _| options(h)),
    quick(
        "5.readme-needs",
        "The README says which Rust, linker, time and disk a build takes",
        |h, _| needs(h),
    ),
    quick(
        "5.readme-numbers",
        "Every measured number in README and guides names its command",
        |h, _| numbers(h),
    ),
    quick(
        "5.docs-promises",
        "Each case that SECURITY.md names for a promise exists and holds",
        |h, _| promises(h),
    ),
];

/// Another reader, at another address, is answered while these hold the page.
fn page(scene: &mut Scene<'_>, count: u64) -> Result<Check> {
    let page = scene.page.context("no page")?;
    let args = json!({ "address": page, "count": count, "seconds": 60.0 });
    let before = scene.collector.usage().fds;
    scene.beside((User::Other, "slow_readers", &args), |scene| {
        let open = scene.collector.usage().fds.saturating_sub(before);
        let answer = http::get_from(Ipv4Addr::new(127, 0, 0, 2), page, "/metrics");
        let text = match &answer {
            Ok((status, _)) => format!("{status}"),
            Err(error) => format!("{error:#}"),
        };
        let held = answer.is_ok_and(|(status, _)| status == 200);
        Ok((held, format!("{open} of {count} readers are held, the next one was answered {text}")))
    })
}

fn unfinished(scene: &mut Scene<'_>) -> Result<Check> {
    let page = scene.page.context("no page")?;
    let args = json!({ "address": page, "count": 40, "seconds": 8.0 });
    let found = scene.attack(User::Other, "unfinished_requests", &args)?;
    let held = found["open"] == 0 && found["opened"] == 40;
    Ok((held, format!("{} of {} still open after 8 s", found["open"], found["opened"])))
}

fn host_names(scene: &mut Scene<'_>) -> Result<Check> {
    let page = scene.page.context("no page")?;
    let status = |host: &str| {
        let stream = crate::wire::session::connect(page)?;
        http::ask(stream, &format!("{host}:{}", page.port()), "/metrics").map(|(status, _)| status)
    };
    let text = fs::read_to_string(scene.host.docs.join("docs/guide/dashboard.md"))?;
    let (local, foreign) = (status("localhost")?, status("evil.example")?);
    // "names configured for it" needs a way to configure them.
    let help = scene.host.catchment().args(["collect", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let promised = !text.contains("names configured for it") || help.contains("-host");
    let text = format!(
        "localhost {local}, a foreign name {foreign}, configured names possible: {promised}"
    );
    Ok((local == 200 && foreign == 421 && promised, text))
}

/// Lines of commands in fenced blocks of a page, joined where they are continued.
fn commands(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let text = text.replace("\\\n", " ");
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced && let Some(at) = line.find("catchment ") {
            let line = line.split(" #").next().unwrap_or(line);
            found.extend(line.get(at..).map(str::to_owned));
        }
    }
    found
}

fn options(host: &Host) -> Result<Verdict> {
    let mut pages = vec![host.docs.join("README.md")];
    let guides = fs::read_dir(host.docs.join("docs/guide"))?;
    pages.extend(guides.flatten().map(|entry| entry.path()));
    let (mut unknown, mut seen) = (Vec::new(), 0);
    for line in pages.iter().flat_map(|page| commands(page)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(command) =
            words.get(1).filter(|word| word.chars().all(|c| c.is_ascii_lowercase()))
        else {
            continue;
        };
        let mut help = vec![*command];
        help.extend(words.get(2).filter(|_| ["bench", "kv"].contains(command)));
        let output = host.catchment().args(&help).arg("--help").output()?;
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        seen += 1;
        let options = words.iter().filter(|word| word.starts_with("--"));
        let missing = options.filter(|word| !help.contains(word.split('=').next().unwrap_or(word)));
        unknown.extend(missing.map(|word| format!("{command} {word}")));
        if !output.status.success() {
            unknown.push((*command).to_owned());
        }
    }
    unknown.dedup();
    Ok(Verdict::new(
        unknown.is_empty() && seen > 10,
        format!("{seen} commands, unknown: {unknown:?}"),
    ))
}

fn needs(host: &Host) -> Result<Verdict> {
    let readme = fs::read_to_string(host.docs.join("README.md"))?;
    let words = ["1.89", "rustup", "linker", "minutes", "GB"];
    let missing: Vec<_> = words.into_iter().filter(|word| !readme.contains(word)).collect();
    Ok(Verdict::new(missing.is_empty(), format!("the README lacks {missing:?}")))
}

/// Sections with a rate or a share that name no command.
fn numbers(host: &Host) -> Result<Verdict> {
    let mut pages = vec![host.docs.join("README.md")];
    pages.extend(fs::read_dir(host.docs.join("docs/guide"))?.flatten().map(|entry| entry.path()));
    let mut bare = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page)?;
        let measured = |part: &&str| {
            ["GB/s", "MB/s", "Gbit/s", " % of a core", "frames/s"].iter().any(|unit| {
                part.match_indices(unit)
                    .any(|(at, _)| part[..at].trim_end().ends_with(|c: char| c.is_ascii_digit()))
            })
        };
        let named = |part: &str| part.contains("catchment ") || part.contains("cargo xtask");
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let parts = text.split("\n## ").filter(measured).filter(|part| !named(part));
        bare.extend(
            parts.map(|part| format!("{name}: {}", part.lines().next().unwrap_or_default())),
        );
    }
    Ok(Verdict::new(bare.is_empty(), format!("numbers without a command: {bare:?}")))
}

fn promises(host: &Host) -> Result<Verdict> {
    let page = fs::read_to_string(host.docs.join("SECURITY.md")).unwrap_or_default();
    let known: Vec<&str> = super::all().map(|case| case.name).collect();
    let quoted = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> = quoted
        .filter(|word| {
            let part = word.split_once('.').map(|(part, _)| part);
            part.is_some_and(|part| part.len() == 1 && part.chars().all(|c| c.is_ascii_digit()))
        })
        .collect();
    let list =
        crate::report::read(&host.docs.join("testing/attack/lists/now.jsonl")).unwrap_or_default();
    let wrong: Vec<_> = named
        .iter()
        .filter(|name| !known.contains(name) || list.get(**name) != Some(&true))
        .collect();
    let text =
        format!("{} cases are named; unknown, or not held by the list: {wrong:?}", named.len());
    Ok(Verdict::new(named.len() >= 20 && wrong.is_empty(), text))
}
