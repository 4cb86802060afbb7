//! A source that is not ours: it speaks docs/spec/session.md over a plain socket, and obeys nobody.
use catchment_netns::wait_until;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
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
        // It must come within 5 s: it is made before.
        let hello = hello(instance, devices).to_string();
        let mut answered = None;
        wait_until("an answer to Hello", || {
            let mut raw = Self::connect(address);
            raw.send(&hello);
            let answer = raw.receive();
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

fn hello(instance: u64, devices: &[String]) -> Value {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let device = |name| json!({"name": name, "format": null, "policy": "block", "next_packet": 0});
    json!({
        "type": "hello",
        "protocol": {"min": 2, "max": 2},
        "software": "none of ours",
        "instance": format!("{instance:016x}"),
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
