//! Plain text: no trailing space, no tabs, a newline at the end, no look-alike characters.
use super::{Finding, SourceFile};

pub(crate) const RULE: &str = "text";
pub(crate) const LOOK_ALIKE_RULE: &str = "look-alike";

const ENDINGS: &[&str] =
    &[".rs", ".md", ".toml", ".sh", ".yml", ".yaml", ".json", ".html", ".css", ".js", ".py"];

fn is_ours(path: &str) -> bool {
    ENDINGS.iter().any(|ending| path.ends_with(ending)) || path.starts_with(".ci/")
}

pub(crate) fn check(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    if !is_ours(file.path) {
        return Vec::new();
    }
    let lines = (1..).zip(file.text.split('\n'));
    let mut findings = file.findings(RULE, lines.filter_map(|(at, line)| Some((at, fault(line)?))));
    let last = file.text.lines().count();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(file.finding(RULE, last, "no newline at the end of the file"));
    }
    if file.text.ends_with("\n\n") {
        findings.push(file.finding(RULE, last, "empty lines at the end of the file"));
    }
    findings
}

fn fault(line: &str) -> Option<&'static str> {
    if line.contains('\r') {
        Some("carriage return: lines end with a newline alone")
    } else if line.contains('\t') {
        Some("tab: indent with spaces, write \\t in strings")
    } else if line.ends_with(char::is_whitespace) {
        Some("space at the end of the line")
    } else {
        None
    }
}

pub(crate) fn check_look_alikes(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let faults = file.lines().filter(|_| file.is_rust()).filter_map(|(at, line)| {
        let c = u32::from(line.chars().find(|c| is_look_alike(*c))?);
        Some((at, format!("U+{c:04X} looks like ASCII or is invisible: write ASCII")))
    });
    file.findings(LOOK_ALIKE_RULE, faults)
}

fn is_look_alike(c: char) -> bool {
    match u32::from(c) {
        // No-break space, soft hyphen; spaces, joiners, dashes, quotes, directions.
        0xa0 | 0xad | 0x2000..=0x2015 | 0x2018..=0x201f | 0x2028..=0x202f => true,
        // Invisible operators, byte order mark, minus, fullwidth forms.
        0x2060..=0x206f | 0xfeff | 0x2212 | 0xff01..=0xff5e => true,
        // Greek capitals like Latin ones, small omicron, nu and mu; all of Cyrillic.
        0x391 | 0x392 | 0x395..=0x397 | 0x399 | 0x39a | 0x39c | 0x39d | 0x39f => true,
        0x3a1 | 0x3a4 | 0x3a5 | 0x3a7 | 0x3bc | 0x3bd | 0x3bf | 0x400..=0x4ff => true,
        _ => false,
    }
}
