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

fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(address) => match **address {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_string()),
            ref other => {
                <[u8; 16]>::try_from(other).ok().map(|ip| std::net::Ipv6Addr::from(ip).to_string())
            }
        },
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    }
}

#[cfg(test)]
#[cfg(feature = "certificates")]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn name(common: Option<&str>, others: &[&str]) -> Option<String> {
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(others).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate_name(Some(&[certificate.der().clone()]))
    }

    #[test]
    fn the_common_name_counts_and_without_one_the_first_alternative() {
        assert_eq!(name(Some("line1"), &["a.lab"]).as_deref(), Some("line1"));
        assert_eq!(name(None, &["a.lab", "b.lab"]).as_deref(), Some("a.lab"));
        assert_eq!(name(Some(""), &["10.0.0.1"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(name(None, &["fd00::1"]).as_deref(), Some("fd00::1"));
        assert_eq!(name(None, &[]), None);
    }
}
