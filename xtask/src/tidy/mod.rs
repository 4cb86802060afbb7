//! `cargo xtask tidy`: the rules of this repository that neither compiler nor clippy checks.
//!
//! A rule that finds something fails the recipe; figures are only reported. `samples.rs` has text that
//! each rule must accept and text that it must refuse.
mod code;
mod commits;
mod cycles;
mod edges;
mod figures;
mod hot_path;
mod imports;
mod leftovers;
pub(crate) mod links;
mod literals;
mod paths;
mod public;
#[cfg(test)]
mod samples;
mod text;
mod words;
mod workspace;

use crate::metadata::{self, Package};
use crate::repo::Repo;
use crate::requirements;
use anyhow::{Result, bail};
use code::Code;
use figures::Figures;
use std::fmt;

/// Options of `tidy`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Omit the report of figures
    #[arg(long)]
    quiet: bool,
    /// Print the figures as one JSON object on one line, and check nothing
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// List the rules
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Line, counted from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what } = self;
        match line {
            0 => write!(f, "{path}: [{rule}] {what}"),
            _ => write!(f, "{path}:{line}: [{rule}] {what}"),
        }
    }
}

pub(crate) struct SourceFile<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    pub(crate) code: Option<&'a code::File>,
}

impl<'a> SourceFile<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str, code: Option<&'a code::File>) -> Self {
        Self { path, text, code }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn finding(&self, rule: &'static str, line: usize, what: impl Into<String>) -> Finding {
        Finding::new(self.path, line, rule, what)
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &'a str)> {
        (1..).zip(self.text.lines())
    }

    /// Turns faults of lines into findings.
    fn findings<S: Into<String>>(
        &self,
        rule: &'static str,
        faults: impl Iterator<Item = (usize, S)>,
    ) -> Vec<Finding> {
        faults.map(|(line, what)| self.finding(rule, line, what)).collect()
    }
}

struct Rule {
    name: &'static str,
    about: &'static str,
    check: Check,
}

/// Checks one file, given the names of all files.
type Check = fn(&SourceFile<'_>, &[String]) -> Vec<Finding>;

const fn rule(name: &'static str, about: &'static str, check: Check) -> Rule {
    Rule { name, about, check }
}

const FILE_RULES: &[Rule] = &[
    rule(
        workspace::FORBID_RULE,
        "crates that need no unsafe code forbid it",
        workspace::check_forbid,
    ),
    rule(leftovers::RULE, "nothing unfinished, no test that cannot fail", leftovers::check),
    rule(
        leftovers::SLEEP_RULE,
        "a sleep has a comment with what it waits for",
        leftovers::check_sleep,
    ),
    rule(paths::MACHINE_RULE, "no path of one machine", paths::check_machine),
    rule(paths::DOCUMENT_RULE, "documents that are named exist here", paths::check_documents),
    rule(
        paths::PHRASE_RULE,
        "text is about the software, not about how it was written",
        paths::check_phrases,
    ),
    rule(paths::REGISTRY_RULE, "packages come from crates.io", paths::check_registry),
    rule(text::RULE, "no tabs, no space at line ends, a newline at the end", text::check),
    rule(
        text::LOOK_ALIKE_RULE,
        "no characters that look like ASCII in Rust files",
        text::check_look_alikes,
    ),
    rule(
        workspace::CHANGELOG_RULE,
        "CHANGELOG.md has a section for the next change",
        workspace::check_changelog,
    ),
    rule(imports::RULE, "one `use` for each module", imports::check),
];

const WHOLE_RULES: &[(&str, &str)] = &[
    (hot_path::RULE, "no lock and no allocation from claim to release of a block"),
    (PARSE_RULE, "every Rust file can be parsed"),
    (edges::RULE, "crates depend on each other as in the graph"),
    (workspace::EMPTY_RULE, "every crate contains something"),
    (workspace::MAP_RULE, "ARCHITECTURE.md names every crate"),
    (commits::RULE, "the subject of a commit has at most 72 characters"),
    (links::RULE, "links between pages are not broken"),
    (REQUIREMENTS_RULE, "requirements name tests that exist and say so"),
];

const PARSE_RULE: &str = "parse";

const REQUIREMENTS_RULE: &str = "requirements";

const SAMPLES: &str = "xtask/src/tidy/samples.rs";

struct Tree {
    texts: Vec<(String, String)>,
    packages: Vec<Package>,
    code: Code,
    /// Files that cannot be parsed, and why.
    faults: Vec<(String, String)>,
}

impl Tree {
    fn read(repo: &Repo) -> Result<Self> {
        let texts = read_texts(repo)?;
        let packages = metadata::packages(repo)?;
        let (code, faults) = Code::read(&texts, &packages);
        Ok(Self { texts, packages, code, faults })
    }

    fn figures(&self) -> Figures {
        Figures::of(&self.code, &self.packages, &self.texts)
    }
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    if args.list {
        print!("{}", listing());
        return Ok(());
    }
    let tree = Tree::read(repo)?;
    if args.json {
        println!("{}", tree.figures().json());
        return Ok(());
    }
    let findings = all_findings(repo, &tree)?;
    if !args.quiet {
        print!("{}", tree.figures().report(&tree.code));
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        let rules = FILE_RULES.len() + WHOLE_RULES.len();
        println!("tidy: {} files, {rules} rules, nothing found", tree.texts.len());
        return Ok(());
    }
    bail!("tidy found {} places to fix", findings.len())
}

fn listing() -> String {
    FILE_RULES
        .iter()
        .map(|rule| (rule.name, rule.about))
        .chain(WHOLE_RULES.iter().copied())
        .map(|(name, about)| format!("{name:<17} {about}\n"))
        .collect()
}

fn read_texts(repo: &Repo) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for name in repo.files()? {
        if let Ok(text) = String::from_utf8(std::fs::read(repo.path(&name))?) {
            texts.push((name, text));
        }
    }
    Ok(texts)
}

fn all_findings(repo: &Repo, tree: &Tree) -> Result<Vec<Finding>> {
    let files = repo.files()?;
    let mut findings = file_findings(tree, &files);
    findings.extend(tree.faults.iter().map(|(path, what)| Finding::new(path, 0, PARSE_RULE, what)));
    findings.extend(edges::check(&tree.packages));
    findings.extend(workspace::check_empty(&tree.packages, &tree.texts));
    findings.extend(workspace::check_architecture(&tree.packages, &tree.texts));
    findings.extend(commits::check(repo));
    findings.extend(hot_path::check(&tree.code, &tree.texts));
    findings.extend(hot_path::missing(&tree.code));
    findings.extend(links::check(repo, &files)?);
    let untrue = requirements::find_faults(repo)?;
    findings.extend(
        untrue.iter().map(|what| Finding::new(requirements::PAGE, 0, REQUIREMENTS_RULE, what)),
    );
    findings.sort();
    Ok(findings)
}

fn file_findings(tree: &Tree, all: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        let file = SourceFile::new(path, text, tree.code.files.get(path));
        // The samples contain everything that the rules refuse.
        let rules = if path == SAMPLES { &[] } else { FILE_RULES };
        for rule in rules {
            findings.extend((rule.check)(&file, all));
        }
    }
    findings
}
