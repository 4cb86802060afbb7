//! Many connections, silent ones, slow ones, and bytes that mean nothing.
use super::Args;
use crate::host::process::pass;
use crate::wire::session::framed;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn open(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Opens `count` connections, says `first` on each, and is silent.
pub(super) fn connections(args: &Args) -> Result<Value> {
    let (address, first) = (args.address()?, args.text("first")?.as_bytes().to_vec());
    hold(address, args.number("count")?, &first, args.time()?)
}

fn hold(address: SocketAddr, count: u64, first: &[u8], time: Duration) -> Result<Value> {
    let start = Instant::now();
    let mut open_ones = Vec::new();
    while (open_ones.len() as u64) < count && start.elapsed() < time {
        if let Some(mut stream) = open(address) {
            let _ = stream.write_all(first);
            open_ones.push(stream);
        }
    }
    let opened = open_ones.len();
    pass(time.saturating_sub(start.elapsed()));
    Ok(json!({ "opened": opened, "open": open_ones.iter().filter(|s| is_open(s)).count() }))
}

fn is_open(mut stream: &TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Sends what no specification has, on connection after connection.
pub(super) fn garbage(args: &Args) -> Result<Value> {
    let address = args.address()?;
    let texts: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 64],
        &framed(b"{}"),
        &framed(b"{\"type\":\"hello\"}"),
        &framed(br#"{"type":"goodbye","epoch":1,"streams":[]}"#),
        &framed(&[b'['; 60_000]),
        &framed(br#"{"type":"hello","protocol":{"min":2,"max":2},"devices":[{"name":"../../x"}]}"#),
    ];
    let mut sent = 0;
    for _ in 0..args.number("count")? {
        for text in texts {
            if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
                stream.set_read_timeout(Some(Duration::from_millis(200)))?;
                sent += usize::from(stream.write_all(text).is_ok());
                let _ = stream.read(&mut [0; 512]);
            }
        }
    }
    Ok(json!({ "sent": sent }))
}

/// Asks a page for what never ends, and does not read it.
pub(super) fn slow_readers(args: &Args) -> Result<Value> {
    let address = args.address()?;
    let request = format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    hold(address, args.number("count")?, request.as_bytes(), args.time()?)
}

/// Begins requests and does not end them.
pub(super) fn unfinished_requests(args: &Args) -> Result<Value> {
    hold(args.address()?, args.number("count")?, b"GET /metr", args.time()?)
}
