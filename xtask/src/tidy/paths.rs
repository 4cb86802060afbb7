//! Nothing may depend on a particular machine, mirror or workplace.
use super::words::{find_word, has_word, is_word, split_comment};
use super::{Finding, SourceFile};

pub(crate) const MACHINE_RULE: &str = "machine-path";
pub(crate) const DOCUMENT_RULE: &str = "unknown-document";
pub(crate) const PHRASE_RULE: &str = "workplace";
pub(crate) const REGISTRY_RULE: &str = "registry";

/// Folders, without their leading slash, that exist only on some machines.
const MACHINE_FOLDERS: &[&str] =
    &["work", "farm", "builds", "workspace", "root", "home", "Users", "tmp/wt", "tmp/catchment"];

/// Phrases about the people and the process behind a text instead of its subject.
const PHRASES: &[&str] = &[
    "the lead", "the brief", "the task says", "as instructed", "the plan says", "helper session",
    "other helpers", "my worktree",
];

pub(crate) fn check_machine(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let faults = file.lines().flat_map(|(at, line)| {
        MACHINE_FOLDERS.iter().filter(move |folder| names_folder(line, folder)).map(move |folder| {
            (at, format!("/{folder} exists only on one machine: use a relative path"))
        })
    });
    file.findings(MACHINE_RULE, faults)
}

fn names_folder(line: &str, folder: &str) -> bool {
    find_word(line, folder).any(|at| {
        let before = line[..at].strip_suffix('/');
        let absolute = before.is_some_and(|before| !before.ends_with(continues_path));
        let ends = !line[at + folder.len()..].starts_with(['-', '.']);
        absolute && ends
    })
}

fn continues_path(c: char) -> bool {
    is_word(c) || "./-*~}>$:".contains(c)
}

pub(crate) fn check_documents(file: &SourceFile<'_>, all: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in prose(file) {
        let line = without_targets(line);
        for name in document_names(&line).filter(|name| !exists(name, file.path, all)) {
            let what =
                format!("{name} is not in this repository: name a document that a reader can open");
            findings.push(file.finding(DOCUMENT_RULE, at, what));
        }
    }
    findings
}

/// Returns the lines of prose: all of a page, the comments of code.
fn prose<'a>(file: &SourceFile<'a>) -> impl Iterator<Item = (usize, &'a str)> {
    let is_rust = file.is_rust();
    let is_page = [".md", ".toml", ".sh", ".yml"].iter().any(|end| file.path.ends_with(end));
    let text = if is_rust || is_page { file.text } else { "" };
    (1..).zip(text.lines().map(move |line| if is_rust { split_comment(line).1 } else { line }))
}

/// Returns the line without the targets of its links, which another rule checks.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    std::iter::once(first.as_str()).chain(rest).collect::<Vec<_>>().join("] ")
}

fn document_names(line: &str) -> impl Iterator<Item = &str> {
    let tokens = line.split(|c: char| !is_word(c) && !"./-:".contains(c));
    let tokens = tokens.map(|token| token.trim_end_matches(['.', ':']));
    tokens.filter(|token| token.ends_with(".md") && !token.contains("://") && token.len() > 3)
}

fn exists(name: &str, from: &str, files: &[String]) -> bool {
    let name = name.trim_start_matches("./").trim_start_matches("../");
    let here = from == name || from.ends_with(&format!("/{name}"));
    here || files.iter().any(|file| file == name || file.ends_with(&format!("/{name}")))
}

pub(crate) fn check_phrases(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let faults = prose(file).flat_map(|(at, line)| {
        let line = line.to_lowercase();
        let phrases = PHRASES.iter().filter(move |phrase| has_word(&line, phrase));
        let what = |phrase| format!("\"{phrase}\" is about a workplace: write about the software");
        phrases.map(move |phrase| (at, what(phrase)))
    });
    file.findings(PHRASE_RULE, faults)
}

/// Returns the file that `path` means in the file `from`, both named from the root of the
/// repository; none for a path that leads out of it.
pub(super) fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    (!path.starts_with('/')).then(|| parts.join("/"))
}

pub(crate) fn check_registry(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let wrong: fn(&str) -> bool = match file.path.rsplit('/').next() {
        Some("Cargo.lock") => |line| {
            line.starts_with("source = ")
                && !line.contains("//github.com/rust-lang/crates.io-index\"")
        },
        Some("config.toml") if file.path.contains(".cargo/") => |line| {
            line.trim_start().starts_with("[source") || line.trim_start().starts_with("[regist")
        },
        _ => return Vec::new(),
    };
    let numbered = file.lines().filter(|(_, line)| wrong(line));
    let what = "packages come from crates.io, on every machine";
    file.findings(REGISTRY_RULE, numbered.map(|(at, _)| (at, what)))
}
