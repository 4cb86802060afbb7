//! The session protocol (docs/spec/session.md): framing, and a peer that says what it likes.
//!
//! What the newest version adds to a message is learned from one that the command itself has sent.
use anyhow::{Context as _, Result, bail, ensure};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) fn framed(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text);
    bytes
}

pub(crate) fn write(to: &mut impl Write, message: &Value) -> Result<()> {
    to.write_all(&framed(message.to_string().as_bytes())).context("cannot send")
}

/// Reads a message; none at the end of the connection.
pub(crate) fn read(from: &mut impl Read) -> Result<Option<Value>> {
    let mut length = [0; 4];
    if from.read_exact(&mut length).is_err() {
        return Ok(None);
    }
    let length = u32::from_be_bytes(length) as usize;
    ensure!(length <= 1 << 25, "a message of {length} bytes");
    let mut text = vec![0; length];
    from.read_exact(&mut text).context("a message breaks off")?;
    serde_json::from_slice(&text).context("not JSON").map(Some)
}

/// Something to read and write.
pub(crate) trait Wire: Read + Write {}

impl<T: Read + Write> Wire for T {}

/// A source of its own making.
pub(crate) struct Peer {
    wire: Box<dyn Wire>,
}

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self::over(connect(address)?))
    }

    pub(crate) fn over(wire: impl Wire + 'static) -> Self {
        Self { wire: Box::new(wire) }
    }

    pub(crate) fn send(&mut self, message: &Value) -> Result<()> {
        write(&mut self.wire, message)
    }

    pub(crate) fn receive(&mut self) -> Result<Value> {
        read(&mut self.wire)?.context("it hung up")
    }

    /// Sends a Hello and returns the answer, once it has proven to be who it says, where it is asked to.
    pub(crate) fn hello(&mut self, hello: &Value) -> Result<Value> {
        self.send(hello)?;
        let answer = self.receive()?;
        if answer["type"] != "challenge" {
            return Ok(answer);
        }
        let nonce = bytes_of(answer["nonce"].as_str().unwrap_or_default());
        let attempt = hello["attempt"].as_u64().unwrap_or(0).to_be_bytes();
        let text = [b"catchment session proof\0".as_slice(), &nonce, &attempt].concat();
        let seed =
            hello["software"].as_str().and_then(|text| text.rsplit(' ').next()?.parse().ok());
        let signature = key(seed.unwrap_or(0))?.sign(&text);
        self.send(&json!({ "type": "proof", "signature": hex(signature.as_ref()) }))?;
        self.receive()
    }

    /// Goes on from a Welcome to Ready; `connect` is one that the command has sent.
    pub(crate) fn ready(&mut self, welcome: &Value, connect: &Value, first: u64) -> Result<Value> {
        let mut connect = connect.clone();
        connect["epoch"] = welcome["epoch"].clone();
        connect["endpoint"]["gid"] = welcome["path"]["source_gid"].clone();
        let streams = welcome["streams"].as_array().context("no streams")?;
        let model = connect["streams"][0].clone();
        let stream = |granted: &Value| {
            let mut stream = model.clone();
            stream["stream"] = granted["stream"].clone();
            let next = granted["next_packet"].as_u64().unwrap_or(0);
            stream["first_packet"] = json!(first.max(next));
            stream
        };
        connect["streams"] = streams.iter().map(stream).collect();
        self.send(&connect)?;
        self.receive()
    }
}

/// The key of a process that calls itself by this number.
fn key(number: u64) -> Result<Ed25519KeyPair> {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|error| anyhow::anyhow!("no key: {error}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len() / 2).filter_map(|at| hex.get(2 * at..2 * at + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// Makes a Hello from one of the command: another process, with these devices.
pub(crate) fn forge(model: &Value, instance: u64, devices: &[String]) -> Result<Value> {
    let mut hello = model.clone();
    let device = hello["devices"][0].clone();
    let named = |name: &String| {
        let mut device = device.clone();
        device["name"] = json!(name);
        device["next_packet"] = json!(0);
        device
    };
    hello["devices"] = devices.iter().map(named).collect();
    hello["instance"] = json!(format!("{instance:016x}"));
    if hello["attempt"].is_u64() {
        // From version 3 on a process is known by a key, found again here by the name of its software.
        hello["instance"] = json!(hex(key(instance)?.public_key().as_ref()));
        hello["attempt"] = json!(1);
        hello["software"] = json!(format!("attack {instance}"));
    }
    if hello["type"] != "hello" {
        bail!("the model is no Hello: {}", hello["type"]);
    }
    Ok(hello)
}
