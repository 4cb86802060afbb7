//! Looks for an order that explains the values that were seen.
use crate::{Deleted, Event, Fault, Replaced, Seen, What, by_key};
use std::collections::HashSet;

/// So many states of one key are looked at; a history that needs more is too long for this checker.
const STATES_MAX: usize = 2_000_000;

/// Checks a history.
///
/// # Errors
/// The first fault.
///
/// # Panics
/// When the history of a key has too much at a time.
pub fn check(history: &[Event]) -> Result<(), Fault> {
    for (key, events) in by_key(history) {
        let longest = Search::new(events).run();
        longest.map_err(|reason| Fault { key, reason })?;
    }
    Ok(())
}

/// Returns the value after an operation, or `None` if it cannot have ended so.
fn apply(event: &Event, value: Option<u64>) -> Option<Option<u64>> {
    let unended = event.end.is_none();
    match event.what {
        What::Get(_) if unended => Some(value),
        What::Get(Seen::Value { value: seen, .. }) => (value == Some(seen)).then_some(value),
        What::Get(Seen::Nothing(_)) => value.is_none().then_some(value),
        What::Put { value, .. } => Some(Some(value)),
        What::Replace { value: new, only, ended } => {
            let is_there = value == Some(only.1);
            match ended {
                _ if unended => Some(if is_there { Some(new) } else { value }),
                Replaced::Stored { .. } => is_there.then_some(Some(new)),
                Replaced::Other { .. } => (value.is_some() && !is_there).then_some(value),
                Replaced::Nothing => value.is_none().then_some(value),
            }
        }
        What::Delete(_) if unended => Some(None),
        What::Delete(Deleted::Done { .. }) => value.is_some().then_some(None),
        What::Delete(Deleted::Nothing(_)) => value.is_none().then_some(value),
    }
}

struct Search {
    /// By their starts.
    events: Vec<Event>,
    done: Vec<u64>,
    tried: HashSet<(Vec<u64>, Option<u64>)>,
}

impl Search {
    fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.start);
        let done = vec![0; events.len().div_ceil(64)];
        Self { events, done, tried: HashSet::new() }
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64] >> (index % 64) & 1 == 1
    }

    fn flip(&mut self, index: usize) {
        self.done[index / 64] ^= 1 << (index % 64);
    }

    /// Returns those that may come next: nothing that is not done has ended before they start. `None` if all that
    /// have ended are done.
    fn next(&self) -> Option<Vec<usize>> {
        let left: Vec<usize> =
            (0..self.events.len()).filter(|index| !self.is_done(*index)).collect();
        let first_end = left.iter().filter_map(|index| self.events[*index].end).min()?;
        let may = |index: &usize| self.events[*index].start <= first_end;
        Some(left.into_iter().filter(may).collect())
    }

    fn run(&mut self) -> Result<(), String> {
        // What was done, and the value before it; then those that are to be tried in its place.
        let mut path: Vec<(usize, Option<u64>, Vec<usize>)> = Vec::new();
        let (mut value, mut best) = (None, 0);
        let Some(mut choices) = self.next() else { return Ok(()) };
        loop {
            if let Some(index) = choices.pop() {
                let Some(after) = apply(&self.events[index], value) else { continue };
                self.flip(index);
                if !self.tried.insert((self.done.clone(), after)) {
                    self.flip(index);
                    continue;
                }
                assert!(self.tried.len() < STATES_MAX, "too much at a time for this checker");
                path.push((index, value, std::mem::take(&mut choices)));
                best = best.max(path.len());
                value = after;
                match self.next() {
                    None => return Ok(()),
                    Some(next) => choices = next,
                }
            } else if let Some((index, before, others)) = path.pop() {
                self.flip(index);
                (value, choices) = (before, others);
            } else {
                let all = self.events.len();
                return Err(format!("no order explains more than {best} of its {all} operations"));
            }
        }
    }
}
