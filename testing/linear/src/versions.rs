//! The order of writes is that of their versions; what was read stands behind its version.
use crate::{Absence, Deleted, Event, Fault, Replaced, Seen, What, by_key};
use std::collections::BTreeMap;

/// Where an operation stands: a version, and whether it reads it or makes it.
type Order = (u64, bool);

/// Who made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// A write of this value.
    Value(u64),
    Deletion,
}

/// Checks a history.
///
/// # Errors
/// The first fault.
pub fn check(history: &[Event]) -> Result<(), Fault> {
    for (key, events) in by_key(history) {
        check_key(&events).map_err(|reason| Fault { key, reason })?;
    }
    Ok(())
}

fn check_key(events: &[Event]) -> Result<(), String> {
    let makers = makers(events)?;
    let pending_deletion =
        events.iter().any(|event| event.end.is_none() && matches!(event.what, What::Delete(_)));
    check_reads(events, &makers, pending_deletion)?;
    let mut starts: Vec<&Event> = events.iter().collect();
    starts.sort_by_key(|event| event.start);
    // Operations that have ended, by their ends; and the latest of them in the order.
    let mut ends: BTreeMap<u64, Vec<Order>> = BTreeMap::new();
    let mut passed: Option<(Order, u64)> = None;
    for event in starts {
        while let Some(entry) = ends.first_entry().filter(|entry| *entry.key() < event.start) {
            let (end, orders) = entry.remove_entry();
            for order in orders {
                if passed.is_none_or(|(most, _)| order > most) {
                    passed = Some((order, end));
                }
            }
        }
        let order = match order(event, &makers, pending_deletion) {
            Place::At(order) => order,
            Place::Absent => absent(passed.map(|(order, _)| order), &makers)?,
            Place::Anywhere => continue,
        };
        if let Some((most, end)) = passed
            && order < most
        {
            return Err(format!(
                "{event:?} stands at {order:?}, but one that ended at {end} stands at {most:?}"
            ));
        }
        if let Some(end) = event.end {
            ends.entry(end).or_default().push(order);
        }
    }
    Ok(())
}

enum Place {
    At(Order),
    /// Wherever there is no value.
    Absent,
    Anywhere,
}

fn order(event: &Event, makers: &BTreeMap<u64, Maker>, pending_deletion: bool) -> Place {
    if event.end.is_none() {
        let value = match event.what {
            What::Put { value, .. } | What::Replace { value, .. } => value,
            What::Get(_) | What::Delete(_) => return Place::Anywhere,
        };
        let made = makers.iter().find(|(_, maker)| **maker == Maker::Value(value));
        return made.map_or(Place::Anywhere, |(version, _)| Place::At((*version, false)));
    }
    match event.what {
        What::Put { version, .. }
        | What::Replace { ended: Replaced::Stored { version }, .. }
        | What::Delete(Deleted::Done { version }) => Place::At((version, false)),
        What::Get(Seen::Value { version, .. } | Seen::Nothing(Absence::Deleted { version }))
        | What::Replace { ended: Replaced::Other { version }, .. }
        | What::Delete(Deleted::Nothing(Absence::Deleted { version })) => {
            Place::At((version, true))
        }
        // A deletion that nobody was told of may be what was seen.
        What::Get(Seen::Nothing(Absence::Unknown))
        | What::Replace { ended: Replaced::Nothing, .. }
        | What::Delete(Deleted::Nothing(Absence::Unknown)) => {
            if pending_deletion {
                Place::Anywhere
            } else {
                Place::Absent
            }
        }
    }
}

/// Returns the first place behind `passed` where there is no value.
fn absent(passed: Option<Order>, makers: &BTreeMap<u64, Maker>) -> Result<Order, String> {
    let Some((version, _)) = passed.filter(|(version, _)| *version > 0) else {
        return Ok((0, true));
    };
    let mut later = makers.range(version..).filter(|(_, maker)| **maker == Maker::Deletion);
    later
        .next()
        .map(|(version, _)| (*version, true))
        .ok_or_else(|| format!("there was nothing, but version {version} is not deleted"))
}

fn makers(events: &[Event]) -> Result<BTreeMap<u64, Maker>, String> {
    let mut makers = BTreeMap::new();
    for event in events.iter().filter(|event| event.end.is_some()) {
        let (version, maker) = match event.what {
            What::Put { value, version }
            | What::Replace { value, ended: Replaced::Stored { version }, .. } => {
                (version, Maker::Value(value))
            }
            What::Delete(Deleted::Done { version }) => (version, Maker::Deletion),
            What::Get(_) | What::Replace { .. } | What::Delete(_) => continue,
        };
        if let Some(other) = makers.insert(version, maker) {
            return Err(format!("version {version} is that of {other:?} and of {maker:?}"));
        }
        if let What::Replace { only, .. } = event.what
            && version != only.0 + 1
        {
            return Err(format!("version {version} replaced {}, not its predecessor", only.0));
        }
    }
    add_unended(events, &mut makers);
    Ok(makers)
}

/// Adds what was seen of writes without an end.
fn add_unended(events: &[Event], makers: &mut BTreeMap<u64, Maker>) {
    let unended = events.iter().filter(|event| event.end.is_none());
    let values: Vec<u64> = unended
        .filter_map(|event| match event.what {
            What::Put { value, .. } | What::Replace { value, .. } => Some(value),
            What::Get(_) | What::Delete(_) => None,
        })
        .collect();
    for event in events.iter().filter(|event| event.end.is_some()) {
        if let What::Get(Seen::Value { value, version }) = event.what
            && values.contains(&value)
        {
            makers.entry(version).or_insert(Maker::Value(value));
        }
    }
}

fn check_reads(
    events: &[Event],
    makers: &BTreeMap<u64, Maker>,
    pending_deletion: bool,
) -> Result<(), String> {
    for event in events.iter().filter(|event| event.end.is_some()) {
        let (version, seen) = match event.what {
            What::Get(Seen::Value { value, version }) => (version, Maker::Value(value)),
            What::Get(Seen::Nothing(Absence::Deleted { version }))
            | What::Delete(Deleted::Nothing(Absence::Deleted { version })) => {
                (version, Maker::Deletion)
            }
            What::Get(_) | What::Put { .. } | What::Replace { .. } | What::Delete(_) => continue,
        };
        match makers.get(&version) {
            Some(maker) if *maker == seen => {}
            None if seen == Maker::Deletion && pending_deletion => {}
            made => return Err(format!("{event:?} saw {seen:?}, made was {made:?}")),
        }
    }
    Ok(())
}
