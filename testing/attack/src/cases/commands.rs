//! Part 5: refusals that will not go away, and arguments that cannot be.
use super::identity::certificates;
use super::{Case, quick};
use crate::host::Host;
use crate::host::process::Process;
use crate::learned::nobody;
use crate::report::Verdict;
use crate::scene::{Scene, Setup, collect_command};
use anyhow::{Context as _, Result};
use std::process::Command;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick("5.refused-authority", "A certificate of another authority ends send with 3", |h, n| {
        tls(h, n, "source", Other::Authority, &["certificate"])
    }),
    quick("5.refused-expired", "An expired certificate ends send with 3", |h, n| {
        tls(h, n, "expired", Other::Expired, &["expired"])
    }),
    quick("5.refused-plain", "Plain against TLS ends send with 3 and names --cert", |h, n| {
        tls(h, n, "", Other::Plain, &["--cert"])
    }),
    quick("5.refused-tls", "TLS against plain ends send with 3 and says so", tls_against_plain),
    quick(
        "5.refused-name",
        "A name in use ends send with 3, the reason and the remedy",
        name_in_use,
    ),
    quick("5.refused-require", "--require that cannot be met ends send with 3", require),
    quick("5.error-dashboard", "--dashboard localhost:1 names the reason that is", |h, n| {
        let words =
            ["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--dashboard", "localhost:1"];
        wrong(h, n, &words, &[2, 5], &["localhost:1"], &["invalid socket address"])
    }),
    quick("5.error-rate", "--rate 1e9 names the reason that is", |h, n| {
        let words = ["send", "--input", "synthetic", "--rate", "1e9", "ADDRESS"];
        wrong(h, n, &words, &[2], &["1e9"], &["above 0"])
    }),
    quick(
        "5.error-ring-small",
        "--ring-bytes 3 is refused at once with what is possible",
        |h, n| {
            let words =
                ["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--ring-bytes", "3"];
            wrong(h, n, &words, &[2], &["3", "ring"], &[])
        },
    ),
    quick(
        "5.error-ring-large",
        "--ring-bytes 9999TiB is refused at once with what is possible",
        |h, n| {
            let words =
                ["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--ring-bytes", "9999TiB"];
            wrong(h, n, &words, &[2], &["9999TiB"], &["above 0"])
        },
    ),
    quick("5.error-http", "An address with http:// names the reason that is", |h, n| {
        let words = ["send", "--input", "synthetic", "http://127.0.0.1:7117"];
        wrong(h, n, &words, &[2], &["http://"], &["IPv6"])
    }),
    quick("5.options-out-null", "--out with --sink null is refused", |h, n| {
        let words = ["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--out", "frames"];
        wrong(h, n, &words, &[2], &["--out", "--sink"], &[])
    }),
    quick("5.options-loop-stdin", "--loop with - is refused", |h, n| {
        let words = ["send", "--input", "-", "--format", "16x16:gray", "--loop", "ADDRESS"];
        wrong(h, n, &words, &[2], &["--loop"], &[])
    }),
    quick("5.options-fault-shm", "--fault over shm is refused", |h, n| {
        let words =
            ["send", "--input", "synthetic", "--provider", "shm", "--fault", "drop=0.1", "ADDRESS"];
        wrong(h, n, &words, &[2], &["--fault"], &[])
    }),
    quick("5.device-dash", "Device names do not begin with -", |h, n| {
        let words = ["send", "--input", "synthetic", "--device=-cam", "ADDRESS"];
        wrong(h, n, &words, &[2], &["-cam"], &[])
    }),
    quick("5.hints-paste", "Hints name an address that can be dialled, and --insecure", hints),
    quick(
        "5.odd-name",
        "A file that is called raw:odd-name is written as inputs.md says",
        odd_name,
    ),
    quick("5.every-frame", "inputs.md says how to ask for every frame", |h, _| every_frame(h)),
    quick("5.no-route", "explain --json says no_route as cli.md has it", no_route),
    quick("5.docs-reserve", "collect.md says what --keep-frames does to the reserve", |h, _| {
        let page = std::fs::read_to_string(h.docs.join("docs/guide/collect.md"))?;
        let told =
            page.contains("keep-frames") && page.contains("oldest") && page.contains("nearly full");
        Ok(Verdict::new(told, format!("told: {told}")))
    }),
];

/// A command that must end by itself with one of these codes, naming these words and not those.
fn wrong(
    host: &Host,
    name: &str,
    words: &[&str],
    codes: &[i32],
    named: &[&str],
    unnamed: &[&str],
) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let address = nobody()?.to_string();
    let words = words.iter().map(|word| if *word == "ADDRESS" { &address } else { *word });
    let mut command = host.catchment();
    command.args(words).current_dir(&folder.path).env("TMPDIR", &folder.path);
    let mut process = Process::start(&mut command, &folder.path, "command")?;
    let code = process.end_within(Duration::from_secs(3));
    let said = process.stderr();
    let first: String = said.lines().take(4).collect::<Vec<_>>().join(" ");
    let held = code.is_some_and(|code| codes.contains(&code))
        && named.iter().all(|word| first.contains(word))
        && !unnamed.iter().any(|word| said.contains(word));
    let end = code.map_or("went on".to_owned(), |code| format!("ended with {code}"));
    Ok(Verdict::new(held, format!("{end}: {first}")))
}

/// What does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    Authority,
    Expired,
    Plain,
}

/// Runs `send` to its end, or gives up.
fn ends(scene: &Scene<'_>, words: &[String], device: &str) -> Result<(Option<i32>, String)> {
    let mut command: Command = scene.host.catchment();
    command.args(["send", "--input", "synthetic:16x16:gray", "--frames", "3", "--device", device]);
    let mut source =
        scene.start_source(command.args(words).arg(scene.address.to_string()), device)?;
    let code = source.end_within(Duration::from_secs(6));
    Ok((code, source.stderr()))
}

fn judged((code, said): (Option<i32>, String), words: &[&str]) -> Verdict {
    let named = words.iter().all(|word| said.contains(word));
    let waits = said.contains("waiting for a collector");
    let end = code.map_or("tries on".to_owned(), |code| format!("ended with {code}"));
    Verdict::new(code == Some(3) && named && !waits, format!("{end}: {said}"))
}

fn tls(host: &Host, name: &str, who: &str, other: Other, words: &[&str]) -> Result<Verdict> {
    let own = certificates(host, &format!("{name}-certs"))?;
    let setup = Setup { bystanders: 0, collect: own.words("collector"), ..Setup::over("shm") };
    let scene = Scene::start(host, name, &setup)?;
    let foreign = certificates(host, &format!("{name}-foreign"))?;
    let options = match other {
        Other::Authority => foreign.words(who),
        Other::Expired => own.expired(who)?,
        Other::Plain => Vec::new(),
    };
    Ok(judged(ends(&scene, &options, "cam")?, words))
}

fn tls_against_plain(host: &Host, name: &str) -> Result<Verdict> {
    let own = certificates(host, &format!("{name}-certs"))?;
    let scene = Scene::start(host, name, &Setup { bystanders: 0, ..Setup::over("shm") })?;
    Ok(judged(ends(&scene, &own.words("source"), "cam")?, &["TLS"]))
}

fn name_in_use(host: &Host, name: &str) -> Result<Verdict> {
    let mut scene = Scene::start(host, name, &Setup::over("shm"))?;
    let verdict = judged(ends(&scene, &[], "by0")?, &["by0", "another"]);
    let faults = scene.finish()?;
    Ok(Verdict::new(verdict.held && faults.is_empty(), verdict.detail))
}

fn require(host: &Host, name: &str) -> Result<Verdict> {
    let scene = Scene::start(
        host,
        name,
        &Setup { bystanders: 0, ..Setup::over("shm") }.collect(&["--forbid", "shm"]),
    )?;
    let words = ["--require", "shm"].map(str::to_owned);
    Ok(judged(ends(&scene, &words, "cam")?, &["shm"]))
}

fn hints(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let setup = Setup { bystanders: 0, ..Setup::over("shm") };
    let given = collect_command(host, &setup, &folder);
    let words: Vec<_> =
        given.get_args().filter(|word| *word != "--json").map(ToOwned::to_owned).collect();
    let words =
        words.into_iter().map(|word| if word == "127.0.0.1:0" { "0.0.0.0:0".into() } else { word });
    let mut command = host.catchment();
    command.args(words).arg("--insecure");
    let mut collector = Process::start(&mut command, &folder.path, "collect")?;
    crate::host::process::wait_until("the hint is printed", || {
        collector.said().contains("Ctrl-C")
    })?;
    collector.stop()?;
    let said = collector.said();
    let hint = said.lines().find(|line| line.contains("catchment send")).context("no hint")?;
    let words = &hint[hint.find("catchment send").unwrap_or(0)..];
    let local = words.contains("localhost:") || words.contains("127.0.0.1:");
    let held = !words.contains("0.0.0.0") && (local || words.contains("--insecure"));
    Ok(Verdict::new(held, hint))
}

fn odd_name(host: &Host, name: &str) -> Result<Verdict> {
    let scene = Scene::start(host, name, &Setup { bystanders: 0, ..Setup::over("shm") })?;
    let page = std::fs::read_to_string(host.docs.join("docs/guide/inputs.md"))?;
    let input =
        if page.contains("raw:./raw:odd-name") { "raw:./raw:odd-name" } else { "./raw:odd-name" };
    std::fs::write(scene.folder.join("raw:odd-name"), [7; 512])?;
    let mut command = host.catchment();
    command.args(["send", "--input", input, "--format", "16x16:gray", "--device", "cam"]);
    command.args(["--wait", "5"]).arg(scene.address.to_string()).current_dir(&scene.folder.path);
    let mut source = scene.start_source(&mut command, "send")?;
    let code = source.finish()?;
    Ok(Verdict::new(code == 0, format!("ended with {code}: {}", source.last_line())))
}

fn every_frame(host: &Host) -> Result<Verdict> {
    let page = std::fs::read_to_string(host.docs.join("docs/guide/inputs.md"))?;
    let Some(at) = page.find("every frame") else {
        return Ok(Verdict::new(true, "inputs.md promises no such thing"));
    };
    let around = &page[at.saturating_sub(300)..(at + 400).min(page.len())];
    let help = host.catchment().args(["send", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let options = around.split(['`', ' ', '\n']).filter(|word| word.starts_with("--"));
    let known = options.filter(|word| help.contains(*word)).count();
    let asks = around.contains("ask\n  for every frame") || around.contains("ask for every frame");
    Ok(Verdict::new(known > 0 || !asks, format!("{known} options of send are named there")))
}

fn no_route(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let lonely = catchment_netns::Namespace::new()?;
    let mut command = host.catchment();
    command.args(["explain", "--json", "10.9.8.7"]);
    let start = || Process::start(&mut command, &folder.path, "explain");
    let mut explain = lonely.run(start)??;
    explain.finish()?;
    let said = explain.stdout();
    let found: serde_json::Value = serde_json::from_str(said.trim()).unwrap_or_default();
    let page = std::fs::read_to_string(host.docs.join("docs/reference/cli.md"))?;
    let promised = page.contains("`no_route`");
    let held = found["no_route"].is_string() == promised;
    Ok(Verdict::new(
        held,
        format!("no_route is {}, cli.md names it: {promised}", found["no_route"]),
    ))
}
