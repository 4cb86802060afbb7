//! Tables in plain text.
use std::fmt::Write as _;

pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns that are aligned at the left; the others hold numbers.
    text_columns: usize,
}

impl Table {
    pub(crate) fn new(heading: &[&str], text_columns: usize) -> Self {
        let heading = heading.iter().map(|cell| (*cell).to_owned()).collect();
        Self { rows: vec![heading], text_columns }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let _ = if column < self.text_columns {
                    write!(line, "{gap}{cell:<width$}")
                } else {
                    write!(line, "{gap}{cell:>width$}")
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let row = |(name, value): &(&str, String)| vec![(*name).to_owned(), value.clone()];
    Table { rows: pairs.iter().map(row).collect(), text_columns: 2 }.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = Table::new(&["device", "frames"], 1);
        table.row(vec!["cam0".to_owned(), "1,000".to_owned()]);
        table.row(vec!["a-long-name".to_owned(), "7".to_owned()]);
        let expected = "device       frames\ncam0          1,000\na-long-name       7\n";
        assert_eq!(table.text(), expected);
        let listed = pairs(&[("a", "1".to_owned()), ("long", "2".to_owned())]);
        assert_eq!(listed, "a     1\nlong  2\n");
    }
}
