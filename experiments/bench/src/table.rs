//! Tables: lines of cells, the first of them the head, for a terminal or for a page.

/// Returns a text in which each column is as wide as its widest cell.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns the same in Markdown.
pub(crate) fn markdown(lines: &[Vec<String>]) -> String {
    let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
    let (head, rows) = lines.split_at(1);
    let rule = head.iter().map(|head| format!("|{}\n", "---|".repeat(head.len())));
    head.iter().map(line).chain(rule).chain(rows.iter().map(line)).collect()
}
