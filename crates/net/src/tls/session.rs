//! Facts about the TLS session of a connection, and the names in the certificate of its client.

use rustls::pki_types::CertificateDer;
use rustls::{CommonState, ProtocolVersion};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Attribute type of a common name (RFC 4519, section 2.3).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// Longest name that may become that of a user.
const NAME_BYTES_MAX: usize = 512;

/// Facts about the TLS session of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSession {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// Name of the cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: Box<str>,
    /// Certificate of the client, which was verified. `None` if it gave none.
    pub client: Option<ClientCertificate>,
}

impl TlsSession {
    /// Returns the name of the user in the client's certificate.
    pub fn user(&self) -> Option<&str> {
        self.client.as_ref()?.user.as_deref()
    }
}

/// A verified certificate of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Distinguished name of the subject, as in RFC 4514: `CN=ann,O=Example`.
    pub subject: Box<str>,
    /// Distinguished name of the issuer.
    pub issuer: Box<str>,
    /// Beginning and end of its validity, in seconds since 1970.
    pub valid_s: (u64, u64),
    /// Names of hosts, mail addresses and URIs among the alternative names.
    pub alternative_names: Vec<Box<str>>,
    /// Name of its user by the rule of the listener. `None` if it has no such name, or one that is no name:
    /// empty, too long, or with control characters.
    pub user: Option<Box<str>>,
}

/// Rule that maps a certificate to the name of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientName {
    /// The only common name of the subject.
    #[default]
    CommonName,
    /// The whole distinguished name of the subject.
    DistinguishedName,
    /// The first host among the alternative names.
    Dns,
    /// The first mail address among the alternative names.
    Email,
    /// The first URI among the alternative names.
    Uri,
}

impl ClientName {
    pub const ALL: [Self; 5] = [
        Self::CommonName,
        Self::DistinguishedName,
        Self::Dns,
        Self::Email,
        Self::Uri,
    ];

    /// Returns the rule's word in settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::CommonName => "common_name",
            Self::DistinguishedName => "distinguished_name",
            Self::Dns => "dns",
            Self::Email => "email",
            Self::Uri => "uri",
        }
    }
}

impl TlsSession {
    /// Reads the facts of a session whose handshake is complete.
    pub(crate) fn of(session: &CommonState, rule: ClientName) -> Self {
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let cipher = session
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or_default();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        Self {
            version,
            cipher: cipher.into(),
            client: certificate.and_then(|certificate| ClientCertificate::read(certificate, rule)),
        }
    }
}

impl ClientCertificate {
    /// Reads a certificate that was verified. `None` if it is malformed in a place that verification does
    /// not look at.
    fn read(der: &CertificateDer<'_>, rule: ClientName) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let (subject, names) = (subject(&certificate), alternative_names(&certificate));
        let user = match rule {
            ClientName::CommonName => common_name(&certificate),
            ClientName::DistinguishedName => Some(subject.clone()),
            ClientName::Dns => first(&names, Alternative::Dns),
            ClientName::Email => first(&names, Alternative::Email),
            ClientName::Uri => first(&names, Alternative::Uri),
        };
        Some(Self {
            subject,
            issuer: certificate.tbs_certificate.issuer.to_string().into(),
            valid_s: validity(&certificate),
            alternative_names: names.into_iter().map(|(_, name)| name).collect(),
            user: user.filter(|name| is_name(name)),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alternative {
    Dns,
    Email,
    Uri,
}

fn first(names: &[(Alternative, Box<str>)], kind: Alternative) -> Option<Box<str>> {
    let found = names.iter().find(|(found, _)| *found == kind);
    found.map(|(_, name)| name.clone())
}

/// Returns the end of a certificate's validity, in seconds since 1970. `None` if it is malformed.
pub(crate) fn not_after_s(der: &CertificateDer<'_>) -> Option<u64> {
    Certificate::from_der(der)
        .ok()
        .map(|certificate| validity(&certificate).1)
}

fn validity(certificate: &Certificate) -> (u64, u64) {
    let validity = &certificate.tbs_certificate.validity;
    let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
    (seconds(validity.not_before), seconds(validity.not_after))
}

fn subject(certificate: &Certificate) -> Box<str> {
    certificate.tbs_certificate.subject.to_string().into()
}

/// Returns the common name. `None` if there is none, or more than one.
fn common_name(certificate: &Certificate) -> Option<Box<str>> {
    let attributes = certificate.tbs_certificate.subject.0.iter();
    let mut names = attributes
        .flat_map(|set| set.0.iter())
        .filter(|attribute| attribute.oid == COMMON_NAME);
    let only = names.next().filter(|_| names.next().is_none())?;
    let is_text = matches!(
        only.value.tag(),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String
    );
    let text = std::str::from_utf8(only.value.value()).ok();
    text.filter(|_| is_text).map(Into::into)
}

fn alternative_names(certificate: &Certificate) -> Vec<(Alternative, Box<str>)> {
    let Ok(Some((_, SubjectAltName(names)))) = certificate.tbs_certificate.get::<SubjectAltName>() else {
        return Vec::new();
    };
    let text_of = |name: &GeneralName| match name {
        GeneralName::DnsName(text) => Some((Alternative::Dns, text.as_str().into())),
        GeneralName::Rfc822Name(text) => Some((Alternative::Email, text.as_str().into())),
        GeneralName::UniformResourceIdentifier(text) => Some((Alternative::Uri, text.as_str().into())),
        GeneralName::OtherName(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EdiPartyName(_)
        | GeneralName::IpAddress(_)
        | GeneralName::RegisteredId(_) => None,
    };
    names.iter().filter_map(text_of).collect()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(names: &[(DnType, &str)], alternatives: &[SanType]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.subject_alt_names = alternatives.to_vec();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn user(der: &CertificateDer<'_>, rule: ClientName) -> Option<Box<str>> {
        ClientCertificate::read(der, rule).unwrap().user
    }

    #[test]
    fn each_rule_finds_its_name() {
        let alternatives = [
            SanType::DnsName("ann.example".try_into().unwrap()),
            SanType::Rfc822Name("ann@example.org".try_into().unwrap()),
            SanType::URI("spiffe://example/ann".try_into().unwrap()),
        ];
        let names = [
            (DnType::OrganizationName, "Example, Inc"),
            (DnType::CommonName, "ann"),
        ];
        let der = certificate(&names, &alternatives);
        for (rule, expected) in [
            (ClientName::CommonName, "ann"),
            (ClientName::DistinguishedName, "CN=ann,O=Example\\, Inc"),
            (ClientName::Dns, "ann.example"),
            (ClientName::Email, "ann@example.org"),
            (ClientName::Uri, "spiffe://example/ann"),
        ] {
            assert_eq!(user(&der, rule).as_deref(), Some(expected), "{}", rule.word());
        }
    }

    #[test]
    fn a_certificate_without_a_good_name_has_no_user() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a\0b", "a\nb", &long] {
            let der = certificate(&[(DnType::CommonName, name)], &[]);
            assert_eq!(user(&der, ClientName::CommonName), None, "{name:?}");
        }
        let der = certificate(&[(DnType::OrganizationName, "Example")], &[]);
        for rule in [
            ClientName::CommonName,
            ClientName::Dns,
            ClientName::Email,
            ClientName::Uri,
        ] {
            assert_eq!(user(&der, rule), None, "{}", rule.word());
        }
        let empty = certificate(&[], &[]);
        assert_eq!(user(&empty, ClientName::DistinguishedName), None);
    }
}
