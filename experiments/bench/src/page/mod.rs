//! `page`: the page of a folder of rows, so that nobody copies numbers by hand.
//!
//! A folder has `page.toml`, the files of JSON lines that it names, as measurements print them, and the page that
//! follows from these, `README.md`. The page of all experiments of the papers follows from such rows too, as far as other
//! benches measure its claims.
mod picture;

use crate::kept::Row;
use crate::output::RESULTS;
use crate::{kept, output, papers, table};
use anyhow::{Context as _, Result, ensure};
use picture::Picture;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCE: &str = "page.toml";
const PAGE: &str = "README.md";

/// Write the pages of measurements out of the rows that lie beside them
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Folders with a page.toml; left out, all in docs/results
    folders: Vec<PathBuf>,
    /// Write nothing; fail if a page is not what its rows give
    #[arg(long)]
    check: bool,
}

/// What `page.toml` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    title: String,
    /// What stands above the parts, in Markdown.
    about: String,
    part: Vec<Part>,
}

/// The rows of a command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    title: String,
    command: String,
    /// The file, in this folder.
    rows: PathBuf,
    /// Fields of which each value has a table of its own.
    #[serde(default)]
    split: Vec<String>,
    /// The fields that are shown; left out, all.
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    picture: Vec<Picture>,
    /// Rows that make lines of pictures have no table.
    #[serde(default)]
    only_pictures: bool,
}

impl Part {
    /// Returns whether a field has a place in tables.
    fn shows(&self, name: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|field| field == name);
        !is_in(&self.split) && (self.fields.is_empty() || is_in(&self.fields))
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let pages = if options.folders.is_empty() { all_pages()? } else { of(&options.folders)? };
    let mut stale = Vec::new();
    for (path, content) in pages {
        if !options.check {
            fs::write(&path, content).with_context(|| path.display().to_string())?;
            output::line(&path.display().to_string())?;
        } else if !is_current(&path, &content) {
            stale.push(path.display().to_string());
        }
    }
    ensure!(
        stale.is_empty(),
        "not what their rows give: {}; `cargo xtask bench page` writes them",
        stale.join(", ")
    );
    Ok(())
}

/// Returns whether a file is what its rows give. Pictures need only be there: how letters are drawn is up to the fonts of a
/// machine.
fn is_current(path: &Path, content: &[u8]) -> bool {
    let is_text = path.extension().is_some_and(|extension| extension == "md");
    if is_text { fs::read(path).is_ok_and(|found| found == content) } else { path.exists() }
}

/// A file that follows from rows: where it belongs, and what is in it.
type File = (PathBuf, Vec<u8>);

/// Returns all pages, and their pictures.
fn all_pages() -> Result<Vec<File>> {
    let (mut pages, results) = (of(&all_folders()?)?, Path::new(RESULTS));
    let experiments = papers::Page::Papers;
    pages.push((experiments.path(results), experiments.text(results)?.into_bytes()));
    Ok(pages)
}

fn of(folders: &[PathBuf]) -> Result<Vec<File>> {
    let files: Result<Vec<_>> = folders.iter().map(|folder| write(folder)).collect();
    Ok(files?.into_iter().flatten().collect())
}

fn all_folders() -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(RESULTS).with_context(|| format!("{RESULTS} of this folder"))? {
        let path = entry?.path();
        if path.join(SOURCE).exists() {
            folders.push(path);
        }
    }
    folders.sort();
    ensure!(!folders.is_empty(), "no folder of {RESULTS} has a {SOURCE}");
    Ok(folders)
}

/// Returns the page of a folder, and its pictures.
fn write(folder: &Path) -> Result<Vec<File>> {
    let source = folder.join(SOURCE);
    let text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
    let page: Page = toml::from_str(&text).with_context(|| source.display().to_string())?;
    let mut text = format!(
        "# {}\n\nWritten by `cargo xtask bench page` out of the rows in this folder. Do not edit.\n\n{}\n",
        page.title,
        page.about.trim()
    );
    let mut files = Vec::new();
    for part in &page.part {
        let rows = kept::read(&folder.join(&part.rows))?;
        write_part(&mut text, part, &rows)?;
        for picture in &part.picture {
            let [svg, png] = picture.draw(&rows)?;
            let (stem, title) = picture.name();
            write!(text, "\n![{title}]({stem}.svg) ([PNG]({stem}.png))\n")?;
            files.push((folder.join(format!("{stem}.svg")), svg));
            files.push((folder.join(format!("{stem}.png")), png));
        }
    }
    files.push((folder.join(PAGE), text.into_bytes()));
    Ok(files)
}

fn write_part(page: &mut String, part: &Part, rows: &[Row]) -> Result<()> {
    write!(
        page,
        "\n## {}\n\n`{}`, rows in [{2}]({2}).\n",
        part.title,
        part.command,
        part.rows.display()
    )?;
    for run in rows.iter().filter(|row| row.what() == "run") {
        let mut said = Vec::new();
        for (name, value) in run.fields().filter(|(name, _)| *name != "what") {
            say(name, value, &mut said);
        }
        write!(page, "\n{}.\n", said.join(", "))?;
    }
    write_goals(page, rows)?;
    if part.only_pictures {
        return Ok(());
    }
    for (title, group) in split(part, rows) {
        if !title.is_empty() {
            write!(page, "\n### {title}\n")?;
        }
        write_table(page, part, &group)?;
    }
    Ok(())
}

/// Says the value of a field, or of all in it; nothing of what is null.
fn say(name: &str, value: &Value, said: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(name, value)| say(name, value, said)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            said.push(format!("{} {}", name.replace('_', " "), cell(value)))
        }
    }
}

/// Writes the goals, those first that are missed.
fn write_goals(page: &mut String, rows: &[Row]) -> Result<()> {
    let goals = || rows.iter().filter(|row| row.what() == "goal");
    let with = |held: &Value| goals().filter(|goal| goal.get("held") == held).count();
    let [held, missed] = [true, false].map(|held| with(&Value::Bool(held)));
    let all = goals().count();
    if all == 0 {
        return write_sum(page, rows);
    }
    let unmeasured = all - held - missed;
    write!(
        page,
        "\n{held} of {all} goals are held, {missed} missed, {unmeasured} not measured.\n\n"
    )?;
    let mut lines = vec![["goal", "where", "reached", "", "why"].map(str::to_owned).to_vec()];
    let order = [
        (Value::Bool(false), "**missed**"),
        (Value::Null, "not measured"),
        (Value::Bool(true), "held"),
    ];
    for (held, verdict) in order {
        for goal in goals().filter(|goal| *goal.get("held") == held) {
            let mut place = Vec::new();
            goal.place().for_each(|(name, value)| say(name, value, &mut place));
            let reached = goal.reached();
            let disturbed = goal.get("disturbed") == &Value::Bool(true);
            lines.push(vec![
                cell(goal.get("goal")),
                place.join(", "),
                reached.map_or("-".to_owned(), cell),
                format!("{verdict}{}", if disturbed { ", but disturbed" } else { "" }),
                goal.get("why_not").as_str().unwrap_or_default().replace('|', "\\|"),
            ]);
        }
    }
    page.push_str(&table::markdown(&drop_empty(lines)));
    Ok(())
}

/// Writes how many goals are held, and those that are missed, where rows have only these.
fn write_sum(page: &mut String, rows: &[Row]) -> Result<()> {
    for sum in rows.iter().filter(|row| row.what() == "goals") {
        write!(page, "\n{} of {} goals are held.\n", cell(sum.get("held")), cell(sum.get("of")))?;
        for missed in sum.get("missed").as_array().into_iter().flatten() {
            let (goal, value) = (cell(&missed["goal"]), cell(&missed["value"]));
            write!(page, "\n**Missed**: {goal}, reached {value}.\n")?;
        }
    }
    Ok(())
}

/// Leaves out the columns in which nothing stands.
fn drop_empty(lines: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let is_full = |column: usize| lines[1..].iter().any(|line| !line[column].is_empty());
    let full: Vec<usize> = (0..lines[0].len()).filter(|column| is_full(*column)).collect();
    lines.iter().map(|line| full.iter().map(|column| line[*column].clone()).collect()).collect()
}

/// Returns the rows of each table with its title: those of the same fields and the same values of what is split by.
fn split<'r>(part: &Part, rows: &'r [Row]) -> Vec<(String, Vec<&'r Row>)> {
    let mut groups: Vec<(Vec<String>, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|row| !["run", "goal", "goals"].contains(&row.what())) {
        let values: Vec<String> = part.split.iter().map(|field| cell(row.get(field))).collect();
        let same =
            groups.iter_mut().find(|(of, group)| *of == values && group[0].names().eq(row.names()));
        match same {
            Some((_, group)) => group.push(row),
            None => groups.push((values, vec![row])),
        }
    }
    let title = |values: Vec<String>| {
        values.into_iter().filter(|value| value != "-").collect::<Vec<_>>().join(", ")
    };
    groups.into_iter().map(|(values, group)| (title(values), group)).collect()
}

/// Writes rows of the same fields: what is the same in all of them stands above the table.
fn write_table(page: &mut String, part: &Part, rows: &[&Row]) -> Result<()> {
    let (mut names, mut same) = (Vec::new(), Vec::new());
    for name in rows[0].names().filter(|name| part.shows(name)) {
        let first = rows[0].get(name);
        if rows.len() > 1 && rows.iter().all(|row| row.get(name) == first) {
            say(name, first, &mut same);
        } else if rows.iter().any(|row| !row.get(name).is_null()) {
            names.push(name);
        }
    }
    if !same.is_empty() {
        write!(page, "\nIn all rows: {}.\n", same.join(", "))?;
    }
    let head = names.iter().map(|name| name.replace('_', " ")).collect();
    let line = |row: &&Row| names.iter().map(|name| cell(row.get(name))).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(line)).collect();
    write!(page, "\n{}", table::markdown(&lines))?;
    Ok(())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.replace('|', "\\|"),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), show),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns a number with four digits that count, or with all of those before the point.
fn show(number: f64) -> String {
    let size = number.abs();
    for (unit, name) in [(1e9, "G"), (1e6, "M")] {
        if size >= 10.0 * unit && number % unit == 0.0 {
            return format!("{} {name}", group(number / unit));
        }
    }
    if size >= 1000.0 || number == number.trunc() {
        return group(number);
    }
    if size < 1e-4 {
        return format!("{number:.2e}");
    }
    let before = size.log10().floor() as i32;
    let text = format!("{number:.*}", usize::try_from(3 - before).unwrap_or(0));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a whole number, its digits in threes.
fn group(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len() > 4 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}
