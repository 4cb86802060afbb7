//! A tunnel with both ends in this process, and services for it.
#![allow(dead_code, reason = "not every test needs everything")]
pub(crate) mod clients;

use catchment_providers::ProviderSet;
use catchment_session::io::{Address, ClientSecurity, ServerSecurity};
use catchment_session::path::PathRules;
use catchment_tunnel::session::{Report, WINDOW_BYTES};
use catchment_tunnel::{
    ClientConfig, ClientEnd, Local, Mode, ServiceConfig, ServiceEnd, TunnelEvent,
};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Longer than anything takes on a machine that does other work too.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Tunnel {
    pub(crate) client: ClientEnd,
    pub(crate) service: Option<ServiceEnd>,
    service_at: String,
    provider: String,
    mode: Mode,
    events: Receiver<TunnelEvent>,
}

fn reporter() -> (Report, Receiver<TunnelEvent>) {
    let (tell, events) = channel();
    (Arc::new(move |event| drop(tell.send(event))), events)
}

fn providers(only: &str) -> ProviderSet {
    ProviderSet::default()
        .rules(PathRules { require: vec![only.to_owned()], ..PathRules::default() })
}

fn local(address: &str) -> Local {
    Local::find(&address.parse().unwrap()).unwrap()
}

fn serve(listen: Address, service_at: &str, provider: &str) -> ServiceEnd {
    let config = ServiceConfig {
        listen,
        services: vec![("echo".to_owned(), local(service_at))],
        providers: providers(provider),
        security: ServerSecurity::default(),
        insecure: false,
        streams: 1000,
        window_bytes: WINDOW_BYTES,
    };
    ServiceEnd::start(config, Arc::new(|_| {})).unwrap()
}

fn dial(
    listen: &str,
    to: &Address,
    (provider, mode): (&str, Mode),
    service: &str,
    streams: u32,
    report: Report,
) -> ClientEnd {
    let config = ClientConfig {
        listen: local(listen),
        to: to.clone(),
        service: service.to_owned(),
        providers: providers(provider),
        security: ClientSecurity::default(),
        insecure: false,
        streams,
        window_bytes: WINDOW_BYTES,
        mode,
    };
    ClientEnd::start(config, report).unwrap()
}

impl Tunnel {
    /// Over this provider only, to a service at this address.
    pub(crate) fn start(provider: &str, service_at: &str) -> Self {
        Self::start_in(Mode::default(), provider, service_at)
    }

    /// With messages that travel in this mode.
    pub(crate) fn start_in(mode: Mode, provider: &str, service_at: &str) -> Self {
        Self::make("127.0.0.1:0", service_at, (provider, mode), 500)
    }

    pub(crate) fn start_with(provider: &str, service_at: &str, streams: u32) -> Self {
        Self::make("127.0.0.1:0", service_at, (provider, Mode::default()), streams)
    }

    pub(crate) fn between(listen: &str, service_at: &str, provider: &str) -> Self {
        Self::make(listen, service_at, (provider, Mode::default()), 500)
    }

    fn make(listen: &str, service_at: &str, by: (&str, Mode), streams: u32) -> Self {
        let service = serve("127.0.0.1:0".parse().unwrap(), service_at, by.0);
        let (report, events) = reporter();
        let client = dial(listen, service.local(), by, "echo", streams, report);
        let (service_at, provider) = (service_at.to_owned(), by.0.to_owned());
        let service = Some(service);
        let tunnel = Self { client, service, service_at, provider, mode: by.1, events };
        tunnel.expect(|event| matches!(event, TunnelEvent::Connected(_)));
        tunnel
    }

    /// Waits for an event of the clients' end.
    #[track_caller]
    pub(crate) fn expect(&self, is_it: impl Fn(&TunnelEvent) -> bool) {
        loop {
            let event = self.events.recv_timeout(LIMIT).expect("an event");
            if is_it(&event) {
                return;
            }
        }
    }

    /// Starts the end of the service again, at the same address.
    pub(crate) fn serve_again(&mut self, listen: &Address) {
        self.service = Some(serve(listen.clone(), &self.service_at, &self.provider));
    }

    /// Another end with clients, for a service of this name.
    pub(crate) fn dial_for(&self, service: &str) -> (ClientEnd, Receiver<TunnelEvent>) {
        let (report, events) = reporter();
        let to = self.service.as_ref().unwrap().local();
        (dial("127.0.0.1:0", to, (&self.provider, self.mode), service, 10, report), events)
    }

    pub(crate) fn client(&self) -> TcpStream {
        let Local::Tcp(addr) = self.client.local() else { panic!("it listens on a unix socket") };
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    #[track_caller]
    pub(crate) fn wait_until_none_is_open(&self) {
        let service = self.service.as_ref().unwrap();
        for _ in 0..6000 {
            if self.client.totals().connections_open + service.totals().connections_open == 0 {
                return;
            }
            // Nothing tells when the last socket is closed.
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}, {:?}", self.client.totals(), service.totals());
    }
}

/// A service that sends back what it gets, until the test ends.
pub(crate) fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || clients::echo(stream));
        }
    });
    address
}

pub(crate) fn unix_echo(path: &Path) {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut reader, &mut { stream });
            });
        }
    });
}

/// Closes a connection with a reset.
pub(crate) fn refuse_rst(stream: TcpStream) {
    socket2::Socket::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}
