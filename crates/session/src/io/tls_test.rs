//! TLS between two connections, with good and wrong certificates.
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::socket_test::{LIMIT, eventually, listen, listen_with};
use super::*;
use crate::cert::{Authority, LEAF_VALIDITY};
use crate::message::{Message, MessageKind};
use crate::refusal::{Refusal, RefusalCode};
use crate::reread::{ClientTls, ServerTls};
use crate::samples;
use crate::tls::{Protection, TlsError, TlsFiles, client_config, server_config};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A directory with an authority, a certificate for the collector and one for a source.
struct Pki {
    _dir: tempfile::TempDir,
    authority: Authority,
    collector: TlsFiles,
    source: TlsFiles,
}

fn pki() -> Pki {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    drop(Authority::create(dir.path(), now).unwrap());
    // From the files, as the command does when it adds a certificate later.
    let authority = Authority::open(dir.path()).unwrap();
    let issue = |name: &str, subjects: &[&str]| {
        authority.issue(name, subjects, now, LEAF_VALIDITY).unwrap().files
    };
    let collector = issue("collector", &["localhost", "127.0.0.1", "::1"]);
    let source = issue("source", &["source.lab"]);
    Pki { _dir: dir, authority, collector, source }
}

/// What happened on both sides of one connection.
#[derive(Debug)]
struct Outcome {
    /// The source's error, or `None` when it got an answer to its Hello.
    source: Option<String>,
    /// What the collector rejected.
    collector: Vec<Rejected>,
}

async fn try_session(collector: &TlsFiles, security: ClientSecurity, host: &str) -> Outcome {
    let tls = ServerTls::open(collector.clone()).unwrap();
    let server = ServerSecurity { tls: Some(tls), insecure: false };
    let config = ListenerConfig::default();
    let (mut listener, rejected) = listen_with("127.0.0.1:0", server, config).await;
    let Address::Tcp { port, .. } = *listener.local() else { panic!("not TCP") };
    let address = Address::Tcp { host: host.to_owned(), port };
    let answer = tokio::spawn(async move {
        if let Some(mut accepted) = listener.accept().await {
            assert_eq!(accepted.connection.protection(), Protection::Tls);
            let welcome = Message::Welcome(samples::welcome());
            accepted.connection.send(&welcome).await.unwrap();
            // Until the source closes.
            let _ = accepted.connection.recv().await;
        }
    });
    let source = dial(&address, &security).await.err();
    if source.is_some() {
        eventually("a rejection", || !rejected.lock().unwrap().is_empty()).await;
    } else {
        answer.await.unwrap();
    }
    let collector = rejected.lock().unwrap().clone();
    Outcome { source, collector }
}

async fn dial(address: &Address, security: &ClientSecurity) -> Result<(), String> {
    let mut connection =
        Connection::connect(address, security, LIMIT).await.map_err(|error| error.to_string())?;
    let hello = Message::Hello(samples::hello());
    connection.send(&hello).await.map_err(|error| error.to_string())?;
    let message = connection.recv().await.map_err(|error| error.to_string())?;
    assert_eq!(message.kind(), MessageKind::Welcome);
    Ok(())
}

fn with(files: &TlsFiles) -> ClientSecurity {
    ClientSecurity { tls: Some(ClientTls::open(files.clone()).unwrap()), insecure: false }
}

/// Fails unless there is no session, and each side says why.
async fn assert_refused(
    collector: &TlsFiles,
    source: ClientSecurity,
    host: &str,
    [collector_says, source_says]: [&str; 2],
) {
    let outcome = try_session(collector, source, host).await;
    let [rejected] = outcome.collector.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(rejected.reason.label(), "tls", "{outcome:?}");
    let reason = rejected.reason.to_string();
    assert!(reason.contains(collector_says), "{reason}");
    let reason = outcome.source.as_ref().unwrap();
    assert!(reason.contains(source_says), "{reason}");
}

#[tokio::test]
async fn certificates_of_one_authority_connect_by_name_and_by_address() {
    let pki = pki();
    for host in ["localhost", "127.0.0.1"] {
        let outcome = try_session(&pki.collector, with(&pki.source), host).await;
        assert_eq!(outcome.source, None);
        assert!(outcome.collector.is_empty(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_side_of_another_authority_is_refused_and_both_sides_say_why() {
    let (ours, theirs) = (pki(), pki());
    let other_authority = "another certificate authority than our";
    let not_taken = "does not accept our certificate";
    let stranger = TlsFiles { ca: ours.source.ca.clone(), ..theirs.source.clone() };
    let says = [other_authority, not_taken];
    assert_refused(&ours.collector, with(&stranger), "localhost", says).await;
    let says = [not_taken, other_authority];
    assert_refused(&theirs.collector, with(&ours.source), "localhost", says).await;
}

#[tokio::test]
async fn a_collector_certificate_for_another_name_is_refused() {
    let pki = pki();
    let outcome = try_session(&pki.source, with(&pki.source), "localhost").await;
    let reason = outcome.source.as_ref().unwrap();
    assert!(reason.contains("localhost"), "{reason}");
    assert_eq!(outcome.collector.len(), 1);
}

#[tokio::test]
async fn an_expired_certificate_is_refused_and_both_sides_say_why() {
    let pki = pki();
    let past = SystemTime::now() - 2 * YEAR;
    let old = pki.authority.issue("old", &["localhost"], past, YEAR).unwrap().files;
    let says = ["expired", "expired"];
    assert_refused(&pki.collector, with(&old), "localhost", says).await;
    assert_refused(&old, with(&pki.source), "localhost", says).await;
}

#[tokio::test]
async fn a_source_without_certificate_is_refused_and_both_sides_say_why() {
    let pki = pki();
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject;
    let ca = rustls::pki_types::CertificateDer::from_pem_file(&pki.source.ca).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let security = ClientSecurity { tls: Some(ClientTls::of(config)), insecure: false };
    let says = ["presented no certificate", "requires a certificate"];
    assert_refused(&pki.collector, security, "localhost", says).await;
}

#[tokio::test]
async fn a_source_without_tls_is_refused_and_both_sides_say_why() {
    let pki = pki();
    let says = ["does not speak TLS", "TLS"];
    assert_refused(&pki.collector, ClientSecurity::default(), "127.0.0.1", says).await;
}

#[tokio::test]
async fn a_source_with_tls_at_a_plain_collector_is_refused_and_both_sides_say_why() {
    let pki = pki();
    let (listener, rejected) = listen("127.0.0.1:0", ListenerConfig::default()).await;
    let error = dial(listener.local(), &with(&pki.source)).await.unwrap_err();
    assert!(error.contains("does not speak TLS"), "{error}");
    let reason = rejected.lock().unwrap()[0].reason.to_string();
    assert!(reason.contains("the bytes are TLS"), "{reason}");
}

fn config_error(files: &TlsFiles) -> TlsError {
    let error = client_config(files).unwrap_err();
    let same = server_config(files).unwrap_err();
    assert_eq!(error.to_string(), same.to_string());
    error
}

#[test]
fn wrong_files_are_named_with_the_reason() {
    let (ours, theirs) = (pki(), pki());
    let with = |change: fn(&mut TlsFiles, &TlsFiles)| {
        let mut files = ours.source.clone();
        change(&mut files, &theirs.source);
        config_error(&files)
    };
    let text = with(|files, _| files.cert = "/nowhere/x.pem".into()).to_string();
    assert!(text.contains("/nowhere/x.pem") && text.contains("No such file"), "{text}");
    let error = with(|files, _| files.cert.clone_from(&files.key));
    assert!(matches!(error, TlsError::Missing { what: "certificate", .. }), "{error}");
    let error = with(|files, _| files.key.clone_from(&files.cert));
    let (text, chmod) = (error.to_string(), format!("chmod 600 {}", ours.source.cert.display()));
    assert!(text.contains(&chmod), "{text}");
    std::fs::set_permissions(&ours.source.cert, Permissions::from_mode(0o600)).unwrap();
    let error = with(|files, _| files.key.clone_from(&files.cert));
    assert!(matches!(error, TlsError::Missing { what: "private key", .. }), "{error}");
    let error = with(|files, theirs| files.key.clone_from(&theirs.key));
    assert!(matches!(error, TlsError::Pair { .. }), "{error}");
    let error = with(|files, _| files.ca = "/".into());
    assert!(matches!(error, TlsError::Read { .. }), "{error}");
}

/// Puts a certificate and key in the places of others, as a program that renews them does.
fn renew(files: &TlsFiles, with: &TlsFiles) {
    for (to, from) in [(&files.cert, &with.cert), (&files.key, &with.key), (&files.ca, &with.ca)] {
        let beside = to.with_extension("new");
        std::fs::copy(from, &beside).unwrap();
        std::fs::rename(&beside, to).unwrap();
    }
}

/// A collector's listener, and whether a source with these files gets in.
struct Door {
    listener: Listener,
    rejected: Arc<std::sync::Mutex<Vec<Rejected>>>,
}

impl Door {
    async fn lets_in(&mut self, source: &ClientSecurity) -> bool {
        let before = self.rejected.lock().unwrap().len();
        let address = self.listener.local().clone();
        let source = source.clone();
        let dialled = tokio::spawn(async move { dial(&address, &source).await });
        let rejected = self.rejected.clone();
        let refused = eventually("a rejection", || rejected.lock().unwrap().len() > before);
        tokio::select! {
            accepted = self.listener.accept() => {
                let welcome = Message::Welcome(samples::welcome());
                accepted.unwrap().connection.send(&welcome).await.unwrap();
                dialled.await.unwrap().unwrap();
                true
            }
            () = refused => false,
        }
    }
}

#[tokio::test]
async fn changed_files_hold_for_connections_from_then_on_at_both_ends() {
    let (ours, theirs) = (pki(), pki());
    let tls = ServerTls::open(ours.collector.clone()).unwrap();
    let server = ServerSecurity { tls: Some(tls), insecure: false };
    let bound = listen_with("127.0.0.1:0", server, ListenerConfig::default()).await;
    let mut door = Door { listener: bound.0, rejected: bound.1 };
    // On another host: the collector's authority is not a file of the source.
    let source = TlsFiles { ca: ours.source.ca.with_extension("source"), ..ours.source.clone() };
    std::fs::copy(&ours.source.ca, &source.ca).unwrap();
    let (old, new) = (with(&source), with(&theirs.source));
    assert!(door.lets_in(&old).await && !door.lets_in(&new).await);
    // Rights that are too wide: nothing changes.
    let key = &theirs.collector.key;
    std::fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
    renew(&ours.collector, &theirs.collector);
    assert!(door.lets_in(&old).await && !door.lets_in(&new).await);
    std::fs::set_permissions(&ours.collector.key, Permissions::from_mode(0o600)).unwrap();
    assert!(door.lets_in(&new).await && !door.lets_in(&old).await);
    // The source reads its files again, too.
    renew(&source, &theirs.source);
    assert!(door.lets_in(&old).await);
}

#[test]
fn a_refused_dial_tells_whether_it_may_succeed_later() {
    let refusal = Refusal::new(RefusalCode::Busy, "a", "b");
    assert!(!refusal.is_permanent());
    let address: Address = "127.0.0.1:1".parse().unwrap();
    let error = ConnectError::Timeout { address: address.clone(), limit: LIMIT };
    assert!(error.is_transient());
    let error = ConnectError::Tls { address, reason: "bad certificate".to_owned() };
    assert!(!error.is_transient());
}
