//! A progress line at the bottom of the terminal. Nothing where stderr is not a terminal.
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// No line: the terminal belongs to the process that started this one.
    pub(crate) fn none() -> Self {
        Self { bar: None }
    }

    pub(crate) fn text() -> Self {
        Self::begin(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed_precise}  {msg}");
            ProgressBar::new_spinner().with_style(style.expect("a template"))
        })
    }

    pub(crate) fn bar(time: Duration) -> Self {
        Self::begin(|| {
            let style = ProgressStyle::with_template("{bar:24} {msg}");
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            ProgressBar::new(millis).with_style(style.expect("a template"))
        })
    }

    fn begin(make: impl FnOnce() -> ProgressBar) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = make();
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        *shown() = Some(bar.clone());
        Self { bar: Some(bar) }
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    pub(crate) fn set_text(&self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.tick();
        }
    }

    pub(crate) fn set_elapsed(&self, elapsed: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            *shown() = None;
            bar.finish_and_clear();
        }
    }
}

pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    let bar = shown().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
