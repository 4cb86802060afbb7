//! A transmission controller, as sources reach it: by a connection to register, and by datagrams for grants.
use super::Check;
use catchment::session::datagrams::socket_to;
use catchment::session::io::{Address, ClientSecurity, Peer};
use catchment::session::registration::{Answer, Request, ask_blocking};
use catchment_control::admission::wire::{HEADER_BYTES, Header, Kind, probe};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Datagrams that are sent, one after the other.
const PROBES: u32 = 8;
/// Time for the answer to one.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// Asks a controller how it stands, then whether datagrams pass both ways.
pub(super) fn controller(address: &Address, security: &ClientSecurity) -> Vec<Check> {
    let name = "controller";
    match ask_blocking(address, security, &Request::Status {}) {
        Ok((Answer::Status { status }, peer)) => {
            let number = |member: &str| status[member].as_u64().unwrap_or(0);
            let count = |member: &str| status[member].as_array().map_or(0, Vec::len);
            let stands = match number("term") {
                0 => "stands by for another one".to_owned(),
                term => format!("grants in term {term}"),
            };
            let (links, sources) = (count("links"), count("sources"));
            let seen = format!("{address} {stands}; links: {links}, sources: {sources}");
            let mut checks = vec![Check::ok(name, seen)];
            if let Peer::Tcp(to) = peer {
                checks.push(datagrams(to));
            }
            checks
        }
        Ok(_) => {
            let seen = format!("{address} answers what was not asked");
            vec![Check::problem(name, seen, "look whether another program listens there")]
        }
        Err(error) => {
            let start = "`catchment control --bottleneck RATE` starts one; with certificates, give --cert, --key and --ca";
            vec![Check::problem(name, error.to_string(), start)]
        }
    }
}

/// Sends datagrams of no source: a controller answers each with a hint, a few hundred a second at most.
fn datagrams(to: SocketAddr) -> Check {
    let name = "grants";
    let closed = |seen: String| {
        let remedy =
            format!("let UDP to port {} pass, and its answers: grants come that way", to.port());
        Check::problem(name, seen, remedy)
    };
    let trips = match round_trips(to) {
        Ok(trips) => trips,
        Err(error) => return closed(format!("no datagram can be sent to {to}: {error}")),
    };
    let (Some(least), Some(most)) = (trips.iter().min(), trips.iter().max()) else {
        return closed(format!("no answer to {PROBES} datagrams to {to}"));
    };
    let ms = |time: Duration| format!("{:.2}", 1000.0 * time.as_secs_f64());
    let spread = ms(*most - *least);
    let seen = format!(
        "datagrams to {to} take {} to {} ms there and back: delays differ by {spread} ms",
        ms(*least),
        ms(*most)
    );
    let lost = PROBES as usize - trips.len();
    if lost > 0 {
        let remedy = "grants are repeated, but come late: look for a link that is too full";
        return Check::note(name, format!("{lost} of {PROBES} lost; {seen}"), remedy);
    }
    Check::ok(name, seen)
}

/// Returns the round trips of the datagrams that were answered in time.
fn round_trips(to: SocketAddr) -> io::Result<Vec<Duration>> {
    let socket = socket_to(to)?;
    socket.set_nonblocking(false)?;
    let source = RandomState::new().hash_one(std::process::id()) as u32;
    let mut trips = Vec::new();
    for sequence in 0..PROBES {
        let sent = Instant::now();
        socket.send(&probe(source, sequence, 0))?;
        if is_answered(&socket, (source, sequence), sent)? {
            trips.push(sent.elapsed());
        }
    }
    Ok(trips)
}

/// Waits for the hint to a datagram; what else comes is passed over.
fn is_answered(socket: &UdpSocket, asked: (u32, u32), sent: Instant) -> io::Result<bool> {
    let mut bytes = [0; HEADER_BYTES];
    loop {
        let left = PROBE_LIMIT.saturating_sub(sent.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(left))?;
        let read = match socket.recv(&mut bytes) {
            Ok(read) => read,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let header = Header::read(&bytes[..read]);
        if header.is_ok_and(|it| it.kind == Kind::Hint && (it.source, it.sequence) == asked) {
            return Ok(true);
        }
    }
}
