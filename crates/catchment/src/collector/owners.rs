//! Whose device names are: certificates have names, and a device belongs to one of them.
//!
//! With rules ([`AllowRule`]) only they decide. Without any, a name belongs to the first certificate from
//! which a frame of it came; a file keeps that over restarts, one line for each change.
use catchment_verbs::sync::Mutex;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Lets certificates use device names: `CERTIFICATE=DEVICE[,DEVICE...]`. In both, `*` stands for any
/// characters, also none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule {
    certificate: String,
    devices: Vec<String>,
}

/// A text is no [`AllowRule`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not CERTIFICATE=DEVICE[,DEVICE...]; write for example line1=cam* or '*=test-*'"
)]
pub struct AllowRuleError(String);

impl FromStr for AllowRule {
    type Err = AllowRuleError;

    fn from_str(text: &str) -> Result<Self, AllowRuleError> {
        let rule = text.rsplit_once('=').map(|(certificate, devices)| Self {
            certificate: certificate.to_owned(),
            devices: devices.split(',').map(str::to_owned).collect(),
        });
        rule.filter(|rule| !rule.certificate.is_empty())
            .filter(|rule| rule.devices.iter().all(|device| !device.is_empty()))
            .ok_or_else(|| AllowRuleError(crate::session::names::printable(text, 128)))
    }
}

impl AllowRule {
    fn allows(&self, certificate: &str, device: &str) -> bool {
        matches(&self.certificate, certificate)
            && self.devices.iter().any(|pattern| matches(pattern, device))
    }
}

/// Returns whether the text is what the pattern says.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    rest.char_indices().map(|(at, _)| &rest[at..]).chain([""]).any(|rest| matches(tail, rest))
}

/// The file of owners cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}, which says whose device names are: {source}", path.display())]
pub struct OwnersError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// A certificate may not use a device name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotYours {
    #[error(
        "device {device} belongs to certificate \"{owner}\"; this source has \"{certificate}\""
    )]
    Owned { device: String, owner: String, certificate: String },
    #[error("the collector allows certificate \"{certificate}\" no device {device}")]
    NotAllowed { device: String, certificate: String },
    #[error(
        "certificate \"{certificate}\" has {used} device names; with these it would have {asked}, and {most} is the limit"
    )]
    TooMany { certificate: String, used: usize, asked: usize, most: usize },
}

/// One line of the file. Without an owner the name is free.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    device: Cow<'a, str>,
    owner: Option<Cow<'a, str>>,
}

/// Owners of all device names that have one.
pub(super) struct Owners {
    rules: Vec<AllowRule>,
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: HashMap<String, Owner>,
    /// Names of each certificate.
    counts: HashMap<Arc<str>, usize>,
    /// What the file was when it was read: device, inode, bytes.
    seen: Option<(u64, u64, u64)>,
    /// Lines that the file lacks: it could not be written.
    unsaved: Vec<u8>,
}

#[derive(Clone)]
struct Owner {
    certificate: Arc<str>,
    /// A frame has come: the name stays with the certificate.
    bound: bool,
}

/// Names that a session has, until it ends.
pub(super) struct Reservation {
    owners: Arc<Owners>,
    names: Vec<String>,
}

impl Owners {
    /// Reads the file, if it is there.
    pub(super) fn new(
        rules: Vec<AllowRule>,
        file: Option<PathBuf>,
    ) -> Result<Arc<Self>, OwnersError> {
        let owners = Self { rules, file, state: Mutex::default() };
        owners.refresh(&mut owners.state.lock())?;
        Ok(Arc::new(owners))
    }

    /// Gives a certificate these names while the reservation lives; `most` is the number of names that it
    /// may have.
    pub(super) fn reserve<'a>(
        self: &Arc<Self>,
        certificate: &str,
        names: impl Iterator<Item = &'a str>,
        most: usize,
    ) -> Result<Reservation, NotYours> {
        let mut state = self.state.lock();
        if let Err(error) = self.refresh(&mut state) {
            tracing::warn!(%error, "going on with the owners that are known");
        }
        let mut new = Vec::new();
        for device in names {
            self.check(&state, certificate, device)?;
            if !state.names.contains_key(device) {
                new.push(device.to_owned());
            }
        }
        let used = state.counts.get(certificate).copied().unwrap_or(0);
        let asked = used + new.len();
        if asked > most {
            return Err(NotYours::TooMany { certificate: certificate.into(), used, asked, most });
        }
        let certificate: Arc<str> = certificate.into();
        for device in &new {
            state.insert(device, Owner { certificate: certificate.clone(), bound: false });
        }
        Ok(Reservation { owners: self.clone(), names: new })
    }

    fn check(&self, state: &State, certificate: &str, device: &str) -> Result<(), NotYours> {
        let (name, seen) = (device.to_owned(), certificate.to_owned());
        if !self.rules.is_empty() {
            let allowed = self.rules.iter().any(|rule| rule.allows(certificate, device));
            let refused = NotYours::NotAllowed { device: name, certificate: seen };
            return if allowed { Ok(()) } else { Err(refused) };
        }
        let other = state.names.get(device).filter(|owner| &*owner.certificate != certificate);
        let owner = other.map(|owner| owner.certificate.to_string());
        owner
            .map_or(Ok(()), |owner| Err(NotYours::Owned { device: name, owner, certificate: seen }))
    }

    /// A frame of the device came: its name stays with the certificate that has it.
    pub(super) fn bind(&self, device: &str) {
        if !self.rules.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let Some(owner) = state.names.get_mut(device).filter(|owner| !owner.bound) else { return };
        owner.bound = true;
        let certificate = owner.certificate.clone();
        state.note(device, Some(&certificate));
        self.save(&mut state);
    }

    /// Writes what the file lacks.
    fn save(&self, state: &mut State) {
        let Some(path) = &self.file else { return };
        if fs::metadata(path).is_err() {
            // Somebody removed it: it gets all owners again.
            state.unsaved.clear();
            let bound = state.names.iter().filter(|(_, owner)| owner.bound);
            let bound = bound.map(|(name, owner)| (name.clone(), owner.certificate.clone()));
            for (name, certificate) in bound.collect::<Vec<_>>() {
                state.note(&name, Some(&certificate));
            }
        }
        match append(path, &state.unsaved) {
            Ok(()) => state.unsaved.clear(),
            Err(error) => {
                tracing::warn!(%error, "a restarted collector would not know whose devices these are");
            }
        }
    }

    /// Reads the file again if somebody has changed it, as `catchment collect --forget` does.
    fn refresh(&self, state: &mut State) -> Result<(), OwnersError> {
        let Some(path) = &self.file else { return Ok(()) };
        if !state.unsaved.is_empty() {
            self.save(state);
        }
        let now = identity(path);
        if now.is_none() || now == state.seen || !state.unsaved.is_empty() {
            return Ok(());
        }
        let failed = |source| OwnersError { action: "read", path: path.clone(), source };
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut bound: HashMap<Cow<'_, str>, Arc<str>> = HashMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let Ok(Line { device, owner }) = serde_json::from_str(line) else {
                // A collector was killed while it wrote, or somebody edited the file.
                tracing::warn!(file = %path.display(), line, "not a line of owners: ignored");
                continue;
            };
            match owner {
                Some(owner) => drop(bound.insert(device, owner.into())),
                None => drop(bound.remove(&device)),
            }
        }
        let live: Vec<_> = state.names.drain().filter(|(_, owner)| !owner.bound).collect();
        state.counts.clear();
        for (name, certificate) in bound {
            state.insert(&name, Owner { certificate, bound: true });
        }
        for (name, owner) in live {
            if !state.names.contains_key(&name) {
                state.insert(&name, owner);
            }
        }
        state.seen = now;
        Ok(())
    }
}

impl State {
    fn insert(&mut self, device: &str, owner: Owner) {
        *self.counts.entry(owner.certificate.clone()).or_default() += 1;
        self.names.insert(device.to_owned(), owner);
    }

    fn note(&mut self, device: &str, owner: Option<&str>) {
        // Text and text: it cannot fail.
        let line = Line { device: device.into(), owner: owner.map(Into::into) };
        let _ = serde_json::to_writer(&mut self.unsaved, &line);
        self.unsaved.push(b'\n');
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.owners.state.lock();
        for name in &self.names {
            let unused = state.names.get(name).filter(|owner| !owner.bound).cloned();
            let Some(Owner { certificate, .. }) = unused else { continue };
            state.names.remove(name);
            if let Some(count) = state.counts.get_mut(&certificate) {
                *count -= 1;
                if *count == 0 {
                    state.counts.remove(&certificate);
                }
            }
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino(), file.len()))
}

/// Appends in one write, so that two processes do not mix their lines. The line before may have no end.
fn append(path: &Path, lines: &[u8]) -> Result<(), OwnersError> {
    let mut options = OpenOptions::new();
    let written = options.create(true).append(true).open(path).and_then(|mut file| {
        file.write_all(&[b"\n", lines].concat())?;
        file.sync_data()
    });
    written.map_err(|source| OwnersError { action: "write", path: path.to_owned(), source })
}

/// Frees a device name in a file of owners, also while a collector uses the file. Returns whose it was.
///
/// # Errors
/// The file cannot be read or written.
pub fn forget_owner(file: &Path, device: &str) -> Result<Option<String>, OwnersError> {
    let owners = Owners::new(Vec::new(), Some(file.to_owned()))?;
    let mut state = owners.state.lock();
    let owner = state.names.get(device).map(|owner| owner.certificate.to_string());
    if owner.is_some() {
        state.note(device, None);
        append(file, &state.unsaved)?;
    }
    Ok(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(rules: &[&str], file: Option<PathBuf>) -> Arc<Owners> {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Owners::new(rules, file).unwrap()
    }

    fn try_reserve(owners: &Arc<Owners>, certificate: &str, names: &[&str]) -> Option<String> {
        owners.reserve(certificate, names.iter().copied(), 3).err().map(|error| error.to_string())
    }

    #[test]
    fn patterns_stand_for_what_their_stars_leave_open() {
        for (pattern, text, same) in [
            ("cam0", "cam0", true),
            ("cam0", "cam01", false),
            ("cam*", "cam", true),
            ("*", "", true),
            ("*-top", "line-3-top", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, text), same, "{pattern} {text}");
        }
        for wrong in ["", "cam", "=cam", "line=", "line=a,,b"] {
            assert!(wrong.parse::<AllowRule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_decide_alone() {
        let owners = owners(&["line1=cam*,mic", "*=test-*"], None);
        assert_eq!(try_reserve(&owners, "line1", &["cam7", "mic", "test-1"]), None);
        assert_eq!(try_reserve(&owners, "line2", &["test-1"]), None);
        let error = try_reserve(&owners, "line2", &["test-1", "cam7"]).unwrap();
        assert!(error.contains("line2") && error.contains("cam7"), "{error}");
    }

    #[test]
    fn a_name_stays_with_the_first_certificate_that_used_it_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("owners");
        let first = owners(&[], Some(file.clone()));
        let unused = first.reserve("line1", ["b"].into_iter(), 3).unwrap();
        let used = first.reserve("line1", ["a"].into_iter(), 3).unwrap();
        first.bind("a");
        drop((unused, used));
        assert_eq!(try_reserve(&first, "line2", &["b"]), None);
        drop(first);
        // A killed collector may leave half a line.
        append(&file, b"{\"device\":").unwrap();
        let again = owners(&[], Some(file.clone()));
        let error = try_reserve(&again, "line2", &["a"]).unwrap();
        assert!(error.contains("line1") && error.contains("line2"), "{error}");
        assert_eq!(forget_owner(&file, "a").unwrap().as_deref(), Some("line1"));
        assert_eq!(try_reserve(&again, "line2", &["a"]), None);
    }

    #[test]
    fn a_certificate_has_a_number_of_names_at_most() {
        let owners = owners(&[], None);
        let held = owners.reserve("line1", ["a", "b"].into_iter(), 3).unwrap();
        let error = try_reserve(&owners, "line1", &["b", "c", "d"]).unwrap();
        assert!(error.contains("3 is the limit"), "{error}");
        assert_eq!(try_reserve(&owners, "line2", &["c", "d"]), None);
        drop(held);
        assert_eq!(try_reserve(&owners, "line1", &["b", "c", "d"]), None);
    }
}
