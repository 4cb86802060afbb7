//! Checks the output folder without the code that wrote it: names, sizes, order, and the checksum of
//! each frame.
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[derive(Debug)]
struct Frame {
    number: u64,
    path: PathBuf,
}

/// Returns the number of the newest frame in a device's folder; none while there is no frame.
pub(crate) fn newest(folder: &Path) -> Option<u64> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).max()
}

/// Returns the packet number in the name of a frame's file, such as `000000000042.raw`.
fn number(name: &str) -> Option<u64> {
    let digits = name.split_once('.').map_or(name, |(digits, _)| digits);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

pub(crate) fn check_folders(out: &Path, devices: &[String]) -> Result<()> {
    let names = names(out)?;
    let strange: Vec<_> = names.iter().filter(|name| !devices.contains(name)).collect();
    ensure!(strange.is_empty(), "left in {}: {strange:?}", out.display());
    let missing: Vec<_> = devices.iter().filter(|device| !names.contains(device)).collect();
    ensure!(missing.is_empty(), "no folder for {missing:?} in {}", out.display());
    Ok(())
}

/// Returns the number of frames in a device's folder, which must contain frames 0, 1, 2 and so on,
/// without gap, each `frame_bytes` long and none older than its predecessor, and nothing else.
pub(crate) fn check_names(folder: &Path, frame_bytes: u64) -> Result<u64> {
    let mut before = SystemTime::UNIX_EPOCH;
    let frames = frames(folder)?;
    for (expected, frame) in (0_u64..).zip(&frames) {
        let name = frame.path.display();
        match frame.number {
            number if number > expected => bail!("frame {expected} is missing before {name}"),
            number if number < expected => bail!("{name} is there twice, under two names"),
            _ => {}
        }
        let metadata = fs::metadata(&frame.path)?;
        let bytes = metadata.len();
        ensure!(bytes == frame_bytes, "{name} has {bytes} bytes, expected {frame_bytes}");
        let written = metadata.modified()?;
        ensure!(written >= before, "{name} was written before the frame that precedes it");
        before = written;
    }
    Ok(frames.len() as u64)
}

pub(crate) fn check_bytes(folder: &Path, checksums: &[u32]) -> Result<()> {
    for (frame, expected) in frames(folder)?.iter().zip(checksums) {
        let seen = crc32c::crc32c(&fs::read(&frame.path)?);
        let name = frame.path.display();
        ensure!(seen == *expected, "{name} has checksum {seen:08x}, expected {expected:08x}");
    }
    Ok(())
}

fn frames(folder: &Path) -> Result<Vec<Frame>> {
    let mut frames = Vec::new();
    for name in names(folder)? {
        let path = folder.join(&name);
        let number = number(&name).with_context(|| format!("left over: {}", path.display()))?;
        frames.push(Frame { number, path });
    }
    frames.sort_by_key(|frame| frame.number);
    Ok(frames)
}

pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    // What a collector notes beside frames and folders.
    names.retain(|name| name != ".lock" && !name.starts_with(".format-"));
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tempfile::TempDir;

    fn write(folder: &TempDir, name: &str, bytes: &[u8]) {
        fs::write(folder.path().join(name), bytes).unwrap();
    }

    fn remove(folder: &TempDir, name: &str) {
        fs::remove_file(folder.path().join(name)).unwrap();
    }

    fn three() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("000.raw", b"aaaa"), ("001.raw", b"bbbb"), ("002.raw", b"cccc")] {
            write(&folder, name, bytes);
        }
        folder
    }

    fn checksums() -> Vec<u32> {
        [b"aaaa", b"bbbb", b"cccc"].map(|bytes| crc32c::crc32c(bytes)).to_vec()
    }

    #[test]
    fn a_sound_folder_is_accepted() {
        let folder = three();
        assert_eq!(check_names(folder.path(), 4).unwrap(), 3);
        check_bytes(folder.path(), &checksums()).unwrap();
        assert_eq!(newest(folder.path()), Some(2));
        assert_eq!(newest(Path::new("/nowhere")), None);
    }

    #[test]
    fn every_fault_is_named() {
        type Harm = fn(&TempDir);
        let faults: &[(&str, Harm, &str)] = &[
            ("gap", |f| remove(f, "001.raw"), "frame 1 is missing"),
            ("start", |f| remove(f, "000.raw"), "frame 0 is missing"),
            ("short", |f| write(f, "001.raw", b"bbb"), "has 3 bytes"),
            ("twice", |f| write(f, "1.raw", b"bbbb"), "twice"),
            ("left", |f| write(f, ".002.tmp", b"cc"), "left over"),
            ("order", make_older, "before the frame that precedes"),
        ];
        for (name, harm, expected) in faults {
            let folder = three();
            harm(&folder);
            let error = format!("{:#}", check_names(folder.path(), 4).unwrap_err());
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    fn make_older(folder: &TempDir) {
        let file = fs::File::options().write(true).open(folder.path().join("002.raw")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_torn_frame_and_two_exchanged_ones_are_found() {
        for (second, third) in [(b"bbcc", b"cccc"), (b"cccc", b"bbbb")] {
            let folder = three();
            write(&folder, "001.raw", second);
            write(&folder, "002.raw", third);
            assert_eq!(check_names(folder.path(), 4).unwrap(), 3);
            let error = check_bytes(folder.path(), &checksums()).unwrap_err().to_string();
            assert!(error.contains("001.raw has checksum"), "{error}");
        }
    }

    #[test]
    fn folders_of_other_names_and_missing_ones_are_found() {
        let out = tempfile::tempdir().unwrap();
        let devices = ["cam0".to_owned(), "cam1".to_owned()];
        fs::create_dir(out.path().join("cam0")).unwrap();
        let missing = check_folders(out.path(), &devices).unwrap_err().to_string();
        assert!(missing.contains("cam1"), "{missing}");
        fs::create_dir(out.path().join("cam1")).unwrap();
        check_folders(out.path(), &devices).unwrap();
        write(&out, "cam1.lock", b"");
        let left = check_folders(out.path(), &devices).unwrap_err().to_string();
        assert!(left.contains("cam1.lock"), "{left}");
    }
}
