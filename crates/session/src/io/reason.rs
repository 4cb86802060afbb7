//! Why a connection failed, with our own wording where rustls is terse.
use std::io;

pub(super) const CLOSED_IN_TLS: &str =
    "the peer closed the connection during the TLS handshake; it may be busy, or speak without TLS";

/// Returns why a connection failed.
pub(super) fn reason(error: &io::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(Alert::UnknownCA)) => {
            "the peer does not accept our certificate: it was issued by another certificate authority \
             than the peer's --ca"
                .to_owned()
        }
        Some(Error::AlertReceived(Alert::CertificateExpired)) => {
            "the peer does not accept our certificate: it has expired".to_owned()
        }
        Some(Error::AlertReceived(Alert::CertificateRequired)) => {
            "the peer requires a certificate: pass --cert and --key".to_owned()
        }
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the peer's certificate was issued by another certificate authority than our --ca"
                .to_owned()
        }
        Some(Error::NoCertificatesPresented) => "the peer presented no certificate".to_owned(),
        Some(Error::InvalidMessage(_)) => "the peer does not speak TLS".to_owned(),
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}

/// Returns why a TLS handshake failed.
pub(super) fn handshake_reason(error: &io::Error) -> String {
    let cut = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    if error.get_ref().is_none_or(|inner| !inner.is::<rustls::Error>())
        && cut.contains(&error.kind())
    {
        return CLOSED_IN_TLS.to_owned();
    }
    reason(error)
}
