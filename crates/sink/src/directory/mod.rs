//! One directory a device, one file a frame.
//!
//! `OUT/DEVICE/000000000042` holds exactly the bytes of frame 42, so `cat OUT/DEVICE/*` is the
//! stream. A file appears whole or not at all: it is written without a name and linked into place
//! when it is complete, so that nothing is left when the collector is killed in between. (Where
//! the file system cannot do that, a hidden file is renamed; the next start removes leftovers.)
//! Its time of modification is the frame's capture time. The directory of a device is made with its first
//! frame, and again when somebody has removed it.
//!
//! Hidden files beside the frames say what these hold (`formats`), one in `OUT` which process writes
//! there (`lock`).
mod device;
mod formats;
mod lock;
#[cfg(test)]
mod tests;

use super::{DeviceSink, Sink, SinkError};
use catchment_session::check::NUMBER_MAX;
use catchment_verbs::sync::Mutex;
use device::DeviceDirectory;
use formats::Formats;
use lock::RootLock;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Digits of a frame's file name: enough for 30,000 years at one frame a second, or 31 at 1,000.
const NAME_DIGITS: usize = 12;
/// Prefix of files that are still being written, where they need a name at all.
const PARTIAL_PREFIX: &str = ".partial-";
/// How much of the disk the frames may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskLimit {
    /// All frames stay, until the file system is nearly full; then devices wait for space.
    #[default]
    KeepAll,
    /// Only this many newest frames of each device stay, and fewer where the file system is nearly full.
    KeepNewest(u64),
}

/// Writes frames below one directory.
#[derive(Debug, Clone)]
pub struct DirectorySink {
    root: Arc<Path>,
    limit: DiskLimit,
    /// From [`Sink::begin`] on.
    lock: Arc<Mutex<Option<RootLock>>>,
}

impl DirectorySink {
    /// A sink that writes below `root`, which is made if it is not there.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into().into();
        Self { root, limit: DiskLimit::KeepAll, lock: Arc::default() }
    }

    /// The same with a limit.
    #[must_use]
    pub fn limit(self, limit: DiskLimit) -> Self {
        Self { limit, ..self }
    }
}

impl DirectorySink {
    /// Makes a device's directory, again if it was there. Not in another collector's.
    fn make(&self, directory: &Path) -> Result<(), SinkError> {
        if let Some(lock) = &mut *self.lock.lock()
            && !lock.is_there()
        {
            *lock = RootLock::take(&self.root)?;
        }
        std::fs::create_dir_all(directory).map_err(io_error("create", directory))
    }
}

impl Sink for DirectorySink {
    fn begin(&self) -> Result<(), SinkError> {
        let mut lock = self.lock.lock();
        if lock.is_none() {
            *lock = Some(RootLock::take(&self.root)?);
        }
        Ok(())
    }

    fn open(&self, device: &str) -> Result<Box<dyn DeviceSink>, SinkError> {
        let path = self.root.join(device);
        let (stored, formats) = scan(&path)?;
        let mut sink = DeviceDirectory::new(self.clone(), path, stored, formats);
        sink.forget_oldest()?;
        Ok(Box::new(sink))
    }
}

/// The numbers of the frames that are there, in order, and what they hold. Removes what a killed collector
/// left.
fn scan(path: &Path) -> Result<(VecDeque<u64>, Formats), SinkError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(io_error("list", path)(error)),
    };
    let (mut numbers, mut format) = (Vec::new(), 0);
    for entry in entries {
        let entry = entry.map_err(io_error("list", path))?;
        let name = entry.file_name();
        match name.to_str() {
            Some(name) if name.starts_with(PARTIAL_PREFIX) => {
                std::fs::remove_file(entry.path()).map_err(io_error("remove", &entry.path()))?;
            }
            Some(name) if frame_number(name).is_some() => numbers.extend(frame_number(name)),
            Some(name) if name.starts_with('.') => {
                format = format.max(formats::number_of(name).unwrap_or(0));
            }
            _ => {
                return Err(SinkError::ForeignFile { path: entry.path(), digits: NAME_DIGITS });
            }
        }
    }
    numbers.sort_unstable();
    let formats = if format > 0 { Formats::read(path, format)? } else { Formats::default() };
    Ok((numbers.into(), formats))
}

/// The number of the frame in a file of this name, if it is one that a source can have sent.
fn frame_number(name: &str) -> Option<u64> {
    let ours = name.len() >= NAME_DIGITS && name.bytes().all(|b| b.is_ascii_digit());
    let number = ours.then(|| name.parse().ok())?;
    number.filter(|number| *number < NUMBER_MAX)
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SinkError {
    move |source| SinkError::Io { action, path: path.to_owned(), source }
}
