//! Peers that send arbitrary data to the service thread. It keeps answering others.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_conformance::{Bench, Options, connected};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Gid, SendOp};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The tests count the descriptors of the process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn bench() -> Bench {
    Bench::new(Arc::new(ShmProvider::new()), "shm0")
}

fn dial(gid: Gid) -> OwnedFd {
    let digest: [u8; 32] = Sha256::digest(gid.0).into();
    let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    dial_name(&format!("catchment-shm-{name}"))
}

fn dial_name(name: &str) -> OwnedFd {
    let (unix, seqpacket) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let fd = rustix::net::socket_with(unix, seqpacket, SocketFlags::CLOEXEC, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&fd, &address).unwrap();
    fd
}

fn send(fd: &OwnedFd, bytes: &[u8], descriptors: usize) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let all = vec![fd.as_fd(); descriptors];
    if descriptors > 0 {
        assert!(control.push(SendAncillaryMessage::ScmRights(&all)));
    }
    // The other side may have hung up already.
    let _ = rustix::net::sendmsg(fd, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

/// A good pair that uses the context connects and works.
fn assert_serves(bench: &Bench, context: &Arc<dyn catchment_verbs::Context>) {
    let options = Options::default();
    let (mut a, b) = connected((bench.open(), &options), (context.clone(), &options));
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
}

fn message(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"CShm\x03\0".to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(rest);
    bytes.resize(64, 0);
    bytes
}

/// Another process of this user, which sees all sockets and has no session.
#[test]
fn a_stranger_finds_no_gid_and_is_let_in_nowhere() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&context.gid().to_string()));
    let names = sockets.lines().filter_map(|line| line.split_once('@'));
    let names: Vec<&str> = names.map(|(_, name)| name).collect();
    let ours: Vec<_> = names.iter().filter(|name| name.starts_with("catchment-shm-")).collect();
    assert!(!ours.is_empty());
    for name in ours {
        let fd = dial_name(name);
        send(&fd, &message(1, &[7; 32]), 0);
        let seen = rustix::net::recv(&fd, &mut [0u8; 64][..], rustix::net::RecvFlags::empty());
        assert!(matches!(seen, Ok((0, _)) | Err(_)), "{name} answered a stranger: {seen:?}");
    }
    assert_serves(&bench, &context);
}

#[test]
fn any_bytes_and_descriptors_are_survived() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_serves(&bench, &context);
    let before = count();
    for round in 0..200u64 {
        let fd = dial(context.gid());
        let noise = catchment_conformance::pattern(round, (round * 7 % 200) as usize);
        if round % 2 == 0 {
            let ours = [round as u8; 16];
            send(&fd, &message(1, [ours, context.gid().0].as_flattened()), 0);
        }
        match round % 5 {
            0 => send(&fd, &noise, 0),
            1 => send(&fd, &message((round % 9) as u16, &noise[..noise.len().min(56)]), 0),
            // More descriptors than any message has, or some that do not belong there.
            2 => send(&fd, &message(1, &noise[..noise.len().min(16)]), 16),
            3 => send(&fd, &message(3, &[0; 8]), 2),
            _ => send(&fd, &message(2, &[0xff; 40]), 3),
        }
        if round % 20 == 0 {
            assert_serves(&bench, &context);
        }
    }
    assert_serves(&bench, &context);
    // What came with the messages is closed.
    catchment_conformance::eventually("closing what came", || count() <= before + 2);
}

#[test]
fn a_thousand_silent_connections_stop_nobody() {
    // Two descriptors for each: ours and that of the service thread.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let silent = most.current.map_or(1000, |n| (n / 2).min(1000)) as usize;
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let mut held = Vec::new();
    for n in 0..silent {
        held.push(dial(context.gid()));
        if n % 100 == 0 {
            assert_serves(&bench, &context);
        }
    }
    assert_serves(&bench, &context);
    // They are disconnected, and do not count forever.
    for fd in held {
        catchment_conformance::eventually("the hang-up", || {
            let seen = rustix::net::recv(&fd, &mut [0u8; 8][..], rustix::net::RecvFlags::DONTWAIT);
            matches!(seen, Ok((0, _)))
        });
    }
}
