//! One directory a device, one file a frame.
//!
//! `OUT/DEVICE/000000000042` holds exactly the bytes of frame 42, so `cat OUT/DEVICE/*` is the
//! stream. A file appears whole or not at all: it is written without a name and linked into place
//! when it is complete, so that nothing is left when the collector is killed in between. (Where
//! the file system cannot do that, a hidden file is renamed; the next start removes leftovers.)
//! Its time of modification is the frame's capture time.
use super::{DeviceSink, Rejected, Sink, SinkError};
use crate::Frame;
use crate::session::check::NUMBER_MAX;
use catchment_verbs::event;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Digits of a frame's file name: enough for 30,000 years at one frame a second, or 31 at 1,000.
const NAME_DIGITS: usize = 12;
/// Prefix of files that are still being written, where they need a name at all.
const PARTIAL_PREFIX: &str = ".partial-";
/// Frames written between two checks of the free space.
const SPACE_CHECK_FRAMES: u64 = 32;
/// Space left free for others on the file system.
const RESERVE_BYTES: u64 = 256 << 20;

/// How much of the disk the frames may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskLimit {
    /// All frames stay, until the file system is nearly full; then devices wait for space.
    #[default]
    KeepAll,
    /// Only this many newest frames of each device stay.
    KeepNewest(u64),
}

/// Writes frames below one directory.
#[derive(Debug, Clone)]
pub struct DirectorySink {
    root: PathBuf,
    limit: DiskLimit,
}

impl DirectorySink {
    /// A sink that writes below `root`, which is made if it is not there.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), limit: DiskLimit::KeepAll }
    }

    /// The same with a limit.
    #[must_use]
    pub fn limit(self, limit: DiskLimit) -> Self {
        Self { limit, ..self }
    }
}

impl Sink for DirectorySink {
    fn open(&self, device: &str) -> Result<Box<dyn DeviceSink>, SinkError> {
        let path = self.root.join(device);
        std::fs::create_dir_all(&path).map_err(io_error("create", &path))?;
        let stored = scan(&path)?;
        let mut sink = DeviceDirectory {
            next: stored.back().map(|newest| newest + 1),
            stored,
            path,
            limit: self.limit,
            unnamed: true,
            until_space_check: 0,
        };
        sink.forget_oldest()?;
        Ok(Box::new(sink))
    }
}

/// The numbers of the frames that are there, in order. Removes what a killed collector left.
fn scan(path: &Path) -> Result<VecDeque<u64>, SinkError> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io_error("list", path))? {
        let entry = entry.map_err(io_error("list", path))?;
        let name = entry.file_name();
        match name.to_str() {
            Some(name) if name.starts_with(PARTIAL_PREFIX) => {
                std::fs::remove_file(entry.path()).map_err(io_error("remove", &entry.path()))?;
            }
            Some(name) if frame_number(name).is_some() => numbers.extend(frame_number(name)),
            Some(name) if name.starts_with('.') => {}
            _ => {
                return Err(SinkError::ForeignFile { path: entry.path(), digits: NAME_DIGITS });
            }
        }
    }
    numbers.sort_unstable();
    Ok(numbers.into())
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

struct DeviceDirectory {
    path: PathBuf,
    limit: DiskLimit,
    next: Option<u64>,
    /// Frames on disk, oldest first; kept only to delete the oldest.
    stored: VecDeque<u64>,
    /// Whether the file system can hold a file without a name.
    unnamed: bool,
    until_space_check: u64,
}

impl DeviceSink for DeviceDirectory {
    fn next_packet(&self) -> Option<u64> {
        self.next
    }

    fn accept(&mut self, frame: Frame) -> Result<(), Rejected> {
        match self.store(&frame) {
            Ok(()) => Ok(()),
            Err(error) => Err(Rejected { frame, error }),
        }
    }
}

impl DeviceDirectory {
    fn store(&mut self, frame: &Frame) -> Result<(), SinkError> {
        let number = frame.packet_number();
        if self.next.is_some_and(|next| number < next) {
            return Ok(());
        }
        self.check_space()?;
        let target = self.frame_path(number);
        if self.unnamed {
            match self.write_unnamed(frame, &target) {
                Err(error) if cannot_be_unnamed(&error) => {
                    self.unnamed = false;
                    self.write_renamed(frame, &target)
                }
                other => other,
            }
        } else {
            self.write_renamed(frame, &target)
        }
        .map_err(io_error("write", &target))?;
        self.next = Some(number + 1);
        self.stored.push_back(number);
        self.forget_oldest()
    }

    fn frame_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0NAME_DIGITS$}"))
    }

    fn write_unnamed(&self, frame: &Frame, target: &Path) -> io::Result<()> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::from_raw_mode(0o644))?;
        write_with_time(frame, &file)?;
        let ours = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, ours, CWD, target, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    fn write_renamed(&self, frame: &Frame, target: &Path) -> io::Result<()> {
        let partial = self.path.join(format!("{PARTIAL_PREFIX}{}", frame.packet_number()));
        let written = File::create(&partial)
            .and_then(|file| write_with_time(frame, &file))
            .and_then(|()| std::fs::rename(&partial, target));
        if written.is_err() {
            let _ = std::fs::remove_file(&partial);
        }
        written
    }

    fn check_space(&mut self) -> Result<(), SinkError> {
        if self.until_space_check > 0 {
            self.until_space_check -= 1;
            return Ok(());
        }
        let stat = rustix::fs::statvfs(&self.path)
            .map_err(|e| io_error("check the free space of", &self.path)(e.into()))?;
        let available_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        if available_bytes < RESERVE_BYTES {
            return Err(SinkError::DiskFull {
                path: self.path.clone(),
                available_bytes,
                reserve_bytes: RESERVE_BYTES,
            });
        }
        self.until_space_check = SPACE_CHECK_FRAMES;
        Ok(())
    }

    fn forget_oldest(&mut self) -> Result<(), SinkError> {
        let DiskLimit::KeepNewest(frames) = self.limit else {
            self.stored.clear();
            return Ok(());
        };
        while self.stored.len() as u64 > frames.max(1) {
            let Some(oldest) = self.stored.pop_front() else { break };
            let path = self.frame_path(oldest);
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(io_error("remove", &path)(e)),
            }
        }
        Ok(())
    }
}

/// Writes the frame, and its capture time as that of the file.
fn write_with_time(frame: &Frame, file: impl AsFd) -> io::Result<()> {
    frame.write_to(&file)?;
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps {
        last_access: unchanged,
        last_modification: event::timespec(Duration::from_nanos(frame.capture_time_ns)),
    };
    // A file system that keeps no times still keeps frames.
    let _ = rustix::fs::futimens(&file, &times);
    Ok(())
}

/// Whether the file system, and not this frame, is why an unnamed file could not be written.
fn cannot_be_unnamed(error: &io::Error) -> bool {
    let unsupported = [
        rustix::io::Errno::OPNOTSUPP,
        rustix::io::Errno::ISDIR,
        rustix::io::Errno::INVAL,
        rustix::io::Errno::NOENT,
    ];
    unsupported.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameBytes;

    fn frame(number: u64, bytes: &[u8]) -> Frame {
        Frame {
            device: "cam0".into(),
            packet_number: number,
            capture_time_ns: 0,
            verified: false,
            bytes: FrameBytes::Assembled { bytes: bytes.to_vec(), last: None, _staged: None },
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_files_in_order_are_the_stream() {
        let root = tempfile::tempdir().unwrap();
        let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
        for n in 0..11 {
            sink.accept(frame(n, format!("<{n}>").as_bytes())).unwrap();
        }
        let dir = root.path().join("cam0");
        let stream: String = names(&dir)
            .iter()
            .map(|name| std::fs::read_to_string(dir.join(name)).unwrap())
            .collect();
        assert_eq!(stream, "<0><1><2><3><4><5><6><7><8><9><10>");
    }

    #[test]
    fn a_new_collector_goes_on_after_the_newest_frame_and_clears_leftovers() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("cam0");
        let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
        assert_eq!(sink.next_packet(), None);
        sink.accept(frame(7, b"seven")).unwrap();
        std::fs::write(dir.join(".partial-8"), b"torn").unwrap();
        let mut again = DirectorySink::new(root.path()).open("cam0").unwrap();
        assert_eq!(again.next_packet(), Some(8));
        assert_eq!(names(&dir), ["000000000007"]);
        again.accept(frame(7, b"a second seven")).unwrap();
        assert_eq!(std::fs::read(dir.join("000000000007")).unwrap(), b"seven");
    }

    #[test]
    fn only_the_newest_frames_stay() {
        let root = tempfile::tempdir().unwrap();
        let mut sink =
            DirectorySink::new(root.path()).limit(DiskLimit::KeepNewest(3)).open("cam0").unwrap();
        (0..10).for_each(|n| sink.accept(frame(n, b"x")).unwrap());
        let kept = names(&root.path().join("cam0"));
        assert_eq!(kept, ["000000000007", "000000000008", "000000000009"]);
        DirectorySink::new(root.path()).limit(DiskLimit::KeepNewest(1)).open("cam0").unwrap();
        assert_eq!(names(&root.path().join("cam0")), ["000000000009"]);
    }

    #[test]
    fn without_unnamed_files_a_rename_does_the_same() {
        let root = tempfile::tempdir().unwrap();
        let mut sink = DeviceDirectory {
            path: root.path().to_owned(),
            limit: DiskLimit::KeepAll,
            next: None,
            stored: VecDeque::new(),
            unnamed: false,
            until_space_check: 0,
        };
        sink.accept(frame(3, b"three")).unwrap();
        assert_eq!(names(root.path()), ["000000000003"]);
    }

    #[test]
    fn a_directory_with_something_else_in_it_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("cam0")).unwrap();
        std::fs::write(root.path().join("cam0/notes.txt"), b"x").unwrap();
        let Err(error) = DirectorySink::new(root.path()).open("cam0") else {
            panic!("accepted a foreign file");
        };
        assert!(error.to_string().contains("notes.txt"), "{error}");
    }

    #[test]
    fn a_frame_that_cannot_be_written_comes_back() {
        let root = tempfile::tempdir().unwrap();
        let mut sink = DirectorySink::new(root.path()).open("cam0").unwrap();
        std::fs::remove_dir(root.path().join("cam0")).unwrap();
        let rejected = sink.accept(frame(0, b"kept")).unwrap_err();
        assert_eq!(rejected.frame.to_vec(), b"kept");
        std::fs::create_dir(root.path().join("cam0")).unwrap();
        sink.accept(rejected.frame).unwrap();
    }
}
