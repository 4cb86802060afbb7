//! TLS 1.3 with certificates on both sides, and the rule for sessions without it.
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fs::File;
use std::io::{self, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The PEM files of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of this side, followed by intermediate ones if there are any.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that the other side's certificate must come from.
    pub ca: PathBuf,
}

impl TlsFiles {
    /// Returns whether the certificate is for `host`, a name or an address.
    pub fn is_for(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else { return false };
        let chain = certificates(&self.cert).unwrap_or_default();
        let leaf = chain.first().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
        leaf.is_some_and(|leaf| verify_server_name(&leaf, &name).is_ok())
    }
}

/// TLS cannot be set up from the files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{} is not a PEM file: {detail}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The parse error.
        detail: String,
    },
    /// A file lacks its certificate or key.
    #[error("{} holds no {what}; `catchment cert` writes such files", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// Others can read a private key.
    #[error("others can read the key {path} (mode {mode:04o}); type: chmod 600 {path}", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its rights.
        mode: u32,
    },
    /// A certificate of an authority cannot be used.
    #[error("{} cannot serve as certificate authority: {detail}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What rustls said.
        detail: String,
    },
    /// Certificate and key do not match, or their kind is not supported.
    #[error("{} and {} do not match: {detail}", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls said.
        detail: String,
    },
    /// The cryptography cannot be set up: a bug of this program.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// Returns the cryptography; passed explicitly, never the process default.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Creates the collector's configuration: a source must present a certificate of the authority in
/// `files.ca`.
///
/// # Errors
/// A file is missing, invalid, or does not match the others.
pub(crate) fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(authorities(&files.ca)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build().map_err(
        |error| TlsError::Authority { path: files.ca.clone(), detail: error.to_string() },
    )?;
    let (chain, key) = identity(files)?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| pair(files, &error))?;
    Ok(Arc::new(config))
}

/// Creates the source's configuration: the collector must present a certificate of the authority in
/// `files.ca` for the name or address that was dialled.
///
/// # Errors
/// A file is missing, invalid, or does not match the others.
pub(crate) fn client_config(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = authorities(&files.ca)?;
    let (chain, key) = identity(files)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| pair(files, &error))?;
    Ok(Arc::new(config))
}

fn pair(files: &TlsFiles, error: &rustls::Error) -> TlsError {
    TlsError::Pair { cert: files.cert.clone(), key: files.key.clone(), detail: error.to_string() }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Authority {
            path: path.to_owned(),
            detail: error.to_string(),
        })?;
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(files: &TlsFiles) -> Result<Identity, TlsError> {
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_reader(open_key(&files.key)?)
        .map_err(|error| pem_error(&files.key, "private key", error))?;
    Ok((chain, key))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_reader_iter(open(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem_error(path, "certificate", error))?;
    if found.is_empty() {
        return Err(pem_error(path, "certificate", pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Opens a private key, which only its owner may be able to read. One of root may also be read by the
/// group through which this user reads it: container platforms mount keys like this.
pub(crate) fn open_key(path: &Path) -> Result<BufReader<File>, TlsError> {
    let file = open(path)?;
    let seen = file.get_ref().metadata().map_err(|source| read_error(path, source))?;
    let is_lent = seen.uid() == 0 && !rustix::process::geteuid().is_root();
    let wrong = if is_lent { 0o037 } else { 0o077 };
    let mode = seen.mode() & 0o777;
    if mode & wrong != 0 {
        return Err(TlsError::Exposed { path: path.to_owned(), mode });
    }
    Ok(file)
}

pub(crate) fn open(path: &Path) -> Result<BufReader<File>, TlsError> {
    File::open(path).map(BufReader::new).map_err(|source| read_error(path, source))
}

fn read_error(path: &Path, source: io::Error) -> TlsError {
    TlsError::Read { path: path.to_owned(), source }
}

fn pem_error(path: &Path, what: &'static str, error: pem::Error) -> TlsError {
    if let pem::Error::Io(source) = error {
        return read_error(path, source);
    }
    let path = path.to_owned();
    if matches!(error, pem::Error::NoItemsFound) {
        return TlsError::Missing { path, what };
    }
    TlsError::Pem { path, detail: error.to_string() }
}

/// How a session is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// TLS with certificates on both sides.
    Tls,
    /// None: only processes of this host can connect.
    PlainLocal,
    /// None, although other hosts can connect: the user allowed it.
    PlainInsecure,
}

/// Where a control connection goes, for the choice of its protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// A unix socket.
    Unix,
    /// An address to listen on or to connect to.
    Ip(SocketAddr),
}

/// A session would be unprotected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectionError {
    /// Neither certificates nor an explicit permission to go without.
    #[error(
        "{0} can be reached from other hosts, and no TLS certificate is given; \
         make certificates with `catchment cert` and pass --cert, --key and --ca, \
         or use a loopback address such as 127.0.0.1 or unix:/path, \
         or pass --insecure to admit any host"
    )]
    Unprotected(SocketAddr),
    /// Certificates and the permission to go without.
    #[error("TLS certificates and --insecure are mutually exclusive; omit one of them")]
    Contradiction,
}

/// Decides the protection: loopback addresses may go without TLS; any other address needs
/// certificates (`tls`) or the user's explicit permission (`insecure`). Unix sockets never use TLS:
/// their file permissions protect them.
///
/// # Errors
/// The address is reachable from other hosts and neither is given, or both are.
pub fn protection(reach: Reach, tls: bool, insecure: bool) -> Result<Protection, ProtectionError> {
    if tls && insecure {
        return Err(ProtectionError::Contradiction);
    }
    match reach {
        Reach::Unix => Ok(Protection::PlainLocal),
        Reach::Ip(_) if tls => Ok(Protection::Tls),
        Reach::Ip(addr) if is_loopback(addr.ip()) => Ok(Protection::PlainLocal),
        Reach::Ip(_) if insecure => Ok(Protection::PlainInsecure),
        Reach::Ip(addr) => Err(ProtectionError::Unprotected(addr)),
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(addr: &str, tls: bool, insecure: bool) -> Result<Protection, ProtectionError> {
        protection(Reach::Ip(addr.parse().unwrap()), tls, insecure)
    }

    #[test]
    fn local_addresses_need_nothing() {
        for addr in ["127.0.0.1:1", "127.9.8.7:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(rule(addr, false, false), Ok(Protection::PlainLocal), "{addr}");
            assert_eq!(rule(addr, true, false), Ok(Protection::Tls), "{addr}");
        }
        assert_eq!(protection(Reach::Unix, false, false), Ok(Protection::PlainLocal));
    }

    #[test]
    fn other_addresses_need_certificates_or_an_explicit_word() {
        for addr in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1", "[::ffff:10.0.0.1]:1"] {
            let error = rule(addr, false, false).unwrap_err().to_string();
            assert!(error.contains("--insecure") && error.contains("catchment cert"), "{error}");
            assert_eq!(rule(addr, true, false), Ok(Protection::Tls), "{addr}");
            assert_eq!(rule(addr, false, true), Ok(Protection::PlainInsecure), "{addr}");
            assert_eq!(rule(addr, true, true), Err(ProtectionError::Contradiction));
        }
    }
}
