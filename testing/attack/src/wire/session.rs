//! The session protocol (docs/spec/session.md): framing, and a peer that says what it likes.
//!
//! What the newest version adds to a message is learned from one that the command itself has sent.
use anyhow::{Context as _, Result, bail, ensure};
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

    /// Sends a Hello and returns the answer.
    pub(crate) fn hello(&mut self, hello: &Value) -> Result<Value> {
        self.send(hello)?;
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
    if hello["type"] != "hello" {
        bail!("the model is no Hello: {}", hello["type"]);
    }
    Ok(hello)
}
