//! What the command writes: results on stdout, messages on stderr.
pub(crate) mod events;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod progress;
mod repeats;
pub(crate) mod table;
pub(crate) mod top;
pub(crate) mod units;

use crate::failure::{Code, Failure, error_text};
use serde::Serialize;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Writes a line to stderr, above the progress if there is one. Errors are ignored.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::message(&format!($($text)*))
    };
}
pub(crate) use say;

pub(crate) fn message(text: &str) {
    progress::above(|| {
        // A closed stderr is the user's choice.
        let _ = writeln!(io::stderr().lock(), "{text}");
    });
}

pub(crate) fn report(failure: Failure) -> ExitCode {
    match failure {
        Failure::OutputClosed => ExitCode::SUCCESS,
        Failure::Silent(code) => ExitCode::from(code),
        Failure::Reported { code, error, hint } => {
            say!("{}", error_text(&error, hint.as_deref()));
            ExitCode::from(code as u8)
        }
    }
}

pub(crate) fn print(text: &str) -> Result<(), Failure> {
    progress::above(|| {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    })
    .map_err(not_written)
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    match serde_json::to_string(value) {
        Ok(line) => print(&format!("{line}\n")),
        Err(error) => Err(Failure::new(Code::Failed, error)),
    }
}

fn not_written(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::OutputClosed;
    }
    Failure::new(Code::Failed, anyhow::Error::new(error).context("cannot write to stdout"))
}
