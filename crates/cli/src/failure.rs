//! How a command ends when it does not succeed: what it says, and with which exit code.
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
    Told {
        code: Code,
        error: anyhow::Error,
        /// What to do, where the error does not say it.
        hint: Option<String>,
    },
    /// Another process of this command has told the user already.
    #[display("exit code {_0}")]
    Silent(u8),
    /// Nobody reads our output any more, as in `catchment ... | head`.
    #[display("the output was closed")]
    OutputClosed,
}

impl Failure {
    pub(crate) fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self::Told { code, error: error.into(), hint: None }
    }

    pub(crate) fn hint(self, advice: impl Into<String>) -> Self {
        match self {
            Self::Told { code, error, .. } => Self::Told { code, error, hint: Some(advice.into()) },
            Self::Silent(_) | Self::OutputClosed => self,
        }
    }
}

/// Returns the error, then its causes as far as they say something new, then the advice.
pub(crate) fn told(error: &anyhow::Error, hint: Option<&str>) -> String {
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
    fn causes_are_told_once() {
        let inner = std::io::Error::other("disk on fire");
        let outer = Err::<(), _>(inner).context("cannot write /out").unwrap_err();
        let text = told(&outer, Some("use another disk"));
        assert_eq!(
            text,
            "error: cannot write /out\n  because: disk on fire\nhint: use another disk"
        );
        let repeated = Err::<(), _>(anyhow!("no")).context("it said: no").unwrap_err();
        assert_eq!(told(&repeated, None), "error: it said: no");
    }
}
