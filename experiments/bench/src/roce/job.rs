//! What one measurement is, and the two processes that do it.
use anyhow::{Context, Result};
use catchment_netns::{Namespace, VethPair};
use catchment_perf::ChildProcess;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Bytes of an operation of a stream.
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;
/// What is sent from, and written to.
pub(crate) const REGION_BYTES: usize = 64 << 20;
pub(crate) const SMALL_BYTES: usize = 64;
pub(crate) const WARM_UP_TRIPS: u64 = 1000;
/// What a side prints when its peer may come.
pub(crate) const READY: &str = "ready";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Packets without a protocol, as fast as they go, one way.
    BareStream,
    /// Packets without a protocol, to and fro; `threads`: one thread of a side receives, as the
    /// engine's does, and the program looks at its memory.
    BarePingPong {
        threads: bool,
    },
    /// TCP from and to memory as large as that of the others.
    Tcp,
    Ours(Op),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Write,
    /// WRITEs of the same 128 KiB to the same 128 KiB again and again, as iperf3 does.
    WriteAgain,
    /// READs of 1 MiB, asked for by the receiver of the data.
    Read,
    Send,
    /// WRITEs of 64 bytes, as many as there is room for.
    Messages,
    /// WRITEs of 64 bytes into each other's memory, to and fro; `inline`: the programs do the
    /// engine's work.
    PingPong {
        inline: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    /// Sends the data, or first.
    Sender,
    Receiver,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) side: Side,
    pub(crate) what: What,
    pub(crate) path_mtu: usize,
    pub(crate) seconds: f64,
    /// Bytes on their way at most, for bare UDP; ours has its own default.
    pub(crate) window_bytes: usize,
    /// Both look so long for packets before they sleep.
    pub(crate) spin: Duration,
    pub(crate) sender: IpAddr,
    pub(crate) receiver: IpAddr,
    pub(crate) sender_core: usize,
    pub(crate) receiver_core: usize,
    pub(crate) netns: String,
}

impl Job {
    pub(crate) fn own(&self) -> IpAddr {
        match self.side {
            Side::Sender => self.sender,
            Side::Receiver => self.receiver,
        }
    }

    pub(crate) fn peer(&self) -> IpAddr {
        match self.side {
            Side::Sender => self.receiver,
            Side::Receiver => self.sender,
        }
    }

    /// Runs both sides, in two fresh processes, and gives what the sender and the receiver printed.
    pub(crate) fn run(&self, pair: &VethPair) -> Result<(String, String)> {
        let mut receiver = self.start(Side::Receiver, &pair.right)?;
        receiver.wait_for(|line| line == READY)?;
        let sender = self.start(Side::Sender, &pair.left)?;
        Ok((sender.finish()?, receiver.finish()?))
    }

    fn start(&self, side: Side, at: &Namespace) -> Result<ChildProcess> {
        let job = Self { side, netns: at.path(), ..self.clone() };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("roce-role").arg(serde_json::to_string(&job)?);
        command.stdin(Stdio::null());
        let name = match side {
            Side::Sender => "the sender",
            Side::Receiver => "the receiver",
        };
        Ok(ChildProcess::start(name, &mut command)?)
    }
}

/// Reads what a side printed at its end.
pub(crate) fn parse<T: DeserializeOwned>(said: &str) -> Result<T> {
    serde_json::from_str(said.trim()).with_context(|| format!("a side printed {said:?}"))
}
