//! The connection over which two ends exchange their cards.
use super::EstablishError;
use crate::card::CARD_BYTES;
use crate::{Card, ChannelError};
use socket2::Socket;
use std::io;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Says that the client is connected.
const GO: u8 = 1;
/// Says that this end sends no more messages.
const BYE: u8 = 2;
/// Begins a refusal, which the server sends in place of its card; text follows and may be longer.
const REFUSAL: &[u8; 4] = b"CDPN";
const REFUSAL_BYTES: usize = 512;

/// Where clients come to.
#[derive(Debug)]
pub struct Listener(Socket);

/// A control connection: TCP or a unix socket. It carries cards and goodbyes, and nothing of a message.
#[derive(Debug)]
pub struct Control(Socket);

/// What the peer has said since the last poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// It sends no more messages.
    Goodbye,
    /// It is gone, or speaks nonsense.
    End,
}

impl Listener {
    /// Listens on a loopback address.
    ///
    /// # Errors
    /// [`EstablishError::Open`] for an address that other hosts reach.
    pub fn tcp(listener: TcpListener) -> Result<Self, EstablishError> {
        let address = listener.local_addr().map_err(failed("its address"))?;
        if !address.ip().is_loopback() {
            return Err(EstablishError::Open(address));
        }
        Self::tcp_insecure(listener)
    }

    /// Listens on any address, for a trusted network: nothing is encrypted, and every client is
    /// served.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn tcp_insecure(listener: TcpListener) -> Result<Self, EstablishError> {
        Self::over(listener.into())
    }

    /// Listens on a unix socket: the permissions of its file say who may connect.
    ///
    /// # Errors
    /// As for [`Listener::tcp_insecure`].
    pub fn unix(listener: UnixListener) -> Result<Self, EstablishError> {
        Self::over(listener.into())
    }

    fn over(listener: Socket) -> Result<Self, EstablishError> {
        listener.set_nonblocking(true).map_err(failed("setting it non-blocking"))?;
        Ok(Self(listener))
    }

    /// Returns the address; `None` of a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()?.as_socket()
    }

    /// Accepts the next client; `None` if none waits.
    ///
    /// # Errors
    /// As `accept(2)` has them.
    pub fn accept(&self) -> io::Result<Option<Control>> {
        match self.0.accept() {
            Ok((socket, _)) if self.address().is_some() => Control::tcp(socket.into()).map(Some),
            Ok((socket, _)) => Control::unix(socket.into()).map(Some),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Control {
    /// Takes a TCP connection.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(Self(stream.into()))
    }

    /// Takes a connected unix socket.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Self(stream.into()))
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        self.0.set_read_timeout(timeout).and(self.0.set_write_timeout(timeout))
    }

    /// From now on [`Control::poll`] may be called, and nothing blocks.
    ///
    /// # Errors
    /// As the system has them.
    pub fn set_nonblocking(&self) -> Result<(), EstablishError> {
        self.0.set_nonblocking(true).map_err(failed("setting it non-blocking"))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a socket is waited for in real time, before there is a channel"
    )]
    fn read_exact(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.set_timeout(left)?;
            match self.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives the peer's card.
    ///
    /// # Errors
    /// [`EstablishError`]: a refusal, something else than a card, or silence until the deadline.
    pub fn recv_card(&self, deadline: Instant) -> Result<Card, EstablishError> {
        let mut bytes = [0; CARD_BYTES];
        self.read_exact(&mut bytes, deadline).map_err(failed("waiting for the peer's card"))?;
        if bytes.starts_with(REFUSAL) {
            return Err(EstablishError::Refused(self.recv_refusal(&bytes, deadline)));
        }
        Ok(Card::decode(&bytes).map_err(ChannelError::from)?)
    }

    /// Receives the rest of the reason that begins in these bytes.
    fn recv_refusal(&self, begin: &[u8; CARD_BYTES], deadline: Instant) -> String {
        let mut bytes = [0; REFUSAL_BYTES];
        bytes[..CARD_BYTES].copy_from_slice(begin);
        for place in CARD_BYTES..REFUSAL_BYTES {
            let is_over = bytes[place - 1] == 0;
            if is_over || self.read_exact(&mut bytes[place..=place], deadline).is_err() {
                break;
            }
        }
        let text = &bytes[REFUSAL.len()..];
        let end = text.iter().position(|byte| *byte == 0);
        let text = String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]);
        // The text is untrusted: drop what a terminal would obey.
        text.chars().filter(|c| !c.is_control()).collect()
    }

    /// Sends this end's card.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_card(&self, card: Card) -> Result<(), EstablishError> {
        self.write_all(&card.encode()).map_err(failed("sending this end's card"))
    }

    /// Sends the reason for refusal in place of a card. Failures to send are ignored.
    pub fn refuse(&self, reason: &str) {
        let mut bytes = [0; REFUSAL_BYTES];
        bytes[..REFUSAL.len()].copy_from_slice(REFUSAL);
        let room = REFUSAL_BYTES - REFUSAL.len();
        let end = (0..=room.min(reason.len())).rev();
        let end = end.into_iter().find(|end| reason.is_char_boundary(*end));
        let text = &reason.as_bytes()[..end.unwrap_or(0)];
        bytes[REFUSAL.len()..REFUSAL.len() + text.len()].copy_from_slice(text);
        let length = CARD_BYTES.max(REFUSAL.len() + text.len());
        let _ = self.write_all(&bytes[..length]);
    }

    /// Says that this end is connected.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_go(&self) -> Result<(), EstablishError> {
        self.write_all(&[GO]).map_err(failed("confirming the connection"))
    }

    /// Waits until the peer is connected.
    ///
    /// # Errors
    /// [`EstablishError`]: another word, or silence until the deadline.
    pub fn recv_go(&self, deadline: Instant) -> Result<(), EstablishError> {
        let mut byte = [0];
        let read = self.read_exact(&mut byte, deadline);
        read.map_err(failed("waiting for the peer to connect"))?;
        match byte {
            [GO] => Ok(()),
            [other] => Err(EstablishError::Said(other)),
        }
    }

    /// Says that this end sends no more messages. A peer that is gone does not get it.
    pub fn send_goodbye(&self) {
        let _ = self.write_all(&[BYE]);
    }

    /// Returns what the peer has said since the last poll. Never blocks after
    /// [`Control::set_nonblocking`].
    pub fn poll(&self) -> Heard {
        let mut bytes = [0; 8];
        match self.read(&mut bytes) {
            Ok(1) if bytes[0] == BYE => Heard::Goodbye,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Heard::Nothing
            }
            Ok(_) | Err(_) => Heard::End,
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> EstablishError {
    move |source| EstablishError::Control { what, source }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "deadlines of a socket are in real time")]
mod tests {
    use super::*;

    fn pair() -> (Control, Control) {
        let (a, b) = UnixStream::pair().unwrap();
        (Control::unix(a).unwrap(), Control::unix(b).unwrap())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn a_refusal_says_why_and_is_cut_between_characters() {
        let (a, b) = pair();
        a.refuse("no\u{1b}room");
        a.refuse(&"é".repeat(300));
        drop(a);
        let text = |result: Result<Card, EstablishError>| match result {
            Err(EstablishError::Refused(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(b.recv_card(soon())), "noroom");
        assert_eq!(text(b.recv_card(soon())), "é".repeat(254));
    }

    #[test]
    fn half_a_card_a_wrong_word_and_silence() {
        let (a, b) = pair();
        a.write_all(&[0; 10]).unwrap();
        let text = b.recv_card(Instant::now() + Duration::from_millis(20)).unwrap_err().to_string();
        assert!(text.contains("waiting for the peer's card"), "{text}");
        drop(a);
        let cut = b.recv_card(soon()).unwrap_err().to_string();
        assert!(cut.contains("the control connection"), "{cut}");
        let (a, b) = pair();
        a.write_all(&[7]).unwrap();
        assert!(matches!(b.recv_go(soon()), Err(EstablishError::Said(7))));
    }

    #[test]
    fn polling_never_waits() {
        let (a, b) = pair();
        b.set_nonblocking().unwrap();
        assert_eq!(b.poll(), Heard::Nothing);
        a.send_goodbye();
        assert_eq!(b.poll(), Heard::Goodbye);
        a.write_all(&[9]).unwrap();
        assert_eq!(b.poll(), Heard::End, "nonsense");
        drop(a);
        assert_eq!(b.poll(), Heard::End);
    }

    #[test]
    fn a_reachable_address_must_be_asked_for() {
        let refused = Listener::tcp(TcpListener::bind("0.0.0.0:0").unwrap()).unwrap_err();
        assert!(refused.to_string().contains("tcp_insecure"), "{refused}");
    }
}
