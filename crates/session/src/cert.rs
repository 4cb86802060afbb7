//! `catchment cert`: a certificate authority in a directory, and certificates from it.
//!
//! The directory holds `ca.pem` and `ca.key`, and for each certificate `NAME.pem` and `NAME.key`.
//! Keys are ECDSA P-256 in files that only their owner can read. No file is ever overwritten.
use crate::names::DeviceName;
use crate::tls::{TlsError, TlsFiles, open, open_key};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Validity of an authority: ten years.
pub const CA_VALIDITY: Duration = Duration::from_secs(3_650 * 24 * 60 * 60);
/// Default validity of a certificate: 397 days.
pub const LEAF_VALIDITY: Duration = Duration::from_secs(397 * 24 * 60 * 60);
/// Maximum validity: a hundred years.
pub const VALIDITY_MAX: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
/// Certificates are valid from this long before their creation, for clocks that are behind.
pub const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// A certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertError {
    /// The file exists; nothing is overwritten.
    #[error(
        "{} exists and is not overwritten; use another name or directory, or remove it",
        .0.display()
    )]
    Exists(PathBuf),
    /// The directory holds no authority.
    #[error("{} holds no certificate authority (no {missing}); make one first", dir.display())]
    NoAuthority {
        /// The directory.
        dir: PathBuf,
        /// The file that is missing.
        missing: &'static str,
    },
    /// A file cannot be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// `read`, `write` or `create`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The authority's key cannot be read, or others can read it too.
    #[error(transparent)]
    Key(#[from] TlsError),
    /// The authority's files do not hold a certificate and its key.
    #[error("{} does not hold a usable certificate authority: {detail}", dir.display())]
    Authority {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The name is not a valid file name.
    #[error("certificate name: {0}")]
    Name(#[from] crate::names::DeviceNameError),
    /// The name is the authority's own.
    #[error("certificate name \"ca\" is the authority's; use another one")]
    Reserved,
    /// A name or address for the certificate is invalid.
    #[error("\"{seen}\" is neither a host name nor an IP address: {detail}")]
    Subject {
        /// The text, escaped and cut.
        seen: String,
        /// What is wrong with it.
        detail: String,
    },
    /// No name and no address is given.
    #[error("give at least one host name or IP address that the certificate is for")]
    NoSubject,
    /// The validity is too long: the validity in days.
    #[error("a validity of {0} days is too long; the maximum is 36500")]
    Validity(u64),
    /// The cryptography failed.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// A certificate authority in a directory.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A new certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// Its files, ready for [`crate::reread::ServerTls`] or [`crate::reread::ClientTls`].
    pub files: TlsFiles,
    /// When it expires.
    pub not_after: SystemTime,
}

impl Authority {
    /// Creates a new authority in `dir` (created when missing), valid for [`CA_VALIDITY`]; `now` is
    /// the time of the system's clock.
    ///
    /// # Errors
    /// `dir` holds an authority already, or a file cannot be written.
    pub fn create(dir: &Path, now: SystemTime) -> Result<Self, CertError> {
        fs::create_dir_all(dir).map_err(|source| file_error("create", dir, source))?;
        let key = KeyPair::generate()?;
        let params = authority_params(&key, now);
        let certificate = params.self_signed(&key)?;
        // The key first: its creator owns the directory.
        write_new(&dir.join("ca.key"), &key.serialize_pem(), 0o600)?;
        write_new(&dir.join("ca.pem"), &certificate.pem(), 0o644)?;
        Ok(Self { dir: dir.to_owned(), issuer: Issuer::new(params, key) })
    }

    /// Opens the authority in `dir`.
    ///
    /// # Errors
    /// `dir` holds none, or its files are invalid.
    pub fn open(dir: &Path) -> Result<Self, CertError> {
        let wrong = |error: rcgen::Error| CertError::Authority {
            dir: dir.to_owned(),
            detail: error.to_string(),
        };
        let pem = read(dir, "ca.key", open_key)?;
        let key = KeyPair::from_pem(&pem).map_err(wrong)?;
        let pem = read(dir, "ca.pem", open)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(wrong)?;
        Ok(Self { dir: dir.to_owned(), issuer })
    }

    /// Returns the path of the authority's certificate, which every peer needs.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Issues a certificate and key, `NAME.pem` and `NAME.key`, for `subjects`: host names and IP
    /// addresses of the peer that will use them. It serves a collector and a source alike, and is valid
    /// from [`BACKDATE`] before `now` until `validity` after it.
    ///
    /// # Errors
    /// The name is not a file name or is taken, the validity is above [`VALIDITY_MAX`], a subject is
    /// invalid, or a file cannot be written.
    pub fn issue(
        &self,
        name: &str,
        subjects: &[&str],
        now: SystemTime,
        validity: Duration,
    ) -> Result<Issued, CertError> {
        let name: DeviceName = name.parse()?;
        if name.as_str() == "ca" {
            return Err(CertError::Reserved);
        }
        if validity > VALIDITY_MAX {
            return Err(CertError::Validity(validity.as_secs() / DAY.as_secs()));
        }
        let not_after = now + validity;
        let params = leaf_params(name.as_str(), subjects, now, not_after)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let file = |ending: &str| self.dir.join(format!("{name}.{ending}"));
        let files = TlsFiles { cert: file("pem"), key: file("key"), ca: self.certificate() };
        if files.cert.exists() {
            return Err(CertError::Exists(files.cert));
        }
        write_new(&files.key, &key.serialize_pem(), 0o600)?;
        write_new(&files.cert, &certificate.pem(), 0o644)?;
        Ok(Issued { files, not_after })
    }
}

fn authority_params(key: &KeyPair, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Part of the key in the name: certificates of two authorities can be told apart.
    let id: String = key.public_key_raw()[1..5].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("Catchment CA {id}");
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (now - DAY).into();
    params.not_after = (now + CA_VALIDITY).into();
    params
}

fn leaf_params(
    name: &str,
    subjects: &[&str],
    now: SystemTime,
    not_after: SystemTime,
) -> Result<CertificateParams, CertError> {
    if subjects.is_empty() {
        return Err(CertError::NoSubject);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    for subject in subjects {
        params.subject_alt_names.push(subject_alt_name(subject)?);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = (now - BACKDATE).into();
    params.not_after = not_after.into();
    Ok(params)
}

fn subject_alt_name(subject: &str) -> Result<SanType, CertError> {
    if let Ok(ip) = subject.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let wrong =
        |detail: String| CertError::Subject { seen: crate::names::printable(subject, 64), detail };
    // A certificate can be for what a client can dial.
    rustls::pki_types::DnsName::try_from(subject).map_err(|error| wrong(error.to_string()))?;
    let name = subject.try_into().map_err(|error: rcgen::Error| wrong(error.to_string()))?;
    Ok(SanType::DnsName(name))
}

type Open = fn(&Path) -> Result<BufReader<File>, TlsError>;

fn read(dir: &Path, name: &'static str, open: Open) -> Result<String, CertError> {
    let path = dir.join(name);
    if !path.exists() {
        return Err(CertError::NoAuthority { dir: dir.to_owned(), missing: name });
    }
    let mut text = String::new();
    let read = open(&path)?.read_to_string(&mut text);
    read.map_err(|source| file_error("read", &path, source))?;
    Ok(text)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CertError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|source| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            CertError::Exists(path.to_owned())
        } else {
            file_error("create", path, source)
        }
    })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|source| file_error("write", path, source))
}

fn file_error(verb: &'static str, path: &Path, source: io::Error) -> CertError {
    CertError::File { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{DistinguishedName, DnValue, KeyIdMethod};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_private_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let ca = Authority::create(dir.path(), now).unwrap();
        let issued = ca.issue("cam", &["cam.lab"], now, LEAF_VALIDITY).unwrap();
        for key in [dir.path().join("ca.key"), issued.files.key.clone()] {
            let mode = fs::metadata(&key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", key.display());
        }
        let before = fs::read(dir.path().join("ca.key")).unwrap();
        let error = Authority::create(dir.path(), now).unwrap_err();
        assert!(matches!(error, CertError::Exists(_)), "{error}");
        assert_eq!(before, fs::read(dir.path().join("ca.key")).unwrap());
        let error = ca.issue("cam", &["cam.lab"], now, LEAF_VALIDITY);
        assert!(matches!(error, Err(CertError::Exists(_))));
    }

    #[test]
    fn a_key_that_others_can_read_makes_no_certificates() {
        let dir = tempfile::tempdir().unwrap();
        drop(Authority::create(dir.path(), SystemTime::now()).unwrap());
        let key = dir.path().join("ca.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap();
        let error = Authority::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 600 {}", key.display())), "{error}");
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let ca = Authority::create(dir.path(), now).unwrap();
        let issue = |name: &str, subjects: &[&str]| ca.issue(name, subjects, now, LEAF_VALIDITY);
        assert!(matches!(issue("../x", &["a"]), Err(CertError::Name(_))));
        assert!(matches!(issue("ca", &["a"]), Err(CertError::Reserved)));
        assert!(matches!(issue("x", &[]), Err(CertError::NoSubject)));
        let error = issue("x", &["not a host"]).unwrap_err().to_string();
        assert!(error.contains("\"not a host\""), "{error}");
        assert!(!dir.path().join("x.key").exists());
    }

    #[test]
    fn a_directory_without_authority_says_which_file_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let error = Authority::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("ca.key"), "{error}");
        write_new(&dir.path().join("ca.key"), "nonsense", 0o600).unwrap();
        fs::write(dir.path().join("ca.pem"), "").unwrap();
        let error = Authority::open(dir.path()).unwrap_err();
        assert!(matches!(error, CertError::Authority { .. }), "{error}");
    }
    #[test]
    fn a_leaf_repeats_the_name_and_the_key_identifier_of_an_authority_from_elsewhere() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap()));
        name.push(DnType::OrganizationName, "Größe 9");
        name.push(DnType::LocalityName, DnValue::BmpString("Ort".try_into().unwrap()));
        name.push(DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]), "lab");
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_identifier_method = KeyIdMethod::PreSpecified(b"the key's own id".to_vec());
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        write_new(&dir.path().join("ca.key"), &key.serialize_pem(), 0o600).unwrap();
        let ca = Authority::open(dir.path()).unwrap();
        let leaf = ca.issue("cam", &["cam.lab"], SystemTime::now(), LEAF_VALIDITY).unwrap();
        let leaf = CertificateDer::from_pem_file(leaf.files.cert).unwrap();
        let has = |bytes: &[u8]| leaf.windows(bytes.len()).any(|part| part == bytes);
        assert!(has("Größe 9".as_bytes()) && has(b"DE") && has(b"\0O\0r\0t") && has(b"lab"));
        assert!(has(b"the key's own id"));
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"]
        {
            fs::write(dir.path().join("ca.pem"), pem).unwrap();
            let error = Authority::open(dir.path()).unwrap_err();
            assert!(matches!(error, CertError::Authority { .. }), "{pem}: {error}");
        }
    }
}
