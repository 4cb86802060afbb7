//! How a command fails: its message and exit code.
use std::fmt::Write as _;

/// Exit codes. They are part of the interface: docs/reference/cli.md lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    Input = 4,
    Local = 5,
}

#[derive(Debug, derive_more::Display)]
pub(crate) enum Failure {
    #[display("{error}")]
    Reported {
        code: Code,
        error: anyhow::Error,
        /// What to do, where the error does not say it.
        hint: Option<String>,
    },
    /// Another process of this command has already printed the error.
    #[display("exit code {_0}")]
    Silent(u8),
    /// The reader of our output has gone, as in `catchment ... | head`.
    #[display("the output was closed")]
    OutputClosed,
}

impl Failure {
    pub(crate) fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self::Reported { code, error: error.into(), hint: None }
    }

    pub(crate) fn hint(self, advice: impl Into<String>) -> Self {
        match self {
            Self::Reported { code, error, .. } => {
                Self::Reported { code, error, hint: Some(advice.into()) }
            }
            Self::Silent(_) | Self::OutputClosed => self,
        }
    }
}

/// Returns the error, then its causes unless already contained, then the hint.
pub(crate) fn error_text(error: &anyhow::Error, hint: Option<&str>) -> String {
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            let _ = write!(text, "\n  because: {cause}");
        }
    }
    if let Some(hint) = hint {
        let _ = write!(text, "\nhint: {hint}");
    }
    text
}

pub(crate) trait OrFail<T> {
    fn or_fail(self, code: Code) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, code: Code) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(code, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn causes_are_shown_once() {
        let inner = std::io::Error::other("disk on fire");
        let outer = Err::<(), _>(inner).context("cannot write /out").unwrap_err();
        let text = error_text(&outer, Some("use another disk"));
        assert_eq!(
            text,
            "error: cannot write /out\n  because: disk on fire\nhint: use another disk"
        );
        let repeated = Err::<(), _>(anyhow!("no")).context("it said: no").unwrap_err();
        assert_eq!(error_text(&repeated, None), "error: it said: no");
    }
}
