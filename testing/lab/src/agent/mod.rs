//! The host's side of the guest's agent: requests with types, replies as results.

mod reply;
mod request;

pub use reply::{Completion, Hello, Kind, Lost, MemoryKey, QpNumber, Status};
pub use request::{Access, Connect, Opcode, Send, Transport};

use anyhow::{Context as _, Result, bail, ensure};
use reply::{Answer, Completions, Counters, Crc, Data, Lines, Made, State};
use request::Request;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// Longer than any request waits in the guest, even when the machine is busy.
const REPLY_LIMIT: Duration = Duration::from_secs(90);

/// Far above every reply that is asked for here.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// An object of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Handle(u64);

/// A connection to the agent. What was made over it ends with it.
pub struct Agent {
    stream: TcpStream,
}

impl Agent {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        Ok(Self { stream })
    }

    /// The guest's kernel and the GIDs of its device.
    ///
    /// # Errors
    /// As all requests: when the guest refuses, with its reason, or is gone.
    pub fn hello(&mut self) -> Result<Hello> {
        self.call(&Request::Hello)
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn make_pd(&mut self) -> Result<Handle> {
        self.call::<Made>(&Request::MakePd).map(|made| made.number)
    }

    /// Makes a completion queue for so many entries.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn make_cq(&mut self, entries: u32) -> Result<Handle> {
        self.call::<Made>(&Request::MakeCq { entries })
            .map(|made| made.number)
    }

    /// Registers `bytes` of new memory.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn make_mr(&mut self, pd: Handle, bytes: usize, access: &[Access]) -> Result<MemoryKey> {
        self.call(&Request::MakeMr { pd, bytes, access })
    }

    /// Makes a queue pair for 256 requests a queue.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn make_qp(&mut self, pd: Handle, cq: Handle, transport: Transport) -> Result<QpNumber> {
        self.call(&Request::MakeQp {
            pd,
            cq,
            transport,
            send_wr: 256,
            recv_wr: 256,
        })
    }

    /// Binds a memory window of type 2 to `length` bytes of `mr`, and returns its key. The send
    /// queue of `qp` must be empty.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn bind_window(
        &mut self,
        [pd, cq, qp, mr]: [Handle; 4],
        (offset, length): (usize, usize),
        access: &[Access],
    ) -> Result<u32> {
        let made: Made = self.call(&Request::BindWindow {
            pd,
            cq,
            qp,
            mr,
            offset,
            length,
            access,
        })?;
        made.rkey.context("the agent bound a window without a key")
    }

    /// Takes a queue pair to ready-to-send.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn connect_qp(&mut self, connect: &Connect<'_>) -> Result<()> {
        self.call::<Nothing>(&Request::Connect(connect)).map(drop)
    }

    /// The state of a queue pair, such as `rts` or `err`.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn state(&mut self, qp: Handle) -> Result<String> {
        self.call::<State>(&Request::State { qp })
            .map(|reply| reply.state)
    }

    /// Posts a receive for `length` bytes from `offset` of the memory on.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn post_recv(
        &mut self,
        [qp, mr]: [Handle; 2],
        (offset, length): (usize, usize),
        wr_id: u64,
    ) -> Result<()> {
        let request = Request::PostRecv {
            qp,
            mr,
            offset,
            length,
            wr_id,
        };
        self.call::<Nothing>(&request).map(drop)
    }

    /// Posts requests to the send queue, one after the other.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn post_send(&mut self, qp: Handle, requests: &[Send]) -> Result<()> {
        self.call::<Nothing>(&Request::PostSend { qp, requests })
            .map(drop)
    }

    /// Waits for `count` completions at most so long, and returns those that came.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn poll(&mut self, cq: Handle, count: usize, limit: Duration) -> Result<Vec<Completion>> {
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Poll {
            cq,
            count,
            timeout_ms,
        };
        self.call::<Completions>(&request)
            .map(|reply| reply.completions)
    }

    /// Writes into registered memory.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn write_memory(&mut self, mr: Handle, offset: usize, data: &[u8]) -> Result<()> {
        let data = to_hex(data);
        self.call::<Nothing>(&Request::WriteMemory { mr, offset, data })
            .map(drop)
    }

    /// Reads registered memory.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn read_memory(&mut self, mr: Handle, offset: usize, length: usize) -> Result<Vec<u8>> {
        let reply: Data = self.call(&Request::ReadMemory { mr, offset, length })?;
        from_hex(&reply.data).context("the agent sent memory that is not hexadecimal")
    }

    /// The CRC-32 (the polynomial of zlib) of registered memory.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn crc_memory(&mut self, mr: Handle, offset: usize, length: usize) -> Result<u32> {
        self.call::<Crc>(&Request::CrcMemory { mr, offset, length })
            .map(|reply| reply.crc)
    }

    /// The counters of the RDMA device.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        self.call::<Counters>(&Request::Counters)
            .map(|reply| reply.counters)
    }

    /// Replaces what the guest's switch does to packets. [`crate::loss`] makes the words.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn impair(&mut self, rules: &str, to_guest: &str, from_guest: &str) -> Result<()> {
        let request = Request::Impair {
            rules,
            to_guest,
            from_guest,
        };
        self.call::<Nothing>(&request).map(drop)
    }

    /// Packets that the guest's switch has dropped since it was told to.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn lost(&mut self) -> Result<Lost> {
        self.call(&Request::Lost)
    }

    /// The last lines that the guest's kernel has logged.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn kernel_log(&mut self) -> Result<Vec<String>> {
        self.call::<Lines>(&Request::Log).map(|reply| reply.lines)
    }

    /// Destroys objects, in this order.
    ///
    /// # Errors
    /// When the guest refuses, or is gone.
    pub fn destroy(&mut self, objects: &[Handle]) -> Result<()> {
        self.call::<Nothing>(&Request::Destroy { objects })
            .map(drop)
    }

    fn call<T: DeserializeOwned>(&mut self, request: &Request<'_>) -> Result<T> {
        let text = serde_json::to_vec(request)?;
        let reply = self
            .exchange(&text)
            .context("the guest's agent is gone or hangs")?;
        match serde_json::from_slice(&reply).context("the agent's reply is not as expected")? {
            Answer::Ok(result) => Ok(result),
            Answer::Error(text) => bail!("the guest refused {text}"),
        }
    }

    fn exchange(&mut self, text: &[u8]) -> Result<Vec<u8>> {
        let length = u32::try_from(text.len())?;
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(text)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length))?;
        ensure!(length <= REPLY_BYTES_MAX, "a reply has {length} bytes");
        let mut reply = vec![0; length];
        self.stream.read_exact(&mut reply)?;
        Ok(reply)
    }
}

/// The result of what returns none.
#[derive(serde::Deserialize)]
struct Nothing {}

fn to_hex(data: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    data.iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let bytes = digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]));
    bytes.collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_travels_as_hexadecimal_digits() {
        assert_eq!(to_hex(&[0, 0x9f, 0xff]), "009fff");
        assert_eq!(from_hex("009fff").as_deref(), Some(&[0, 0x9f, 0xff][..]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
    }
}
