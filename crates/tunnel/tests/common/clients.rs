//! What programs at the ends of a tunnel do.
use std::net::{Shutdown, TcpStream};

/// Sends back what comes, and closes its direction when the other is closed.
pub(crate) fn echo(stream: TcpStream) {
    let mut reader = stream.try_clone().unwrap();
    if std::io::copy(&mut reader, &mut &stream).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
}
