//! Why a connection failed, with our own wording where rustls is terse.
use rustls::{AlertDescription as Alert, CertificateError, Error};
use std::io;

pub(super) const CLOSED_IN_TLS: &str =
    "the peer closed the connection during the TLS handshake; it may be busy, or speak without TLS";

/// What is to be done about a certificate that has expired.
const RENEW: &str = "make a new one with `catchment cert`, and check the clocks of both hosts";

fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}

/// Returns whether TLS has failed for a reason that lasts until somebody changes a setting or a file.
pub(super) fn is_final(error: &io::Error) -> bool {
    of_tls(error).is_some_and(|error| {
        let passes = [Alert::CloseNotify, Alert::UserCanceled, Alert::InternalError];
        !matches!(error, Error::AlertReceived(alert) if passes.contains(alert))
    })
}

/// Returns why a connection failed.
pub(super) fn reason(error: &io::Error) -> String {
    let said = match of_tls(error) {
        Some(Error::AlertReceived(Alert::UnknownCA)) => {
            "the peer does not accept our certificate: it was issued by another certificate authority \
             than the peer's --ca; use certificates of one authority on both sides"
        }
        Some(Error::AlertReceived(Alert::CertificateExpired)) => {
            return format!("the peer does not accept our certificate: it has expired; {RENEW}");
        }
        Some(Error::AlertReceived(Alert::CertificateRequired)) => {
            "the peer requires a certificate: pass --cert and --key"
        }
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the peer's certificate was issued by another certificate authority than our --ca; use \
             certificates of one authority on both sides"
        }
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => return format!("the peer's certificate has expired; {RENEW}"),
        Some(Error::NoCertificatesPresented) => "the peer presented no certificate",
        Some(Error::InvalidMessage(_)) => {
            "the peer does not speak TLS; give --cert, --key and --ca on both sides, or on neither"
        }
        Some(other) => return other.to_string(),
        None => return error.to_string(),
    };
    said.to_owned()
}

/// Returns why a TLS handshake failed.
pub(super) fn handshake_reason(error: &io::Error) -> String {
    let cut = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    if of_tls(error).is_none() && cut.contains(&error.kind()) {
        return CLOSED_IN_TLS.to_owned();
    }
    reason(error)
}
