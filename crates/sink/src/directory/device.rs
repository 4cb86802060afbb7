//! The frames of one device, as files of its directory.
use super::formats::Formats;
use super::{DirectorySink, DiskLimit, NAME_DIGITS, PARTIAL_PREFIX, io_error};
use crate::{DeviceSink, Frame, Rejected, SinkError};
use catchment_verbs::event;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Frames written between two checks of the free space, at most.
const SPACE_CHECK_FRAMES: u64 = 32;
/// Space left free for others on the file system: this, or on a small one a part of it.
const RESERVE_BYTES: u64 = 256 << 20;
const RESERVE_PART: u64 = 20;

pub(super) struct DeviceDirectory {
    sink: DirectorySink,
    path: PathBuf,
    pub(super) next: Option<u64>,
    /// Frames on disk, oldest first; kept only to delete the oldest.
    stored: VecDeque<u64>,
    formats: Formats,
    /// Whether the directory was there when it was last used.
    made: bool,
    /// Whether the file system can hold a file without a name.
    pub(super) unnamed: bool,
    /// Frames and bytes to write before the free space is checked again.
    unchecked_frames: u64,
    unchecked_bytes: u64,
}

impl DeviceSink for DeviceDirectory {
    fn next_packet(&self) -> Option<u64> {
        self.next
    }

    fn describe(&mut self, format: &str) {
        self.formats.want(format);
    }

    fn accept(&mut self, frame: Frame) -> Result<(), Rejected> {
        match self.store(&frame) {
            Ok(()) => Ok(()),
            Err(error) => Err(Rejected { frame, error }),
        }
    }
}

impl DeviceDirectory {
    /// Of a device with these frames and descriptions.
    pub(super) fn new(
        sink: DirectorySink,
        path: PathBuf,
        stored: VecDeque<u64>,
        formats: Formats,
    ) -> Self {
        let next = stored.back().map(|newest| newest + 1);
        let (made, unnamed) = (false, true);
        let (unchecked_frames, unchecked_bytes) = (0, 0);
        Self { sink, path, next, stored, formats, made, unnamed, unchecked_frames, unchecked_bytes }
    }

    fn store(&mut self, frame: &Frame) -> Result<(), SinkError> {
        let number = frame.packet_number();
        if self.next.is_some_and(|next| number < next) {
            return Ok(());
        }
        let target = self.frame_path(number);
        loop {
            let error = match self.try_store(frame, &target) {
                Ok(()) => break,
                Err(SinkError::Io { source, .. }) if is_full(&source) => {
                    // This frame takes the place of the last one, if need be.
                    if self.drop_oldest(0)? {
                        continue;
                    }
                    return Err(self.disk_full(Space::of(&self.path)?));
                }
                Err(error) => error,
            };
            if !self.made || self.path.is_dir() {
                return Err(error);
            }
            // Somebody has removed it.
            self.made = false;
        }
        self.next = Some(number + 1);
        if self.sink.limit != DiskLimit::KeepAll {
            self.stored.push_back(number);
        }
        self.forget_oldest()
    }

    fn try_store(&mut self, frame: &Frame, target: &Path) -> Result<(), SinkError> {
        if !self.made {
            self.make()?;
        }
        self.check_space(frame.bytes() as u64)?;
        self.formats.write(&self.path, frame.packet_number())?;
        self.write(frame, target).map_err(io_error("write", target))
    }

    fn make(&mut self) -> Result<(), SinkError> {
        let is_new = !self.path.is_dir();
        self.sink.make(&self.path)?;
        if is_new {
            if self.next.is_some() {
                tracing::warn!(directory = %self.path.display(), "somebody removed it; made again");
            }
            self.stored.clear();
            self.formats.forget();
            self.unnamed = true;
        }
        self.made = true;
        Ok(())
    }

    fn write(&mut self, frame: &Frame, target: &Path) -> io::Result<()> {
        if self.unnamed {
            match self.write_unnamed(frame, target) {
                Err(error) if cannot_be_unnamed(&error) => self.unnamed = false,
                other => return other,
            }
        }
        self.write_renamed(frame, target)
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

    /// Makes room for a frame, if there is too little and older frames may go.
    fn check_space(&mut self, bytes: u64) -> Result<(), SinkError> {
        if self.unchecked_frames > 0 && bytes <= self.unchecked_bytes {
            self.unchecked_frames -= 1;
            self.unchecked_bytes -= bytes;
            return Ok(());
        }
        loop {
            let space = Space::of(&self.path)?;
            if let Some(left) = space.available.checked_sub(space.reserve.saturating_add(bytes)) {
                self.unchecked_frames = SPACE_CHECK_FRAMES;
                // Others write too.
                self.unchecked_bytes = left / 2;
                return Ok(());
            }
            if self.drop_oldest(1)? {
                continue;
            }
            return match self.sink.limit {
                // There is nothing to gain from waiting: the newest frame may have the last of the space.
                DiskLimit::KeepNewest(_) => Ok(()),
                DiskLimit::KeepAll => Err(self.disk_full(space)),
            };
        }
    }

    fn disk_full(&self, space: Space) -> SinkError {
        SinkError::DiskFull {
            path: self.path.clone(),
            available_bytes: space.available,
            reserve_bytes: space.reserve,
            advice: match self.sink.limit {
                DiskLimit::KeepAll => {
                    "delete frames, or let the collector keep only the newest with --keep-frames"
                }
                DiskLimit::KeepNewest(_) => {
                    "the device's older frames are deleted already; delete what else fills the disk"
                }
            },
        }
    }

    /// Deletes what is more than the limit.
    pub(super) fn forget_oldest(&mut self) -> Result<(), SinkError> {
        let DiskLimit::KeepNewest(frames) = self.sink.limit else {
            self.stored = VecDeque::new();
            return Ok(());
        };
        while self.stored.len() as u64 > frames.max(1) {
            self.drop_oldest(1)?;
        }
        Ok(())
    }

    /// Deletes the oldest frame, unless only so many are left: the newest says to the next collector where
    /// the device goes on. Returns whether there was one to delete.
    fn drop_oldest(&mut self, keep: usize) -> Result<bool, SinkError> {
        if self.stored.len() <= keep {
            return Ok(false);
        }
        let Some(oldest) = self.stored.pop_front() else { return Ok(false) };
        let path = self.frame_path(oldest);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &path)(e)),
            _ => Ok(true),
        }
    }
}

/// Space of a file system, in bytes.
struct Space {
    available: u64,
    reserve: u64,
}

impl Space {
    fn of(path: &Path) -> Result<Self, SinkError> {
        let stat = rustix::fs::statvfs(path)
            .map_err(|e| io_error("check the free space of", path)(e.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let reserve = RESERVE_BYTES.min(bytes(stat.f_blocks) / RESERVE_PART);
        Ok(Self { available: bytes(stat.f_bavail), reserve })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Writes the frame, and its capture time as that of the file.
fn write_with_time(frame: &Frame, file: impl AsFd) -> io::Result<()> {
    frame.write_to(&file)?;
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps {
        last_access: unchanged,
        last_modification: event::timespec(Duration::from_nanos(frame.capture_time_ns())),
    };
    // A file system that keeps no times still keeps frames.
    let _ = rustix::fs::futimens(&file, &times);
    Ok(())
}

/// Whether the file system, and not this frame, is why an unnamed file could not be written.
fn cannot_be_unnamed(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT))
}
