//! Reads what an authority's certificate says of it: its name and the identifier of its key, which
//! every certificate that it signs repeats. Nothing else of the certificate is read or checked.
use rcgen::string::{BmpString, UniversalString};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, Issuer, KeyIdMethod, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use yasna::models::TaggedDerValue;
use yasna::tags::{
    TAG_BMPSTRING, TAG_IA5STRING, TAG_PRINTABLESTRING, TAG_SEQUENCE, TAG_TELETEXSTRING,
    TAG_UNIVERSALSTRING, TAG_UTF8STRING,
};
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, BERReaderSeq, Tag};

/// id-ce-subjectKeyIdentifier of RFC 5280.
const SUBJECT_KEY_IDENTIFIER: [u64; 4] = [2, 5, 29, 14];

/// Returns the authority that `pem` certifies, to sign with `key`.
pub(crate) fn read_issuer(
    pem: &str,
    key: KeyPair,
) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
    let unreadable = rcgen::Error::CouldNotParseCertificate;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| unreadable.clone())?;
    let mut params = CertificateParams::default();
    yasna::parse_der(&der, |certificate| {
        certificate.read_sequence(|parts| {
            parts.next().read_sequence(|signed| read_signed(signed, &mut params))?;
            skip(parts, &["signatureAlgorithm", "signatureValue"])
        })
    })
    .map_err(|_| unreadable)?;
    Ok(Issuer::new(params, key))
}

/// Reads `TBSCertificate` of RFC 5280, section 4.1.
fn read_signed(parts: &mut BERReaderSeq, params: &mut CertificateParams) -> ASN1Result<()> {
    parts.read_optional(|version| version.read_tagged(Tag::context(0), |der| der.read_der()))?;
    skip(parts, &["serialNumber", "signature", "issuer", "validity"])?;
    params.distinguished_name = DistinguishedName::new();
    parts.next().read_sequence_of(|set| {
        // rcgen cannot write a set of several attributes: reading one fails if more follow.
        set.read_set(|set| {
            read_attribute(set.next(&[TAG_SEQUENCE])?, &mut params.distinguished_name)
        })
    })?;
    skip(parts, &["subjectPublicKeyInfo"])?;
    for unique_id in [Tag::context(1), Tag::context(2)] {
        parts.read_optional(|id| {
            id.read_tagged_implicit(unique_id, |bits| bits.read_bitvec_bytes())
        })?;
    }
    parts.read_optional(|extensions| {
        extensions.read_tagged(Tag::context(3), |list| {
            list.read_sequence_of(|one| one.read_sequence(|one| read_extension(one, params)))
        })
    })?;
    Ok(())
}

fn read_attribute(attribute: BERReader, name: &mut DistinguishedName) -> ASN1Result<()> {
    let (kind, value) = attribute
        .read_sequence(|pair| Ok((pair.next().read_oid()?, pair.next().read_tagged_der()?)))?;
    let value = read_string(&value).ok_or(ASN1Error::new(ASN1ErrorKind::Invalid))?;
    name.push(DnType::from_oid(kind.components()), value);
    Ok(())
}

fn read_string(value: &TaggedDerValue) -> Option<DnValue> {
    let bytes = value.value().to_vec();
    let text = || String::from_utf8(value.value().to_vec()).ok();
    Some(match value.tag() {
        TAG_UTF8STRING => DnValue::Utf8String(text()?),
        TAG_PRINTABLESTRING => DnValue::PrintableString(text()?.try_into().ok()?),
        TAG_IA5STRING => DnValue::Ia5String(text()?.try_into().ok()?),
        TAG_TELETEXSTRING => DnValue::TeletexString(text()?.try_into().ok()?),
        TAG_BMPSTRING => DnValue::BmpString(BmpString::from_utf16be(bytes).ok()?),
        TAG_UNIVERSALSTRING => DnValue::UniversalString(UniversalString::from_utf32be(bytes).ok()?),
        _ => return None,
    })
}

fn read_extension(parts: &mut BERReaderSeq, params: &mut CertificateParams) -> ASN1Result<()> {
    let kind = parts.next().read_oid()?;
    parts.read_default(false, |critical| critical.read_bool())?;
    let value = parts.next().read_bytes()?;
    if *kind.components() == SUBJECT_KEY_IDENTIFIER {
        let id = yasna::parse_der(&value, |id| id.read_bytes())?;
        params.key_identifier_method = KeyIdMethod::PreSpecified(id);
    }
    Ok(())
}

fn skip(parts: &mut BERReaderSeq, names: &[&str]) -> ASN1Result<()> {
    names.iter().try_for_each(|_| parts.next().read_der().map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_repeats_the_name_and_the_key_identifier_of_any_authority() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap()));
        name.push(DnType::OrganizationName, "Größe 9");
        name.push(DnType::LocalityName, DnValue::BmpString("Ort".try_into().unwrap()));
        name.push(DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]), "lab");
        params.distinguished_name = name.clone();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_identifier_method = KeyIdMethod::PreSpecified(b"the key's own id".to_vec());
        let authority = params.self_signed(&key).unwrap();

        let issuer = read_issuer(&authority.pem(), key).unwrap();
        let mut leaf = CertificateParams::new(["cam.lab".to_owned()]).unwrap();
        leaf.use_authority_key_identifier_extension = true;
        let leaf = leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        let mut read_back = CertificateParams::default();
        yasna::parse_der(authority.der(), |certificate| {
            certificate.read_sequence(|parts| {
                parts.next().read_sequence(|signed| read_signed(signed, &mut read_back))?;
                skip(parts, &["signatureAlgorithm", "signatureValue"])
            })
        })
        .unwrap();
        assert_eq!(read_back.distinguished_name, name);
        let has = |bytes: &[u8]| leaf.der().windows(bytes.len()).any(|part| part == bytes);
        assert!(has("Größe 9".as_bytes()) && has(b"DE") && has(b"\0O\0r\0t") && has(b"lab"));
        assert!(has(b"the key's own id"));
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let key = || KeyPair::generate().unwrap();
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"]
        {
            assert!(read_issuer(pem, key()).is_err(), "{pem}");
        }
    }
}
