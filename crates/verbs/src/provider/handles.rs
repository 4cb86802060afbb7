//! Objects that requests refer to by number.
use super::full;
use crate::VerbsError;
use crate::sync::Mutex;
use std::collections::{HashMap, hash_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An object with its number.
#[derive(Debug)]
pub struct Handle<T> {
    number: u32,
    valid: AtomicBool,
    /// The object.
    pub object: T,
}

impl<T> Handle<T> {
    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns false once it was removed, although a request may still hold it.
    pub fn is_valid(&self) -> bool {
        self.valid.load(Ordering::Acquire)
    }
}

/// The numbered objects of one kind of a device, up to a limit. Looking one up takes a lock: a
/// caller that uses the same one repeatedly keeps it and checks [`Handle::is_valid`], as [`RecentHandle`] does.
#[derive(Debug)]
pub struct HandleTable<T> {
    what: &'static str,
    most: usize,
    handles: Mutex<Handles<T>>,
}

#[derive(Debug)]
struct Handles<T> {
    last: u32,
    all: HashMap<u32, Arc<Handle<T>>>,
}

impl<T> HandleTable<T> {
    /// Creates an empty table; `what` names the objects in errors.
    pub fn new(what: &'static str, most: usize) -> Self {
        Self { what, most, handles: Mutex::new(Handles { last: 0, all: HashMap::new() }) }
    }

    /// Adds an object under a number that is not reused as far as 32 bits reach.
    ///
    /// # Errors
    /// [`VerbsError::Limit`] when the table is full.
    pub fn add(&self, object: T) -> Result<Arc<Handle<T>>, VerbsError> {
        let mut handles = self.handles.lock();
        if handles.all.len() >= self.most {
            return Err(full(self.what, self.most));
        }
        let number = loop {
            handles.last = handles.last.wrapping_add(1);
            if !handles.all.contains_key(&handles.last) {
                break handles.last;
            }
        };
        let handle = Arc::new(Handle { number, valid: AtomicBool::new(true), object });
        handles.all.insert(number, Arc::clone(&handle));
        Ok(handle)
    }

    /// Adds an object under a number that somebody else gives out; `None` if another one has it.
    pub fn add_as(&self, number: u32, object: T) -> Option<Arc<Handle<T>>> {
        let mut handles = self.handles.lock();
        let hash_map::Entry::Vacant(entry) = handles.all.entry(number) else { return None };
        let handle = Arc::new(Handle { number, valid: AtomicBool::new(true), object });
        entry.insert(Arc::clone(&handle));
        Some(handle)
    }

    /// Returns the object with this number.
    pub fn find(&self, number: u32) -> Option<Arc<Handle<T>>> {
        self.handles.lock().all.get(&number).map(Arc::clone)
    }

    /// Removes an object.
    pub fn remove(&self, handle: &Handle<T>) {
        handle.valid.store(false, Ordering::Release);
        self.handles.lock().all.remove(&handle.number);
    }
}

/// The object that a caller found last: to find it again takes no lock.
#[derive(Debug)]
pub struct RecentHandle<T>(Option<Arc<Handle<T>>>);

impl<T> Default for RecentHandle<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> RecentHandle<T> {
    /// Returns the object with this number in the table; `None` if there is none that the caller may use.
    #[inline]
    pub fn find(
        &mut self,
        table: &HandleTable<T>,
        number: u32,
        may_use: impl FnOnce(&T) -> bool,
    ) -> Option<&Arc<Handle<T>>> {
        if !self.0.as_ref().is_some_and(|known| known.number == number && known.is_valid()) {
            self.0 = table.find(number).filter(|found| may_use(&found.object));
        }
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_object_until_it_is_removed() {
        let table = HandleTable::new("things", 2);
        let (a, b) = (table.add('a').unwrap(), table.add('b').unwrap());
        assert_ne!(a.number(), b.number());
        assert_eq!(table.find(b.number()).unwrap().object, 'b');
        let error = table.add('c').unwrap_err();
        assert_eq!(error.to_string(), "things = 3 is beyond this device's limit of 2");
        table.remove(&a);
        assert!(!a.is_valid() && b.is_valid());
        assert!(table.find(a.number()).is_none());
        let c = table.add('c').unwrap();
        assert!(![a.number(), b.number()].contains(&c.number()));
    }

    #[test]
    fn a_number_that_somebody_else_gave_is_taken_once() {
        let table = HandleTable::new("things", 2);
        let a = table.add_as(70, 'a').unwrap();
        assert!(table.add_as(70, 'b').is_none());
        assert_eq!(table.find(70).unwrap().object, 'a');
        table.remove(&a);
        assert_eq!(table.add_as(70, 'b').unwrap().object, 'b');
    }

    #[test]
    fn what_was_found_last_is_found_until_it_is_removed() {
        let table = HandleTable::new("things", 2);
        let (a, b) = (table.add('a').unwrap(), table.add('b').unwrap());
        let mut recent = RecentHandle::default();
        let mut find = |number| recent.find(&table, number, |found| *found == 'a').cloned();
        assert_eq!(find(a.number()).unwrap().object, 'a');
        assert_eq!(find(a.number()).unwrap().object, 'a');
        assert!(find(b.number()).is_none(), "not one that it may use");
        assert_eq!(find(a.number()).unwrap().object, 'a');
        table.remove(&a);
        assert!(find(a.number()).is_none());
    }
}
