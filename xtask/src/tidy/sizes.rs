//! Sizes: reported, never refused. Aim for functions under 10 lines in the median and files of one
//! idea.

use super::SourceFile;
use crate::rust_text::{Line, end_of_item, find_word};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Lines above which a function is named in the report.
const LONG_FUNCTION: usize = 70;
/// Lines above which a file is named in the report.
const LONG_FILE: usize = 800;

/// Numbers of one crate.
#[derive(Default)]
struct Row {
    files: usize,
    lines: usize,
    functions: Vec<usize>,
    unsafe_words: usize,
}

/// The table of sizes, one row for each crate, then what is long.
pub(super) fn report(texts: &[(String, String)]) -> String {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut long = String::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let file = SourceFile::new(path, text);
        let functions = functions(&file.lines);
        note_long(&mut long, &file, &functions);
        add(rows.entry(crate_of(path)).or_default(), &file, &functions);
    }
    let mut report = table(&rows);
    report.push_str(&long);
    report
}

fn add(row: &mut Row, file: &SourceFile<'_>, functions: &[Function]) {
    row.files += 1;
    row.lines += file.lines.len();
    row.functions
        .extend(functions.iter().map(|function| function.lines));
    row.unsafe_words += file
        .lines
        .iter()
        .map(|line| find_word(&line.code, "unsafe").count())
        .sum::<usize>();
}

fn note_long(long: &mut String, file: &SourceFile<'_>, functions: &[Function]) {
    if file.lines.len() > LONG_FILE {
        let _ = writeln!(
            long,
            "long file: {} has {} lines",
            file.path,
            file.lines.len()
        );
    }
    for function in functions
        .iter()
        .filter(|function| function.lines > LONG_FUNCTION)
    {
        let Function { name, start, lines } = function;
        let _ = writeln!(
            long,
            "long function: {}:{start} {name} has {lines} lines",
            file.path
        );
    }
}

fn table(rows: &BTreeMap<String, Row>) -> String {
    let mut table = format!(
        "{:<24}{:>6}{:>8}{:>11}{:>8}{:>6}{:>8}\n",
        "crate", "files", "lines", "functions", "median", "p90", "unsafe"
    );
    for (name, row) in rows {
        let mut sizes = row.functions.clone();
        sizes.sort_unstable();
        let _ = writeln!(
            table,
            "{name:<24}{:>6}{:>8}{:>11}{:>8}{:>6}{:>8}",
            row.files,
            row.lines,
            sizes.len(),
            percentile(&sizes, 50),
            percentile(&sizes, 90),
            row.unsafe_words
        );
    }
    table
}

fn percentile(sorted: &[usize], percent: usize) -> usize {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

/// The folder above `src`, `tests` and the like.
fn crate_of(path: &str) -> String {
    let inner = ["/src/", "/tests/", "/benches/", "/examples/"];
    let ends = inner.iter().filter_map(|folder| path.find(folder));
    path[..ends.min().unwrap_or(0)].to_owned()
}

/// A function and how many lines it takes, from its signature to its closing brace.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    start: usize,
    lines: usize,
}

fn functions(lines: &[Line]) -> Vec<Function> {
    let starts = (0..lines.len()).filter_map(|at| Some((at, function_name(&lines[at].code)?)));
    let whole = starts.map(|(at, name)| (at, name, end_of_item(lines, at)));
    let with_body = whole.filter(|(at, _, end)| has_body(&lines[*at..=*end]));
    with_body
        .map(|(at, name, end)| Function {
            name,
            start: at + 1,
            lines: end - at + 1,
        })
        .collect()
}

fn function_name(code: &str) -> Option<String> {
    let at = find_word(code, "fn").next()?;
    let rest = code[at + 2..].strip_prefix(' ')?;
    let name: String = rest
        .chars()
        .take_while(|c| crate::rust_text::is_word(*c))
        .collect();
    (!name.is_empty()).then_some(name)
}

fn has_body(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.code.contains('{'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_text;

    #[test]
    fn functions_are_measured_by_their_braces() {
        let source = "trait T {\n fn a();\n}\nfn b(x: u8)\n{\n  if x { }\n}\nfn c() {}";
        let found = functions(&rust_text::lines(source));
        let sizes: Vec<_> = found
            .iter()
            .map(|f| (f.name.as_str(), f.start, f.lines))
            .collect();
        assert_eq!(sizes, [("b", 4, 4), ("c", 8, 1)]);
    }

    #[test]
    fn long_things_are_named_and_short_ones_are_not() {
        let long = format!(
            "fn long() {{\n{}}}\nfn short() {{}}\n",
            "  f();\n".repeat(900)
        );
        let report = report(&[("a/src/lib.rs".to_owned(), long)]);
        assert!(
            report.contains("long file: a/src/lib.rs has 904 lines"),
            "{report}"
        );
        assert!(
            report.contains("a/src/lib.rs:1 long has 902 lines"),
            "{report}"
        );
        assert!(!report.contains("short"), "{report}");
    }

    #[test]
    fn percentiles_are_of_the_sorted_sizes() {
        assert_eq!(percentile(&[1, 2, 3, 4, 100], 50), 3);
        assert_eq!(percentile(&[1, 2, 3, 4, 100], 90), 100);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn crates_are_the_folders_above_the_source() {
        assert_eq!(crate_of("crates/verbs/src/mem/mod.rs"), "crates/verbs");
        assert_eq!(crate_of("crates/cli/tests/a.rs"), "crates/cli");
    }
}
