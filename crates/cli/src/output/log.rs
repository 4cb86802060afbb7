//! Log messages of the library, on stderr.
use super::progress;
use super::repeats::Repeats;
use std::io::{self, Write};
use std::sync::{LazyLock, Once};
use std::time::Instant;
use std::{env, thread};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

/// Shows warnings, with `verbose` more; `RUST_LOG` decides where it is set. Of warnings that repeat there
/// is one line, then one with their count.
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
        .with_writer(Lines)
        .with_ansi(false)
        .with_target(verbose > 1)
        .log_internal_errors(false);
    let lines = if verbose == 0 { lines.without_time().boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

/// Writes what warnings were left out because they said what others had said.
pub(crate) fn end() {
    write_all(&REPEATS.rest(Instant::now()));
}

/// The warnings of this process.
static REPEATS: LazyLock<Repeats> = LazyLock::new(Repeats::default);
/// Set once a thread writes the lines that are due.
static COUNTING: Once = Once::new();

fn write_all(lines: &[String]) {
    for line in lines {
        // A closed stderr is the user's choice.
        let _ = progress::above(|| io::stderr().lock().write_all(line.as_bytes()));
    }
}

fn write_counted() {
    loop {
        write_all(&REPEATS.wait());
    }
}

struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = AboveProgress;

    fn make_writer(&'a self) -> AboveProgress {
        AboveProgress { limited: false }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> AboveProgress {
        AboveProgress { limited: *meta.level() <= Level::WARN }
    }
}

/// Gets each line in one piece.
struct AboveProgress {
    /// It is written once, then counted.
    limited: bool,
}

impl Write for AboveProgress {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.limited && !REPEATS.take(&String::from_utf8_lossy(text), Instant::now()) {
            // Without the thread, the count is said at the end.
            let thread = || thread::Builder::new().name("log".to_owned()).spawn(write_counted);
            COUNTING.call_once(|| drop(thread()));
            return Ok(text.len());
        }
        progress::above(|| io::stderr().lock().write(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
