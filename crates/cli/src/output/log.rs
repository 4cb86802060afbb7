//! What the library reports while it works, on stderr.

use super::progress;
use std::io::{self, Write};
use tracing_subscriber::EnvFilter;

/// Shows warnings, with `verbose` more; `RUST_LOG` decides where it is set.
pub(crate) fn begin(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| AboveProgress)
        .with_ansi(false)
        .with_target(verbose > 1)
        .log_internal_errors(false);
    if verbose == 0 {
        log.without_time().init();
    } else {
        log.init();
    }
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
