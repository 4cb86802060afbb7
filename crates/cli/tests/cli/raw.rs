//! A source that is not ours: it speaks docs/spec/session.md over a plain socket, and obeys nobody.
use catchment_netns::wait_until;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The GID that it says to have in shared memory; nobody is there.
const GID: &str = "abababababababababababababababab";

pub(super) struct Raw(TcpStream);

impl Raw {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    fn send(&mut self, text: &str) {
        let bytes = u32::try_from(text.len()).unwrap().to_be_bytes();
        // A collector that has refused meanwhile has closed.
        let _ = self.0.write_all(&bytes).and_then(|()| self.0.write_all(text.as_bytes()));
    }

    /// The next message; null when the collector has closed.
    fn receive(&mut self) -> Value {
        let mut bytes = [0; 4];
        let mut text = Vec::new();
        let received = self.0.read_exact(&mut bytes).and_then(|()| {
            text.resize(u32::from_be_bytes(bytes) as usize, 0);
            self.0.read_exact(&mut text)
        });
        received.map_or(Value::Null, |()| serde_json::from_slice(&text).unwrap())
    }

    /// Says Hello as a source with these devices on this host, until the collector has heard it in time;
    /// the connection, and the answer.
    pub(super) fn hello(address: &str, instance: u64, devices: &[String]) -> (Self, Value) {
        static ATTEMPT: AtomicU64 = AtomicU64::new(1);
        let mut answered = None;
        wait_until("an answer to Hello", || {
            let attempt = ATTEMPT.fetch_add(1, Ordering::Relaxed);
            // It must come within 5 s: it is made before.
            let hello = hello(instance, attempt, devices).to_string();
            let mut raw = Self::connect(address);
            raw.send(&hello);
            let answer = match raw.receive() {
                challenge if challenge["type"] == "challenge" => {
                    let signature = sign(instance, challenge["nonce"].as_str().unwrap(), attempt);
                    raw.send(&json!({"type": "proof", "signature": signature}).to_string());
                    raw.receive()
                }
                other => other,
            };
            // Late, on a machine that has other things to do.
            let again = answer.is_null() || answer["retry_after_ms"].is_u64();
            answered = Some((raw, answer));
            !again
        });
        answered.unwrap()
    }

    /// Connects after this Welcome, with streams that begin at this packet; the answer.
    pub(super) fn connect_at(&mut self, welcome: &Value, first_packet: u64) -> Value {
        let streams = welcome["streams"].as_array().unwrap().iter();
        let begin =
            |stream: &Value| json!({"stream": stream["stream"], "first_packet": first_packet});
        let streams: Vec<_> = streams.map(begin).collect();
        let endpoint = json!({"gid": GID, "qpn": 17, "psn": 1});
        let epoch = &welcome["epoch"];
        let connect =
            json!({"type": "connect", "epoch": epoch, "endpoint": endpoint, "streams": streams});
        self.send(&connect.to_string());
        self.receive()
    }
}

/// `count` names, other ones for each `prefix`.
pub(super) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n:06}")).collect()
}

fn key(instance: u64) -> Ed25519KeyPair {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&instance.to_be_bytes());
    Ed25519KeyPair::from_seed_unchecked(&seed).unwrap()
}

fn sign(instance: u64, nonce: &str, attempt: u64) -> String {
    let byte = |at: usize| u8::from_str_radix(&nonce[at..at + 2], 16).unwrap();
    let nonce: Vec<u8> = (0..nonce.len()).step_by(2).map(byte).collect();
    let signed = [b"catchment session proof\0", &*nonce, &attempt.to_be_bytes()].concat();
    hex(key(instance).sign(&signed).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hello(instance: u64, attempt: u64, devices: &[String]) -> Value {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let device = |name| json!({"name": name, "format": null, "policy": "block", "next_packet": 0});
    json!({
        "type": "hello",
        "protocol": {"min": 3, "max": 3},
        "software": "none of ours",
        "instance": hex(key(instance).public_key().as_ref()),
        "attempt": attempt,
        "host": {
            "boot_id": boot_id.trim(),
            "netns": std::fs::metadata("/proc/self/ns/net").unwrap().ino(),
            "uid": rustix::process::geteuid().as_raw(),
            "pid": std::process::id(),
        },
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "providers": [{"name": "shm", "gid": GID, "device": null}],
        "missing": [],
        "failed": [],
        "wish": {"blocks": 4, "block_bytes": 4096},
    })
}
