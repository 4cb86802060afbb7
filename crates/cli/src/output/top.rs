//! What is shown again each second, until Ctrl-C.
use super::{print, print_json};
use crate::failure::Failure;
use crate::stop;
use serde::Serialize;
use std::io::IsTerminal as _;
use std::time::Duration;

const TICK: Duration = Duration::from_secs(1);
/// Clears a terminal, and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Shows what `look` finds: as JSON lines, or as `text` says it, in place of what was there before in a terminal.
pub(crate) fn show<T: Serialize>(
    json: bool,
    mut look: impl FnMut() -> Result<T, Failure>,
    text: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    let stop = stop::watch(false, || {})?;
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let found = look()?;
        if json {
            print_json(&found)?;
        } else {
            print(&format!("{clear}{}", text(&found)))?;
        }
        if stop.wait(TICK) {
            return Ok(());
        }
    }
}
