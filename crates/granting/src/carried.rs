//! The way to a controller that no datagram reaches.
use catchment_session::carried::{carry, connect, local_pair};
use catchment_session::io::{Address, ClientSecurity};
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

/// Time to connect.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns a socket whose datagrams go to a controller, and come from it, as messages of a connection. They are lost until that
/// is there, and once it is gone.
///
/// # Errors
/// The system gives no socket or no thread.
pub(super) fn carried_to(address: &Address, security: &ClientSecurity) -> io::Result<UdpSocket> {
    carried_within(LIMIT, address, security)
}

/// The same, with a limit of its own for the time to connect.
fn carried_within(
    limit: Duration,
    address: &Address,
    security: &ClientSecurity,
) -> io::Result<UdpSocket> {
    let (own, bridge) = local_pair()?;
    let (address, security) = (address.clone(), security.clone());
    let spawned = std::thread::Builder::new().name("catchment-carry".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let ended = match connect(&address, &security, limit).await {
                Ok(stream) => carry(stream, bridge).await.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            tracing::info!(controller = %address, ?ended, "its messages do not go by this connection any more");
        });
    });
    spawned.map(|_| own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_session::carried::DATAGRAM_BYTES_MAX;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// A controller that is written out: it has read the request of a source.
    fn asked() -> (TcpStream, UdpSocket) {
        let (listener, own) = connected(LIMIT);
        let (mut controller, _) = listener.accept().expect("it connects");
        assert_eq!(read(&mut controller), b"{\"type\":\"carry\"}");
        (controller, own)
    }

    /// A port that has accepted nobody yet, and the socket whose datagrams are to go there.
    fn connected(limit: Duration) -> (TcpListener, UdpSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one").to_string();
        let address = address.parse().expect("an address");
        let own = carried_within(limit, &address, &ClientSecurity::default()).expect("a socket");
        (listener, own)
    }

    fn read(from: &mut TcpStream) -> Vec<u8> {
        let mut length = [0; 4];
        from.read_exact(&mut length).expect("a length");
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut bytes).expect("a message");
        bytes
    }

    fn write(to: &mut TcpStream, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("it is short");
        to.write_all(&length.to_be_bytes()).expect("it is open");
        to.write_all(bytes).expect("it is open");
    }

    /// Sends until the other end is gone: the system says so once a datagram found nobody.
    fn wait_for_end(own: &UdpSocket) {
        while own.send(&[1]).map_err(|error| error.kind()) != Err(ErrorKind::ConnectionRefused) {
            // The other end is another thread.
            std::thread::yield_now();
        }
    }

    #[test]
    fn datagrams_go_as_messages_once_the_controller_carries_them() {
        let (mut controller, own) = asked();
        write(&mut controller, b"{\"type\":\"carrying\"}");
        own.set_nonblocking(false).expect("a socket");
        own.send(&[7; DATAGRAM_BYTES_MAX]).expect("the other end is there");
        assert_eq!(read(&mut controller), [7; DATAGRAM_BYTES_MAX]);
        write(&mut controller, &[9; 40]);
        let mut bytes = [0; DATAGRAM_BYTES_MAX];
        let length = own.recv(&mut bytes).expect("it comes");
        assert_eq!(bytes[..length], [9; 40]);
    }

    #[test]
    fn a_controller_that_says_too_much_is_left_and_nothing_of_it_passed_on() {
        let (mut controller, own) = asked();
        write(&mut controller, b"{\"type\":\"carrying\"}");
        // The bytes never come.
        let length = u32::try_from(DATAGRAM_BYTES_MAX + 1).expect("it is short");
        controller.write_all(&length.to_be_bytes()).expect("it is open");
        wait_for_end(&own);
        let nothing = own.recv(&mut [0; 8]).expect_err("nothing is passed on");
        assert!(matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused));
    }

    #[test]
    fn a_controller_that_does_not_answer_or_refuses_is_given_up() {
        let (_silent, own) = connected(Duration::from_millis(20));
        wait_for_end(&own);
        let (mut controller, own) = asked();
        write(&mut controller, b"{\"type\":\"refused\",\"reason\":\"full\",\"transient\":true}");
        wait_for_end(&own);
    }
}
