//! Links in the pages of this repository: each leads to a file that is there and, where it names
//! an anchor, to a heading that is there. Links to other sites are not followed.
use super::Finding;
use crate::repo::Repo;
use anyhow::Result;
use std::collections::BTreeMap;

pub(crate) const RULE: &str = "link";

#[derive(Default)]
struct Page {
    links: Vec<Link>,
    anchors: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

pub(crate) fn check(repo: &Repo, files: &[String]) -> Result<Vec<Finding>> {
    let mut pages = BTreeMap::new();
    for name in files.iter().filter(|name| name.ends_with(".md")) {
        pages.insert(name.as_str(), parse(&repo.read(name)?));
    }
    Ok(check_pages(&pages, files))
}

fn check_pages(pages: &BTreeMap<&str, Page>, files: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, page) in pages {
        for link in &page.links {
            let fault = fault(name, &link.target, pages, files);
            findings.extend(fault.map(|what| Finding::new(name, link.line, RULE, what)));
        }
    }
    findings
}

fn fault(
    from: &str,
    target: &str,
    pages: &BTreeMap<&str, Page>,
    files: &[String],
) -> Option<String> {
    if is_elsewhere(target) {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(from, path) else {
        return Some(format!("{target} leads out of the repository"));
    };
    if !exists(&file, files) {
        return Some(format!("{target} leads to {file}, which is not there"));
    }
    let missing = |page: &&Page| !page.anchors.iter().any(|known| known == anchor);
    let page = pages.get(file.as_str()).filter(|_| !anchor.is_empty());
    page.filter(missing).map(|_| format!("{file} has no heading for #{anchor}"))
}

fn is_elsewhere(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphabetic()))
}

/// The file, relative to the top, that `path` on page `from` means; none when it lies outside.
fn resolve(from: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    (!path.starts_with('/')).then(|| parts.join("/").replace("%20", " "))
}

fn exists(name: &str, files: &[String]) -> bool {
    let folder = format!("{name}/");
    name.is_empty() || files.iter().any(|file| file == name || file.starts_with(&folder))
}

fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let mut fence: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, None) => page.read_line(at + 1, line),
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
    }
    page
}

impl Page {
    fn read_line(&mut self, number: usize, line: &str) {
        if let Some(heading) = heading(line) {
            self.add_anchor(&slug(heading));
        }
        let prose = without_code(line);
        for name in ["id", "name"] {
            self.anchors.extend(attributes(&prose, name));
        }
        let targets = inline_targets(&prose)
            .chain(definition_target(&prose))
            .chain(attributes(&prose, "href"))
            .chain(attributes(&prose, "src"));
        self.links.extend(targets.map(|target| Link { line: number, target }));
    }

    /// A second heading of the same text gets `-1`, a third `-2`.
    fn add_anchor(&mut self, slug: &str) {
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let mut names = std::iter::once(slug.to_owned()).chain(numbered);
        self.anchors.extend(names.find(|name| !self.anchors.contains(name)));
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then_some(text)?.strip_prefix(' ').map(str::trim)
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn without_code(line: &str) -> String {
    let parts: Vec<_> = line.split('`').collect();
    // An odd number of backticks leaves the last part outside of code.
    let last = parts.len() - 1;
    let outside = parts.iter().enumerate().filter(|(at, _)| at % 2 == 0 || *at == last);
    outside.map(|(_, part)| *part).collect::<Vec<_>>().join("`")
}

fn inline_targets(prose: &str) -> impl Iterator<Item = String> {
    prose.match_indices("](").map(|(at, _)| &prose[at + 2..]).filter_map(|rest| {
        let target = rest.split(')').next()?.split_whitespace().next()?;
        Some(target.trim_matches(['<', '>']).to_owned())
    })
}

fn definition_target(prose: &str) -> Option<String> {
    let (name, target) = prose.trim_start().strip_prefix('[')?.split_once("]: ")?;
    let footnote = name.starts_with('^');
    target.split_whitespace().next().filter(|_| !footnote).map(str::to_owned)
}

fn attributes(prose: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    let values = prose.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next());
    if prose.contains('<') { values.map(str::to_owned).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with the link of one page, beside the pages and files of a small repository.
    fn found(text: &str) -> Vec<String> {
        let files = ["README.md", "docs/a.md", "docs/b c.md", "src/lib.rs"];
        let files: Vec<_> = files.iter().map(|name| (*name).to_owned()).collect();
        let mut pages = BTreeMap::new();
        pages.insert(
            "README.md",
            parse("# Read me\n\n## How it works: 2 steps\n## Twice\n## Twice\n"),
        );
        pages.insert("docs/a.md", parse(text));
        check_pages(&pages, &files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_accepted() {
        let good = [
            "[a](../README.md)",
            "[a](../README.md#how-it-works-2-steps) and [b](../README.md#twice-1)",
            "## Own `code` part\n[a](#own-code-part)",
            "[a](https://example.org/none.md#x) [m](mailto:a@b.c)",
            "[folder](../src) [folder](../src/) [file](../src/lib.rs#L3)",
            "![picture](b%20c.md \"title\")",
            "[name]: ../README.md \"title\"",
            "[^1]: words",
            "`[a](none.md)`",
            "```text\n[a](none.md)\n```",
            "<a id=\"here\"></a>\n[a](#here)",
        ];
        for text in good {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_refused() {
        let bad = [
            "[a](none.md)",
            "[a](README.md)",
            "[a](../README.md#none)",
            "[a](#none)",
            "[a](../../other/README.md)",
            "[a](/docs/a.md)",
            "![picture](none.png)",
            "<img alt=\"x\" src=\"none.png\">",
            "[name]: none.md",
            "```text\n```\n[a](none.md)",
            "`code` [a](none.md) `code`",
        ];
        for text in bad {
            assert_eq!(found(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_finding_names_page_and_line() {
        let page = parse("a\n\n[b](c.md) [d](e.md)");
        let link = |target: &str| Link { line: 3, target: target.to_owned() };
        assert_eq!(page.links, [link("c.md"), link("e.md")]);
    }
}
