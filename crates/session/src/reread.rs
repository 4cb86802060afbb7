//! Certificates, keys and authorities that are read again when their files change.
//!
//! A side asks for its configuration before each handshake: new connections use what the files hold by
//! then, open ones keep what they began with. Files that cannot be used change nothing.
use crate::tls::{TlsError, TlsFiles, client_config, server_config};
use catchment_verbs::sync::Mutex;
use rustls::{ClientConfig, ServerConfig};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The files of a collector: a source must present a certificate of the authority in [`TlsFiles::ca`].
pub type ServerTls = Reread<ServerConfig>;
/// The files of a source: the collector must present a certificate of the authority in [`TlsFiles::ca`]
/// for the name or address that was dialled.
pub type ClientTls = Reread<ClientConfig>;

/// The configuration in a set of files.
#[derive(Debug)]
pub struct Reread<C> {
    files: TlsFiles,
    make: fn(&TlsFiles) -> Result<Arc<C>, TlsError>,
    last: Mutex<Last<C>>,
}

#[derive(Debug)]
struct Last<C> {
    stamps: [Option<Stamp>; 3],
    config: Arc<C>,
}

/// What differs between two contents of a file: device, inode, length, times of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp([u64; 3], [i64; 4]);

impl ServerTls {
    /// Reads the files of a collector.
    ///
    /// # Errors
    /// A file is missing, invalid, does not match the others, or is a key that others can read.
    pub fn open(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        Self::with(files, server_config)
    }
}

impl ClientTls {
    /// Reads the files of a source.
    ///
    /// # Errors
    /// As [`ServerTls::open`].
    pub fn open(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        Self::with(files, client_config)
    }
}

impl<C> Reread<C> {
    fn with(
        files: TlsFiles,
        make: fn(&TlsFiles) -> Result<Arc<C>, TlsError>,
    ) -> Result<Arc<Self>, TlsError> {
        // A change after this look is found at the next one.
        let stamps = stamps(&files);
        let last = Mutex::new(Last { stamps, config: make(&files)? });
        Ok(Arc::new(Self { files, make, last }))
    }

    /// Returns the configuration for a new connection. Reads the files if they have changed since they
    /// were read; when they cannot be used, logs why, once for each change, and returns the last one.
    pub fn current(&self) -> Arc<C> {
        let mut last = self.last.lock();
        if stamps(&self.files) == last.stamps {
            return last.config.clone();
        }
        let cert = self.files.cert.display();
        match self.read(&mut last) {
            Ok(()) => tracing::info!(%cert, "the certificates have changed and are read again"),
            Err(error) => {
                tracing::warn!(%cert, %error, "changed certificates cannot be used; the last ones stay");
            }
        }
        last.config.clone()
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// They cannot be used; the last ones stay in use.
    pub fn reread(&self) -> Result<(), TlsError> {
        self.read(&mut self.last.lock())
    }

    fn read(&self, last: &mut Last<C>) -> Result<(), TlsError> {
        last.stamps = stamps(&self.files);
        last.config = (self.make)(&self.files)?;
        Ok(())
    }

    /// Holds a configuration that no file has.
    #[cfg(test)]
    pub(crate) fn of(config: C) -> Arc<Self> {
        let nowhere = || Path::new("/nowhere").to_owned();
        let files = TlsFiles { cert: nowhere(), key: nowhere(), ca: nowhere() };
        let last = Mutex::new(Last { stamps: [None; 3], config: Arc::new(config) });
        Arc::new(Self { files, make: |_| unreachable!("it does not change"), last })
    }
}

fn stamps(files: &TlsFiles) -> [Option<Stamp>; 3] {
    [&files.cert, &files.key, &files.ca].map(|path| stamp(path))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let seen = fs::metadata(path).ok()?;
    let times = [seen.mtime(), seen.mtime_nsec(), seen.ctime(), seen.ctime_nsec()];
    Some(Stamp([seen.dev(), seen.ino(), seen.len()], times))
}
