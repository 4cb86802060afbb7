//! Words and comments in lines of text.
//!
//! A line of Rust is split at `//` or `/*`, even in a string: what rules refuse in comments is as wrong
//! there.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the positions of `word` in `text` as a whole word. If `word` itself begins or ends with a
/// character that is not part of words, as in `todo!`, that end needs no boundary.
pub(super) fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let glued_before = word.starts_with(is_word) && text[..*at].ends_with(is_word);
        let glued_after = word.ends_with(is_word) && text[at + word.len()..].starts_with(is_word);
        !glued_before && !glued_after
    })
}

pub(super) fn has_word(text: &str, word: &str) -> bool {
    find_word(text, word).next().is_some()
}

/// Splits a line of Rust into code and comment.
pub(super) fn split_comment(line: &str) -> (&str, &str) {
    let starts = ["//", "/*"].into_iter().flat_map(|mark| line.match_indices(mark));
    let start = starts.map(|(at, _)| at).filter(|at| !line[..*at].ends_with(':')).min();
    line.split_at(start.unwrap_or(line.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_boundaries() {
        assert!(has_word("let x = unsafe { y };", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(has_word("    todo!()", "todo!"));
        assert!(!has_word("    mytodo!()", "todo!"));
        assert_eq!(find_word("a ab a", "a").collect::<Vec<_>>(), [0, 5]);
    }

    #[test]
    fn a_comment_is_distinguished_from_code_and_addresses() {
        for (line, comment) in [
            ("let a = 1; // unsafe", "// unsafe"),
            ("/// doc", "/// doc"),
            ("a /* b", "/* b"),
            ("let a = \"https://b.org\"; // c", "// c"),
            ("f()", ""),
        ] {
            assert_eq!(split_comment(line).1, comment);
        }
    }
}
