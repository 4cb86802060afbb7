//! Client and server of duplex channels: over shared memory, over RoCE on loopback, and in virtual
//! time.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
mod clients;
mod control_group;
mod death;
mod failures;
mod hostile;
mod soak;
mod talk;

use catchment_channel::{ChannelShape, EndError};
use catchment_duplex::*;
use catchment_probe::census::{Census, Object};
use catchment_probe::patience::patient;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_sim::verbs::{Fabric, Pace, Times};
use catchment_verbs::{Context, Provider};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For what must happen in the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens devices that reach each other.
type Opener = Box<dyn Fn() -> Arc<dyn Context> + Send + Sync>;

fn shm() -> Opener {
    Box::new(|| ShmProvider::new().open("shm0").unwrap())
}

fn roce() -> Opener {
    Box::new(|| {
        let any_port = RoceOptions { port: 0, ..RoceOptions::default() };
        RoceProvider::new(any_port).open("127.0.0.1").unwrap()
    })
}

fn sim() -> Opener {
    let provider = Fabric::new(Times::usual(), Pace::WhenPolled).provider();
    Box::new(move || provider.open("sim0").unwrap())
}

fn every_provider() -> [(&'static str, Opener); 3] {
    [("shm", shm()), ("roce", roce()), ("sim", sim())]
}

fn options(blocks: u32, payload_bytes: u32, name: &str) -> LinkOptions {
    LinkOptions {
        rts: patient(),
        patience: PATIENCE,
        name: name.into(),
        ..LinkOptions::new(ChannelShape::new(blocks, payload_bytes).with_shared(4096))
    }
}

/// A server, the objects of its device, and its address.
struct Served {
    server: Server,
    census: Arc<Census>,
    address: SocketAddr,
}

fn serve(context: Arc<dyn Context>, options: &LinkOptions, service: impl Service) -> Served {
    let (context, census) = Census::of(context);
    let listener = Listener::tcp(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let options = ServerOptions::new(options.clone());
    let server = Server::start(listener, context, options, service).unwrap();
    Served { address: server.address().unwrap(), server, census }
}

fn control(address: SocketAddr) -> Control {
    Control::tcp(TcpStream::connect(address).unwrap()).unwrap()
}

fn connect(
    address: SocketAddr,
    context: Arc<dyn Context>,
    options: &LinkOptions,
) -> Result<Link, LinkError> {
    Link::connect(control(address), context, options)
}

/// Connects, exchanges two messages, and says goodbye.
fn visit(address: SocketAddr, context: Arc<dyn Context>, options: &LinkOptions) {
    exchange(connect(address, context, options).unwrap());
}

fn exchange(mut link: Link) {
    talk::ask(&mut link, 3, 64, 2, 1);
    link.finish(PATIENCE).unwrap();
}

/// Receives until the link fails.
fn failure(link: &mut Link) -> EndError {
    let start = Instant::now();
    loop {
        match link.receive(PATIENCE) {
            Err(error) => return error,
            Ok(_) => assert!(start.elapsed() < PATIENCE, "it does not fail"),
        }
    }
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        // Lets the threads of the other side run; nothing signals what is awaited.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing_left(census: &Census) {
    until("all objects are released", || census.total() == 0);
    assert_eq!(census.alive(Object::Qp), 0);
}
