//! As little HTTP as the page needs.
use crate::wire::session::{self, Wire};
use anyhow::{Context as _, Result};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketType};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Fetches a path; returns the status and the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let stream = session::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    ask(stream, &address.to_string(), path)
}

/// Fetches a path from this address of the host.
pub(crate) fn get_from(own: Ipv4Addr, page: SocketAddr, path: &str) -> Result<(u16, String)> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((own, 0)))?;
    let limit = Some(Duration::from_secs(5));
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, limit)?;
    rustix::net::connect(&socket, &page).context("cannot connect")?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(limit)?;
    ask(stream, &page.to_string(), path)
}

pub(crate) fn ask(mut wire: impl Wire, host: &str, path: &str) -> Result<(u16, String)> {
    write!(wire, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut text = Vec::new();
    // A TLS peer may hang up without a word after the answer.
    if let Err(error) = wire.read_to_end(&mut text) {
        anyhow::ensure!(!text.is_empty(), "no answer: {error}");
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    Ok((status.context("no HTTP answer")?, body.unwrap_or_default()))
}

/// Sums the samples of a metric whose name and labels hold all these words.
pub(crate) fn metric(text: &str, words: &[&str]) -> Option<f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let found = samples.filter(|line| words.iter().all(|word| line.contains(word)));
    let values: Vec<f64> = found.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}
