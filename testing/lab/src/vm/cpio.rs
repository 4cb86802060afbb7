//! Archives in the format of the kernel's initial file system: cpio "newc".

const ALIGN: usize = 4;
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
const TRAILER: &str = "TRAILER!!!";

/// An archive that grows entry by entry. A folder must come before what it holds.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

#[derive(Clone, Copy)]
struct Kind {
    mode: u32,
    device: (u32, u32),
}

impl Archive {
    pub(crate) fn folder(&mut self, name: &str) {
        let kind = Kind { mode: DIRECTORY, device: (0, 0) };
        self.entry(name, kind, &[]);
    }

    pub(crate) fn file(&mut self, name: &str, contents: &[u8]) {
        let kind = Kind { mode: PROGRAM, device: (0, 0) };
        self.entry(name, kind, contents);
    }

    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) {
        let kind = Kind { mode: CHARACTER_DEVICE, device: (major, minor) };
        self.entry(name, kind, &[]);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let kind = Kind { mode: 0, device: (0, 0) };
        self.entry(TRAILER, kind, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, kind: Kind, contents: &[u8]) {
        self.entries += 1;
        let contents_bytes = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let name_bytes = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, uid, gid, links, time, size, device, special device, name, checksum
        let fields = [
            self.entries,
            kind.mode,
            0,
            0,
            1,
            0,
            contents_bytes,
            0,
            0,
            kind.device.0,
            kind.device.1,
            name_bytes,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_layout_of_the_format() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.device("dev/console", 5, 1);
        archive.file("init", b"#!");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % ALIGN, 0);
        // The header has 110 bytes, the name of 3 and its zero end at 114, then 2 of padding.
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[110..116], b"dev\0\0\0");
        assert_eq!(&bytes[116..122], b"070701");
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("init\0\0#!\0\0"), "{text:?}");
        assert!(text.contains(TRAILER));
    }
}
