//! Links in the pages of this repository: each leads to a file and, if it names an anchor, to a heading
//! that exists. Links to other sites are not followed.
use super::Finding;
use super::paths::resolve;
use crate::repo::Repo;
use anyhow::Result;
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::ops::Range;

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
    let file = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
    let Some(file) = file.map(|file| file.replace("%20", " ")) else {
        return Some(format!("{target} leads out of the repository"));
    };
    if !exists(&file, files) {
        return Some(format!("{target} leads to {file}, which does not exist"));
    }
    let missing = |page: &&Page| !page.anchors.iter().any(|known| known == anchor);
    let page = pages.get(file.as_str()).filter(|_| !anchor.is_empty());
    page.filter(missing).map(|_| format!("{file} has no heading for #{anchor}"))
}

fn is_elsewhere(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphabetic()))
}

fn exists(name: &str, files: &[String]) -> bool {
    let folder = format!("{name}/");
    name.is_empty() || files.iter().any(|file| file == name || file.starts_with(&folder))
}

fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading = None::<String>;
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let mut link = |at: usize, target: &str| {
        page.links.push(Link { line: line(at), target: target.to_owned() })
    };
    let parser = Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES);
    for (_, definition) in parser.reference_definitions().iter() {
        link(definition.span.start, &definition.dest);
    }
    for (event, Range { start, .. }) in parser.into_offset_iter() {
        if let Event::Start(Tag::Heading { .. }) = event {
            heading = Some(String::new());
        } else if let (Event::Text(words) | Event::Code(words), Some(heading)) =
            (&event, &mut heading)
        {
            heading.push_str(words);
        } else if let Event::End(TagEnd::Heading(_)) = event {
            add_anchor(&mut page.anchors, &slug(&heading.take().unwrap_or_default()));
        } else if let Event::Start(
            Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. },
        ) = &event
            && *link_type == LinkType::Inline
        {
            link(start, dest_url);
        } else if let Event::Html(html) | Event::InlineHtml(html) = event {
            for name in ["id", "name"] {
                page.anchors.extend(attributes(&html, name).map(str::to_owned));
            }
            for name in ["href", "src"] {
                attributes(&html, name).for_each(|target| link(start, target));
            }
        }
    }
    page
}

/// Adds an anchor; the second with the same text gets `-1`, the third `-2`.
fn add_anchor(anchors: &mut Vec<String>, slug: &str) {
    let numbered = (1..).map(|number| format!("{slug}-{number}"));
    let mut names = std::iter::once(slug.to_owned()).chain(numbered);
    let free = names.find(|name| !anchors.contains(name));
    anchors.extend(free);
}

/// Returns the anchor of a heading, as GitHub and mdBook generate it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn attributes<'h>(html: &'h str, name: &str) -> impl Iterator<Item = &'h str> {
    let start = format!(" {name}=\"");
    let at = html.find(&start).map(|at| &html[at + start.len()..]);
    at.into_iter().filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the links of a page in a small repository.
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
