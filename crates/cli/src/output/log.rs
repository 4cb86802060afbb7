//! Log messages of the library, on stderr.
use super::progress;
use std::env;
use std::io::{self, Write};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

/// Shows warnings, with `verbose` more; `RUST_LOG` decides where it is set.
pub(crate) fn begin(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let asked = env::var("RUST_LOG").unwrap_or_default().replace(' ', "");
    let asked = (!asked.is_empty()).then(|| asked.parse::<Targets>().ok()).flatten();
    let filter = asked.unwrap_or_else(|| level.parse().expect("a level is a filter"));
    let lines = fmt::layer()
        .with_writer(|| AboveProgress)
        .with_ansi(false)
        .with_target(verbose > 1)
        .log_internal_errors(false);
    let lines = if verbose == 0 { lines.without_time().boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

struct AboveProgress;

impl Write for AboveProgress {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        progress::above(|| io::stderr().lock().write(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
