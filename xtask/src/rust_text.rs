//! Rust source, line by line, with code, comments and literals told apart.
//!
//! The tokens come from `proc-macro2`; what lies between them is white space and comments.

use proc_macro2::{LexError, TokenStream, TokenTree};
use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code, without comments; the contents of literals are left out.
    pub(crate) code: String,
    /// The text of comments, with their slashes.
    pub(crate) comment: String,
}

/// Splits the file that `tokens` were read from into lines.
pub(crate) fn lines(source: &str, tokens: TokenStream) -> Vec<Line> {
    let mut scanner = Scanner { source, at: 0, lines: vec![Line::default()] };
    scanner.tokens(tokens);
    scanner.gap(source.len());
    scanner.lines
}

pub(crate) fn tokens(source: &str) -> Result<TokenStream, LexError> {
    source.parse()
}

struct Scanner<'a> {
    source: &'a str,
    /// Position up to which the source is in `lines`.
    at: usize,
    lines: Vec<Line>,
}

impl Scanner<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    self.token(&group.span_open().byte_range());
                    self.tokens(group.stream());
                    self.token(&group.span_close().byte_range());
                }
                TokenTree::Literal(literal) => self.literal(&literal.span().byte_range()),
                TokenTree::Ident(ident) => self.token(&ident.span().byte_range()),
                TokenTree::Punct(punct) => self.token(&punct.span().byte_range()),
            }
        }
    }

    fn token(&mut self, range: &Range<usize>) {
        // A documentation comment is an attribute to the parser: several tokens at one place.
        if range.start < self.at {
            return;
        }
        self.gap(range.start);
        let text = &self.source[range.clone()];
        if is_comment(text) {
            self.comment(text);
        } else {
            self.put(text, code);
        }
        self.at = range.end;
    }

    /// Adds a number as it is, and of a string only its quotes and its line breaks.
    fn literal(&mut self, range: &Range<usize>) {
        let text = &self.source[range.clone()];
        let quote = text.chars().find(|c| ['"', '\''].contains(c));
        let Some(quote) = quote.filter(|_| range.start >= self.at) else {
            self.token(range);
            return;
        };
        self.gap(range.start);
        let breaks = "\n".repeat(text.matches('\n').count());
        self.put(&format!("{quote}{breaks}{quote}"), code);
        self.at = range.end;
    }

    fn gap(&mut self, end: usize) {
        let text = &self.source[self.at..end];
        let comment_start = text.find('/').unwrap_or(text.len());
        self.put(&text[..comment_start], code);
        self.comment(&text[comment_start..]);
        self.at = end;
    }

    fn comment(&mut self, text: &str) {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.lines.push(Line::default());
            }
            let start = line.len() - line.trim_start().len();
            self.put(&line[..start], code);
            self.put(line[start..].trim_end(), |line| &mut line.comment);
        }
    }

    fn put(&mut self, text: &str, part: fn(&mut Line) -> &mut String) {
        for (number, piece) in text.split('\n').enumerate() {
            if number > 0 {
                self.lines.push(Line::default());
            }
            if let Some(line) = self.lines.last_mut() {
                part(line).push_str(piece);
            }
        }
    }
}

fn code(line: &mut Line) -> &mut String {
    &mut line.code
}

fn is_comment(text: &str) -> bool {
    text.starts_with("//") || text.starts_with("/*")
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Positions at which `word` stands in `text` as a word of its own.
///
/// Where `word` itself begins or ends with another character, such as `todo!`, that end needs no
/// border.
pub(crate) fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let glued_before = word.starts_with(is_word) && text[..*at].ends_with(is_word);
        let glued_after = word.ends_with(is_word) && text[at + word.len()..].starts_with(is_word);
        !glued_before && !glued_after
    })
}

pub(crate) fn has_word(text: &str, word: &str) -> bool {
    find_word(text, word).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(source: &str) -> Vec<Line> {
        lines(source, tokens(source).unwrap())
    }

    fn code(source: &str) -> Vec<String> {
        split(source).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let cases = [
            ("let a = 1; // unsafe", "let a = 1; "),
            ("let a = \"unsafe // no\"; b", "let a = \"\"; b"),
            (r#"let a = "a\"b\\"; c"#, "let a = \"\"; c"),
            ("let a = r#\"x\"y\"#; d", "let a = \"\"; d"),
            ("let a = br\"x\\\"; e", "let a = \"\"; e"),
            ("let r#fn = 1_u8; f", "let r#fn = 1_u8; f"),
            ("a /* b /* c */ d */ e", "a e"),
            ("/// doc\nfn f() {}", ""),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("x == '\"' || y == '\\'' || z", "x == '' || y == '' || z"),
            ("c == '\\u{2019}' && 'x: loop {}", "c == '' && 'x: loop {}"),
        ];
        for (source, expected) in cases {
            assert_eq!(code(source)[0], expected, "{source}");
        }
    }

    #[test]
    fn comments_and_strings_last_over_lines() {
        let source = "a /* one\ntwo */ b\n\"three\nfour\" c // five\n/// six\nd";
        assert_eq!(code(source), ["a ", "b", "\"", "\" c ", "", "d"]);
        let comments: Vec<_> = split(source).into_iter().map(|line| line.comment).collect();
        assert_eq!(comments, ["/* one", "two */", "", "// five", "/// six", ""]);
    }

    #[test]
    fn words_have_borders() {
        assert!(has_word("let x = unsafe { y };", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(has_word("    todo!()", "todo!"));
        assert!(!has_word("    mytodo!()", "todo!"));
        assert_eq!(find_word("a ab a", "a").collect::<Vec<_>>(), [0, 5]);
    }
}
