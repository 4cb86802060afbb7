//! The workspace as a whole: no empty crates, every crate in ARCHITECTURE.md, a section for changes.
use super::{Finding, SourceFile};
use crate::metadata::Package;

pub(crate) const EMPTY_RULE: &str = "empty-crate";
pub(crate) const MAP_RULE: &str = "architecture";
pub(crate) const CHANGELOG_RULE: &str = "changelog";
pub(crate) const FORBID_RULE: &str = "forbid-unsafe";
const MAP: &str = "ARCHITECTURE.md";

/// Roots of crates that need no unsafe code.
const SAFE_ROOTS: &[&str] = &[
    "crates/roce/src/lib.rs",
    "crates/transfer/src/lib.rs",
    "crates/doctor/src/lib.rs",
    "crates/observe/src/lib.rs",
    "crates/session/src/lib.rs",
    "crates/catchment/src/lib.rs",
    "crates/cli/src/main.rs",
    "xtask/src/main.rs",
];

pub(crate) fn check_forbid(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let forbids = |line: &str| line.starts_with("#![forbid(unsafe_code)]");
    if !SAFE_ROOTS.contains(&file.path) || file.text.lines().any(forbids) {
        return Vec::new();
    }
    vec![file.finding(FORBID_RULE, 1, "this crate needs #![forbid(unsafe_code)]")]
}

pub(crate) fn check_empty(packages: &[Package], texts: &[(String, String)]) -> Vec<Finding> {
    let roots = packages.iter().flat_map(Package::roots);
    let empty = roots.filter(|root| text_of(texts, root).is_none_or(is_empty));
    let what = "this crate is empty: add it when it has content";
    empty.map(|root| Finding::new(root, 0, EMPTY_RULE, what)).collect()
}

fn is_empty(source: &str) -> bool {
    let Ok(file) = syn::parse_file(source) else { return false };
    let only_main = |item: &syn::Item| {
        matches!(item, syn::Item::Fn(main)
            if main.sig.ident == "main" && main.block.stmts.is_empty())
    };
    file.items.iter().all(only_main)
}

pub(crate) fn check_architecture(packages: &[Package], texts: &[(String, String)]) -> Vec<Finding> {
    let Some(map) = text_of(texts, MAP) else {
        return vec![Finding::new(MAP, 0, MAP_RULE, "the file is missing")];
    };
    let found = packages.iter().filter(|package| !map.contains(&package.folder)).map(|package| {
        let what = format!("{} is not named here: describe what it is for", package.folder);
        Finding::new(MAP, 0, MAP_RULE, what)
    });
    found.collect()
}

pub(crate) fn check_changelog(file: &SourceFile<'_>, all: &[String]) -> Vec<Finding> {
    let missing = !all.iter().any(|name| name == "CHANGELOG.md");
    if missing && file.path == "Cargo.toml" {
        return vec![Finding::new("CHANGELOG.md", 0, CHANGELOG_RULE, "the file is missing")];
    }
    let has_section = || file.text.lines().any(|line| line.trim_end() == "## [Unreleased]");
    if file.path != "CHANGELOG.md" || has_section() {
        return Vec::new();
    }
    vec![file.finding(CHANGELOG_RULE, 0, "needs a section `## [Unreleased]`")]
}

fn text_of<'a>(texts: &'a [(String, String)], path: &str) -> Option<&'a str> {
    texts.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Target;

    fn named(folder: &str, root: &str) -> Package {
        Package {
            folder: folder.into(),
            targets: vec![Target { kind: "lib".into(), root: root.into() }],
            ..Package::default()
        }
    }

    fn text(path: &str, text: &str) -> (String, String) {
        (path.to_owned(), text.to_owned())
    }

    #[test]
    fn a_crate_with_an_item_is_not_empty() {
        let bad = ["", "//! Words.\n", "//! Words.\nfn main() {}\n", "#![forbid(unsafe_code)]\n"];
        let good = ["pub mod a;", "//! W.\n#![forbid(unsafe_code)]\n#![warn(x)]\nmod a;\n"];
        for (sources, found) in [(&bad[..], 1), (&good[..], 0)] {
            for source in sources {
                let findings = check_empty(&[named("a", "a/lib.rs")], &[text("a/lib.rs", source)]);
                assert_eq!(findings.len(), found, "{source}");
            }
        }
    }

    #[test]
    fn every_crate_is_on_the_map() {
        let packages = [named("crates/a", ""), named("crates/b", "")];
        let findings = check_architecture(&packages, &[text(MAP, "`crates/a` does it.")]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("crates/b"), "{findings:?}");
        assert_eq!(check_architecture(&packages, &[text(MAP, "crates/a crates/b")]), []);
        assert!(check_architecture(&packages, &[])[0].what.contains("missing"));
    }
}
