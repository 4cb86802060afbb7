//! Rust source, line by line, with code, comments and literals told apart.
//!
//! Not a parser: just enough that a word in a string is not taken for code, nor code in a comment.

/// One line of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code, without comments; what literals hold is left out.
    pub(crate) code: String,
    /// The text of comments, with their slashes.
    pub(crate) comment: String,
}

/// Where in the language a position is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

/// Splits `source` into lines.
pub(crate) fn lines(source: &str) -> Vec<Line> {
    let mut scanner = Scanner {
        rest: source,
        state: State::Code,
        lines: vec![Line::default()],
    };
    while !scanner.rest.is_empty() {
        scanner.step();
    }
    scanner.lines
}

struct Scanner<'a> {
    rest: &'a str,
    state: State,
    lines: Vec<Line>,
}

impl Scanner<'_> {
    fn step(&mut self) {
        if self.rest.starts_with('\n') {
            self.end_line();
            return;
        }
        match self.state {
            State::Code => self.in_code(),
            State::LineComment => self.comment(1),
            State::BlockComment { depth } => self.in_block_comment(depth),
            State::Text => self.in_text(),
            State::RawText { hashes } => self.in_raw_text(hashes),
        }
    }

    fn end_line(&mut self) {
        self.take(1);
        if self.state == State::LineComment {
            self.state = State::Code;
        }
        self.lines.push(Line::default());
    }

    fn in_code(&mut self) {
        if self.rest.starts_with("//") {
            self.state = State::LineComment;
        } else if self.rest.starts_with("/*") {
            self.state = State::BlockComment { depth: 1 };
            self.comment(2);
        } else if let Some((prefix, hashes)) = self.raw_text_start() {
            self.state = State::RawText { hashes };
            self.skip_into_literal(prefix);
        } else if self.rest.starts_with('"') {
            self.state = State::Text;
            self.skip_into_literal(1);
        } else if let Some(length) = character_literal(self.rest) {
            self.take(length);
            self.line().code.push_str("''");
        } else {
            let text = self.take(1);
            self.line().code.push_str(text);
        }
    }

    fn in_block_comment(&mut self, depth: usize) {
        if self.rest.starts_with("/*") {
            self.state = State::BlockComment { depth: depth + 1 };
            self.comment(2);
        } else if self.rest.starts_with("*/") {
            self.state = if depth == 1 {
                State::Code
            } else {
                State::BlockComment { depth: depth - 1 }
            };
            self.comment(2);
        } else {
            self.comment(1);
        }
    }

    fn in_text(&mut self) {
        if self.rest.starts_with("\\\\") || self.rest.starts_with("\\\"") {
            self.take(2);
        } else if self.take(1) == "\"" {
            self.close_literal();
        }
    }

    fn in_raw_text(&mut self, hashes: usize) {
        let after = self.rest.strip_prefix('"');
        if after.is_some_and(|after| count_hashes(after) >= hashes) {
            self.take(1 + hashes);
            self.close_literal();
        } else {
            self.take(1);
        }
    }

    fn skip_into_literal(&mut self, length: usize) {
        self.take(length);
        self.line().code.push('"');
    }

    fn close_literal(&mut self) {
        self.line().code.push('"');
        self.state = State::Code;
    }

    /// Length of what opens a raw string here, and its number of hashes.
    fn raw_text_start(&mut self) -> Option<(usize, usize)> {
        if self.line().code.ends_with(is_word) {
            return None;
        }
        let prefix = ["br", "cr", "r"]
            .into_iter()
            .find(|prefix| self.rest.starts_with(prefix))?;
        let hashes = count_hashes(&self.rest[prefix.len()..]);
        let length = prefix.len() + hashes + 1;
        self.rest[..]
            .get(length - 1..)?
            .starts_with('"')
            .then_some((length, hashes))
    }

    fn comment(&mut self, characters: usize) {
        let text = self.take(characters);
        self.line().comment.push_str(text);
    }

    fn line(&mut self) -> &mut Line {
        if self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        let last = self.lines.len() - 1;
        &mut self.lines[last]
    }
}

impl<'a> Scanner<'a> {
    fn take(&mut self, characters: usize) -> &'a str {
        let end = self
            .rest
            .char_indices()
            .nth(characters)
            .map_or(self.rest.len(), |(at, _)| at);
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

fn count_hashes(text: &str) -> usize {
    text.chars().take_while(|c| *c == '#').count()
}

/// Number of characters of the character literal that `text` starts with; none for a lifetime.
fn character_literal(text: &str) -> Option<usize> {
    let mut inside = text.strip_prefix('\'')?.chars();
    if inside.next()? == '\\' {
        // The escaped character may itself be a quote.
        let escaped = inside.skip(1).position(|c| c == '\'')?;
        return Some(escaped + 4);
    }
    (inside.next()? == '\'').then_some(3)
}

/// Whether `c` can be part of an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Positions at which `word` stands in `text` as a word of its own.
///
/// Where `word` itself begins or ends with another character, such as `todo!`, that end needs no
/// border.
pub(crate) fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let glued_before = word.starts_with(is_word) && text[..*at].ends_with(is_word);
            let glued_after =
                word.ends_with(is_word) && text[at + word.len()..].starts_with(is_word);
            !glued_before && !glued_after
        })
}

/// Whether `word` stands in `text` as a word of its own.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    find_word(text, word).next().is_some()
}

/// For each line, whether it belongs to a module that is compiled for tests only.
pub(crate) fn test_lines(lines: &[Line]) -> Vec<bool> {
    let mut marks = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        if lines[at].code.contains("#[cfg(test)]") || lines[at].code.contains("#[cfg(all(test") {
            let end = end_of_item(lines, at);
            marks[at..=end].fill(true);
            at = end;
        }
        at += 1;
    }
    marks
}

/// The line on which the item that begins at line `start` ends: by its closing brace, or by a
/// semicolon where it has none.
pub(crate) fn end_of_item(lines: &[Line], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut nesting = 0_usize;
    for (at, line) in lines.iter().enumerate().skip(start) {
        for c in line.code.chars() {
            match c {
                '(' | '[' => nesting += 1,
                ')' | ']' => nesting = nesting.saturating_sub(1),
                '{' => depth += 1,
                '}' if depth <= 1 => return at,
                '}' => depth -= 1,
                ';' if depth == 0 && nesting == 0 => return at,
                _ => {}
            }
        }
    }
    lines.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let cases = [
            ("let a = 1; // unsafe", "let a = 1; "),
            ("let a = \"unsafe // no\"; b", "let a = \"\"; b"),
            (r#"let a = "a\"b\\"; c"#, "let a = \"\"; c"),
            ("let a = r#\"x\"y\"#; d", "let a = \"\"; d"),
            ("let a = br\"x\\\"; e", "let a = \"\"; e"),
            ("let r#fn = var\"s\"; f", "let r#fn = var\"\"; f"),
            ("a /* b /* c */ d */ e", "a  e"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("x == '\"' || y == '\\'' || z", "x == '' || y == '' || z"),
            ("c == '\\u{2019}' && 'x: loop {}", "c == '' && 'x: loop {}"),
        ];
        for (source, expected) in cases {
            assert_eq!(code(source), [expected], "{source}");
        }
    }

    #[test]
    fn states_last_over_lines() {
        let source = "a /* one\ntwo */ b\n\"three\nfour\" c // five\nd";
        assert_eq!(code(source), ["a ", " b", "\"", "\" c ", "d"]);
        let comments: Vec<_> = lines(source).into_iter().map(|line| line.comment).collect();
        assert_eq!(comments, ["/* one", "two */", "", "// five", ""]);
    }

    #[test]
    fn words_have_borders() {
        assert!(has_word("let x = unsafe { y };", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(has_word("    todo!()", "todo!"));
        assert!(!has_word("    mytodo!()", "todo!"));
        assert_eq!(find_word("a ab a", "a").collect::<Vec<_>>(), [0, 5]);
    }

    #[test]
    fn modules_for_tests_are_marked_and_nothing_else() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {\n }\n}\nfn c() {}";
        let marks = test_lines(&lines(source));
        assert_eq!(marks, [false, true, true, true, true, true, false]);
        let source = "#[cfg(test)]\nmod samples;\nfn c() {}";
        assert_eq!(test_lines(&lines(source)), [true, true, false]);
    }

    #[test]
    fn items_end_at_their_brace() {
        let source = "fn f(\n  a: [u8; 4],\n) -> u8\nwhere\n{\n  if a {}\n}\nfn g() {}";
        assert_eq!(end_of_item(&lines(source), 0), 6);
        assert_eq!(end_of_item(&lines("trait T {\n fn f();\n}"), 1), 1);
    }
}
