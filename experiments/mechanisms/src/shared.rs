//! What the ends of several mechanisms share: the error that ended them, and a queue pair that any
//! thread may use.
use super::EndError;
use crossbeam_utils::atomic::AtomicCell;
use std::sync::OnceLock;

/// The first error of an end: every later call fails with it.
#[derive(Default)]
pub(crate) struct FirstError(OnceLock<EndError>);

impl FirstError {
    #[inline]
    pub(crate) fn check(&self) -> Result<(), EndError> {
        match self.0.get() {
            None => Ok(()),
            Some(error) => Err(*error),
        }
    }

    /// Ends the session; returns the error that was first.
    #[cold]
    pub(crate) fn set(&self, error: EndError) -> EndError {
        *self.0.get_or_init(|| error)
    }
}

/// A queue pair that one thread at a time uses.
pub(crate) struct InTurn<L>(AtomicCell<Option<Box<L>>>);

impl<L> InTurn<L> {
    pub(crate) fn new(link: L) -> Self {
        Self(AtomicCell::new(Some(Box::new(link))))
    }

    /// Lets `work` use it until `is_more_due` says no to what it returned, unless another thread has
    /// it: that one asks once more after it has put it back. To take it and to put it back are
    /// exchanges of one value, so who comes in vain has left its work before that question.
    pub(crate) fn work<T>(
        &self,
        mut work: impl FnMut(&mut L) -> Result<T, EndError>,
        is_more_due: impl Fn(T) -> bool,
    ) -> Result<(), EndError> {
        while let Some(result) = self.with(&mut work) {
            if !is_more_due(result?) {
                break;
            }
        }
        Ok(())
    }

    /// Uses it once; `None` while another thread has it.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut L) -> T) -> Option<T> {
        let mut link = self.0.take()?;
        let result = work(&mut link);
        let before = self.0.swap(Some(link));
        debug_assert!(before.is_none(), "two threads have one queue pair");
        Some(result)
    }
}
