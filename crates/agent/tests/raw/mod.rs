//! A peer of an agent that speaks the protocol itself, as no honest agent would.
#![allow(dead_code, reason = "each test uses some of it")]
use catchment_agent::Agent;
use catchment_agent::peer::message::{FRAME_BYTES, Frame, Hello, PeerMessage, VERSION};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

pub(crate) const LEASE_MS: u32 = 1500;

pub(crate) fn hello(host: u32, epoch: u32) -> Hello {
    Hello {
        version: VERSION,
        name: "mad".into(),
        host,
        epoch,
        device: "0".repeat(32),
        alpha: 1.0,
        lease_ms: LEASE_MS,
        rates: true,
    }
}

/// A peer that speaks the protocol itself.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn dial(agent: &Agent) -> Self {
        Self(TcpStream::connect(agent.local().unwrap().to_string()).unwrap())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&length[..], bytes].concat()).unwrap();
    }

    pub(crate) fn hear(&mut self) -> PeerMessage {
        match self.hear_any() {
            Frame::Message(message) => message,
            Frame::Round(round) => panic!("{round:?}"),
        }
    }

    pub(crate) fn hear_any(&mut self) -> Frame {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        assert!(bytes.len() <= FRAME_BYTES);
        self.0.read_exact(&mut bytes).unwrap();
        Frame::decode(&bytes).unwrap()
    }

    /// Why it is turned away.
    pub(crate) fn refusal(&mut self) -> String {
        loop {
            let heard = self.hear();
            if let PeerMessage::Refused { reason, .. } = heard {
                return reason;
            }
            assert!(matches!(heard, PeerMessage::Ping {}), "{heard:?}");
        }
    }

    pub(crate) fn greet(agent: &Agent, hello: Hello) -> Self {
        let mut raw = Self::dial(agent);
        raw.send(&PeerMessage::Hello(hello).encode());
        raw
    }

    pub(crate) fn welcome(agent: &Agent, hello: Hello) -> Self {
        let mut raw = Self::greet(agent, hello);
        let answer = raw.hear();
        assert!(matches!(answer, PeerMessage::Welcome(_)), "{answer:?}");
        raw
    }
}
