//! TLS of a peer that has certificates.
use crate::wire::session;
use anyhow::{Context as _, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Connects with the certificate `name` of a folder that `catchment cert` has made.
pub(crate) fn connect(address: SocketAddr, folder: &Path, name: &str) -> Result<TlsStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).context("ca.pem")?)?;
    let cert = CertificateDer::from_pem_file(folder.join(format!("{name}.pem")))?;
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![cert], key)?;
    let server = ServerName::from(address.ip());
    let client = ClientConnection::new(Arc::new(config), server)?;
    let mut stream = StreamOwned::new(client, session::connect(address)?);
    stream.conn.complete_io(&mut stream.sock).context("no TLS")?;
    Ok(stream)
}

/// The certificate that the other side has shown.
pub(crate) fn shown(stream: &TlsStream) -> Vec<u8> {
    let chain = stream.conn.peer_certificates().unwrap_or_default();
    chain.first().map(|cert| cert.to_vec()).unwrap_or_default()
}
