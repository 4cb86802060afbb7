//! Every command of the README and the guides does what it says, as it is written there.
//!
//! Each page runs in a network namespace whose loopback interface has the addresses of the pages, and in
//! a folder with the files that they name. A collector or server goes on until the next one of its page, or
//! its end; all else runs to its end. Blocks are `sh` (run), `text` (what a command above it prints), or of a language in
//! [`OTHER_LANGUAGES`]; commands that cannot run here are in [`LEFT_OUT`], with the reason.
use crate::common::{Kept, clip, ffmpeg, run, signal};
use catchment_netns::{Namespace, wait_until, with_privilege};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Addresses and names of the hosts on the pages.
const ADDRESSES: [&str; 3] = ["10.0.0.1/24", "10.0.0.2/24", "192.168.1.10/24"];

const OTHER_LANGUAGES: &[(&str, &str)] = &[
    (
        "rust",
        "examples of `catchment` and `catchment-application` have these lines, and tests of them compare",
    ),
    ("yaml", "a pod; its commands have the options of the commands that run"),
];

/// Beginnings of commands that do not run here.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "cargo ",
        "builds and runs the whole: the steps `release`, `demo` and `test` of the suite do, and tests of an example's crate",
    ),
    ("alias catchment=", "the program that Cargo built for this test is in the path"),
    ("cat frames/cam0/* | ffplay", "needs a screen"),
    ("ssh ", "needs a second host"),
    ("podman ", "needs an image with the program"),
    ("catchment send --input rtsp://", "needs a camera"),
    ("openssl pkcs12", "makes a file for a browser, with a program that the tests do not need"),
    ("sudo apt-get ", "installs programs"),
    (
        "curl ",
        "installs Rust, or asks a controller, as tests of that do with a client of their own",
    ),
];

/// Exit codes other than 0 that are right here.
const CODES: &[(&str, &[i32])] = &[
    ("catchment doctor", &[0, 1]),
    // The sources of the page end, and then there is nothing to explain.
    ("catchment agent explain", &[0, 1]),
];

/// A command of a page.
#[derive(Debug)]
struct Step {
    line: usize,
    command: String,
}

/// What stands in a page: its commands, in order.
fn steps(page: &str, text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut section = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if line.starts_with('#') {
                section.clear();
            }
            section.push_str(line);
            steps.extend(inline(line).map(|command| Step { line: at + 1, command }));
            continue;
        };
        let block: Vec<_> = lines.by_ref().take_while(|(_, line)| line.trim() != "```").collect();
        match language {
            "sh" => {
                section.extend(block.iter().map(|(_, line)| *line));
                steps.extend(commands(&block));
            }
            "text" => assert!(
                section.contains("catchment "),
                "{page}:{}: which command prints this? Name it in the section before",
                at + 1
            ),
            other => assert!(
                OTHER_LANGUAGES.iter().any(|(known, _)| *known == other),
                "{page}:{}: a block of language {other:?}: write ```sh for commands, ```text for what \
                 they print, or give a reason in {}",
                at + 1,
                file!()
            ),
        }
    }
    steps
}

/// Commands in the midst of a text: with an option or an argument that is no placeholder.
fn inline(line: &str) -> impl Iterator<Item = String> {
    let spans = line.split('`').skip(1).step_by(2);
    let whole = spans.filter(|span| {
        let words: Vec<&str> = span.split_whitespace().collect();
        let placeholder = |word: &&str| {
            word.contains("...")
                || word.contains('…')
                || word.contains('[')
                || word.ends_with("HOST")
                || ["COMMAND", "TEST", "DIR", "NAME", "ADDR", "N", "X"].contains(word)
        };
        words.len() > 2 && words[0] == "catchment" && !words.iter().any(placeholder)
    });
    whole.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Lines that belong together are one command.
fn commands(block: &[(usize, &str)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (at, line) in block.iter().filter(|(_, line)| !line.trim().is_empty()) {
        let code = line.split("  #").next().unwrap().trim_end();
        match steps.last_mut().filter(|_| goes_on) {
            Some(step) => step.command += &format!("\n{code}"),
            None => steps.push(Step { line: at + 1, command: code.to_owned() }),
        }
        goes_on = code.ends_with(['\\', '|']);
    }
    steps
}

/// What lasts long by itself is made short.
fn shortened(command: &str) -> String {
    let has = |words: &str| command.contains(words);
    let endless = has("synthetic") || has("--loop") || has("--rate native");
    match () {
        () if has("catchment demo --input") => format!("{command} --seconds 1 --rate 10"),
        () if has("catchment demo") && has("--seconds") => command.to_owned(),
        () if has("catchment demo --devices") => format!("{command} --seconds 1 --rate 2"),
        () if has("catchment demo") => format!("{command} --seconds 1"),
        () if has("catchment send") && endless => format!("{command} --seconds 1"),
        () if has("catchment control top") || has("catchment agent top") => {
            format!("timeout --preserve-status --signal INT 1 {command}")
        }
        () if has("catchment kv bench") => format!("{command} --seconds 0.1"),
        () if has("bench write_") || has("bench transfer") => format!("{command} -D 0.02"),
        () => command.to_owned(),
    }
}

fn lasts(command: &str) -> Option<&'static str> {
    let services = [
        ("catchment collect", "Ctrl-C ends it"),
        ("catchment control", "granting at"),
        ("catchment agent", "applications by name"),
        ("catchment bench server", "waiting for a client"),
        ("catchment kv serve", "clients reach it at"),
        ("catchment tunnel serve", "serving"),
        ("catchment tunnel --listen", "session with"),
    ];
    let goes_on = |name: &str| {
        command.contains(name)
            && ![
                "--forget", "control status", "control capacity", "control top", "agent status",
                "agent explain", "agent top",
            ]
            .iter()
            .any(|word| command.contains(word))
    };
    services.iter().find(|(name, _)| goes_on(name)).map(|(_, ready)| *ready)
}

/// A page being carried out.
struct Stage<'a> {
    page: &'a str,
    hosts: &'a Namespace,
    folder: &'a Path,
    services: Vec<Service>,
}

struct Service {
    command: String,
    /// What it says when it works.
    ready: String,
    process: Kept,
    log: PathBuf,
}

impl Stage<'_> {
    fn shell(&self, command: &str) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_catchment")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", self.folder.join("bin").display(), bin.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.folder).env("PATH", path);
        shell.env("TMPDIR", self.folder).env_remove("RUST_LOG").stdin(Stdio::null());
        shell
    }

    /// Starts a command that goes on, and waits until it works.
    fn serve(&mut self, command: &str, ready: &str) {
        self.end(ready);
        let log = self.folder.join(format!("{}.log", ready.replace(' ', "-")));
        let output = fs::File::create(&log).unwrap();
        let exec = format!("exec {}", command.trim_end_matches(['&', ' ']));
        let mut shell = self.shell(&exec);
        shell.stdout(output.try_clone().unwrap()).stderr(output);
        let mut process = Kept(self.hosts.run(|| shell.spawn().unwrap()).unwrap());
        let said = || fs::read_to_string(&log).unwrap();
        wait_until(&format!("{}: `{command}` works", self.page), || {
            assert!(
                process.0.try_wait().unwrap().is_none(),
                "{}: `{command}`: {}",
                self.page,
                said()
            );
            said().contains(ready)
        });
        self.services.push(Service {
            command: command.to_owned(),
            ready: ready.to_owned(),
            process,
            log,
        });
    }

    fn perform(&mut self, step: &Step) {
        if LEFT_OUT.iter().any(|(start, _)| step.command.starts_with(start)) {
            return;
        }
        let command = shortened(&step.command);
        if let Some(ready) = lasts(&command) {
            return self.serve(&command, ready);
        }
        let mut shell = self.shell(&format!("set -e\n{command}"));
        let finished = self.hosts.run(|| crate::common::finish(&mut shell)).unwrap();
        let known = CODES.iter().find(|(start, _)| command.starts_with(start));
        let codes = known.map_or(&[0][..], |(_, codes)| codes);
        let logs: Vec<String> =
            self.services.iter().map(|one| fs::read_to_string(&one.log).unwrap()).collect();
        assert!(
            finished.code.is_some_and(|code| codes.contains(&code)),
            "{}:{}: `{command}`: {finished:#?}\nservices: {logs:#?}",
            self.page,
            step.line
        );
    }

    /// Ends those that said `ready` when they worked, as Ctrl-C does.
    fn end(&mut self, ready: &str) {
        for mut one in self.services.extract_if(.., |one| one.ready.contains(ready)) {
            signal(one.process.0.id(), Signal::INT);
            let mut code = None;
            wait_until("a service ends", || {
                code = one.process.0.try_wait().unwrap();
                code.is_some()
            });
            let said = fs::read_to_string(&one.log).unwrap();
            assert_eq!(code.unwrap().code(), Some(0), "{}: `{}`: {said}", self.page, one.command);
        }
    }
}

/// The files that the pages name.
fn furnish(folder: &Path) {
    let made = clip(folder, "clip.mp4", 1, 25);
    for name in ["a.mp4", "b.mp4", "front.mp4", "rear.mp4", "raw:odd-clip.mp4"] {
        fs::copy(&made, folder.join(name)).unwrap();
    }
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let clip = at("clip.mp4");
    ffmpeg(&["-i", &clip, &at("clip.y4m")]);
    let raw = ["-pix_fmt", "rgb24", "-s", "640x480", "-f", "rawvideo", "-frames:v", "3"];
    ffmpeg(&[&["-i", clip.as_str()], &raw[..], &[&at("frames.raw")]].concat());
    fs::copy(at("frames.raw"), folder.join("raw:odd-name")).unwrap();
    fs::create_dir(folder.join("pictures")).unwrap();
    ffmpeg(&["-i", &clip, "-frames:v", "3", &at("pictures/shot%d.png")]);
    fs::create_dir(folder.join("bin")).unwrap();
    let camera = "#!/bin/sh\nhead -c 19660800 /dev/zero\n";
    for name in ["my-camera", "my-camera-program"] {
        let path = folder.join("bin").join(name);
        fs::write(&path, camera).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(path).status().unwrap().success());
    }
}

fn hosts() -> Namespace {
    let hosts = Namespace::new().unwrap();
    for address in ADDRESSES {
        let words = ["address", "add", address, "dev", "lo"];
        let added = hosts.run(|| Command::new("ip").args(words).status().unwrap()).unwrap();
        assert!(added.success(), "{address}");
    }
    hosts
}

/// The collector of a page that starts none.
fn collector_of(page: &str) -> &'static str {
    match page {
        "docs/guide/rdma-in-containers.md" => {
            "catchment collect --insecure --listen 10.0.0.1:7117 --out frames"
        }
        _ => "catchment collect --listen 127.0.0.1:7117 --out frames",
    }
}

fn carry_out(page: &str) {
    with_privilege(&format!("docs::{}", test_of(page)), || {
        let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
        let steps = steps(page, &text);
        let hosts = hosts();
        let folder = tempfile::tempdir().unwrap();
        furnish(folder.path());
        let (page, folder) = (page, folder.path());
        let mut stage = Stage { page, hosts: &hosts, folder, services: Vec::new() };
        if !steps.iter().any(|step| step.command.starts_with("catchment collect")) {
            stage.serve(collector_of(page), "Ctrl-C ends it");
        }
        steps.iter().for_each(|step| stage.perform(step));
        stage.end("");
    });
}

/// The name of the test of a page.
fn test_of(page: &str) -> String {
    let name = Path::new(page).file_stem().unwrap().to_str().unwrap();
    format!("commands_of_{}", name.to_lowercase().replace('-', "_"))
}

macro_rules! pages {
    ($($test:ident $page:literal;)*) => {
        $(
            #[test]
            fn $test() {
                assert_eq!(test_of($page), stringify!($test));
                carry_out($page);
            }
        )*

        const PAGES: &[&str] = &[$($page),*];
    };
}

pages! {
    commands_of_readme "README.md";
    commands_of_agent "docs/guide/agent.md";
    commands_of_applications "docs/guide/applications.md";
    commands_of_cert "docs/guide/cert.md";
    commands_of_collect "docs/guide/collect.md";
    commands_of_control "docs/guide/control.md";
    commands_of_dashboard "docs/guide/dashboard.md";
    commands_of_demo "docs/guide/demo.md";
    commands_of_inputs "docs/guide/inputs.md";
    commands_of_kv "docs/guide/kv.md";
    commands_of_rdma_in_containers "docs/guide/rdma-in-containers.md";
    commands_of_send "docs/guide/send.md";
    commands_of_tunnel "docs/guide/tunnel.md";
    commands_of_two_machines "docs/guide/two-machines.md";
}

#[test]
fn every_guide_is_carried_out_and_every_exception_is_needed() {
    let entries = fs::read_dir(Path::new(ROOT).join("docs/guide")).unwrap();
    let mut guides: Vec<String> = entries
        .map(|entry| format!("docs/guide/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    guides.push("README.md".to_owned());
    guides.sort();
    let mut known = PAGES.to_vec();
    known.sort_unstable();
    assert_eq!(guides, known, "each guide needs a test here");
    let text = |page: &str| fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let all: Vec<Step> = PAGES.iter().flat_map(|page| steps(page, &text(page))).collect();
    for (start, reason) in LEFT_OUT {
        let used = all.iter().any(|step| step.command.starts_with(start));
        assert!(used, "no page has a command that begins with {start:?} ({reason})");
    }
}

#[test]
fn commands_are_found_in_blocks_and_in_the_midst_of_a_text() {
    let text = "# A\nTry `catchment demo --rate max`, not `catchment demo` or `catchment send X`.\n\
                ```sh\ncat a |\n  wc   # counts\nls \\\n  -l\n```\nprints\n```text\n3\n```\n";
    let found = steps("a", text);
    let commands: Vec<&str> = found.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(commands, ["catchment demo --rate max", "cat a |\n  wc", "ls \\\n  -l"]);
}

#[test]
fn the_page_of_the_command_line_names_the_fields_that_explain_writes() {
    // Without a route the reason is there, and what a route has is null.
    with_privilege(
        "docs::the_page_of_the_command_line_names_the_fields_that_explain_writes",
        || {
            let hosts = Namespace::new().unwrap();
            let explained =
                hosts.run(|| run(["explain", "--json", "192.0.2.1"])).unwrap().expect(3);
            let json = explained.last_json();
            assert!(json["no_route"].is_string(), "{json:#}");
            assert!(json["local"].is_null() && json["mtu_bytes"].is_null(), "{json:#}");
        },
    );
}
