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
    let (own, bridge) = local_pair()?;
    let (address, security) = (address.clone(), security.clone());
    let spawned = std::thread::Builder::new().name("catchment-carry".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let ended = match connect(&address, &security, LIMIT).await {
                Ok(stream) => carry(stream, bridge).await.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            tracing::info!(controller = %address, ?ended, "its messages do not go by this connection any more");
        });
    });
    spawned.map(|_| own)
}
