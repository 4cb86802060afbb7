//! What the kernel exposes in files.
use std::fs;
use std::path::{Path, PathBuf};

/// The folders that are read; others in tests.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) proc: PathBuf,
    pub(super) sys: PathBuf,
    pub(super) root: PathBuf,
}

impl Default for Facts {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), root: "/".into() }
    }
}

impl Facts {
    /// Reads a file below /proc, without surrounding white space.
    pub(super) fn proc(&self, path: &str) -> Option<String> {
        text(&self.proc.join(path))
    }

    pub(super) fn sys(&self, path: &str) -> Option<String> {
        text(&self.sys.join(path))
    }

    pub(super) fn has_module(&self, name: &str) -> bool {
        self.sys.join("module").join(name).exists()
    }

    pub(super) fn has_file(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns whether this process has a capability (`capabilities(7)`), by its number.
    pub(super) fn has_capability(&self, number: u32) -> bool {
        let status = self.proc("self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> number & 1 == 1)
    }

    /// Returns the names of all processes that this one can see.
    pub(super) fn processes(&self) -> Vec<String> {
        let numbered = fs::read_dir(&self.proc).into_iter().flatten().flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|n| n.parse::<u32>().is_ok())
        });
        numbered.filter_map(|entry| text(&entry.path().join("comm"))).collect()
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Formats bytes with a binary unit, as limits are written: `8 MiB`.
pub(super) fn binary(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value.fract() >= 0.05 && value < 100.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
pub(super) struct Machine {
    root: tempfile::TempDir,
    pub(super) facts: Facts,
}

#[cfg(test)]
impl Machine {
    pub(super) fn with(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        let facts = Facts { proc, sys, root: root.path().to_owned() };
        let machine = Self { root, facts };
        files.iter().for_each(|(path, text)| machine.put(path, text));
        machine
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_with_binary_units() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (65_536, "64 KiB"),
            (8 << 20, "8 MiB"),
            (212_992, "208 KiB"),
            (3 << 29, "1.5 GiB"),
        ] {
            assert_eq!(binary(bytes), text);
        }
    }

    #[test]
    fn capabilities_are_bits_of_the_status() {
        let machine = Machine::with(&[]);
        assert!(!machine.facts.has_capability(14), "no /proc");
        machine.put("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
        assert!(machine.facts.has_capability(14));
        assert!(!machine.facts.has_capability(12));
    }
}
