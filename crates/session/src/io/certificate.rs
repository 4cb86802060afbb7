//! Whose certificate a peer has shown.
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Returns the common name of the first certificate, or else its first alternative name. TLS has checked
/// the certificate.
pub(super) fn certificate_name(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(chain?.first()?).ok()?;
    let common = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    let named = common.filter(|name| !name.is_empty()).map(str::to_owned);
    named.or_else(|| {
        let others = certificate.subject_alternative_name().ok()??;
        let others = others.value.general_names.iter();
        others.filter_map(text).next()
    })
}

#[allow(clippy::wildcard_enum_match_arm, reason = "other kinds of names name no peer")]
fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(address) => match **address {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_string()),
            ref other => {
                <[u8; 16]>::try_from(other).ok().map(|ip| std::net::Ipv6Addr::from(ip).to_string())
            }
        },
        _ => None,
    }
}
