//! Connecting over a control connection, and parting.
use super::{driver, shape};
use catchment_channel::establish::{
    Connection, Control, EstablishError, Heard, Listener, Request, connect,
};
use catchment_channel::{ChannelError, ChannelShape};
use catchment_probe::patience::{Patience, patient};
use catchment_transfer::WaitPolicy;
use catchment_verbs::Context;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Waits for the next client.
fn next(listener: &Listener) -> Control {
    loop {
        match listener.accept().unwrap() {
            Some(control) => return control,
            // A listener that never waits is asked again.
            None => thread::yield_now(),
        }
    }
}

fn client(
    control: Control,
    context: Arc<dyn Context>,
    shape: ChannelShape,
) -> Result<Connection, EstablishError> {
    connect(control, context, shape, patient(), soon())
}

/// Sends a message from one end and takes it at the other.
fn say(from: &mut Connection, to: &mut Connection, text: &[u8]) {
    let mut wait = Patience::new(WaitPolicy::Yield);
    driver::send(&mut from.channel, 7, 1, text, &mut wait);
    let message = driver::take(&mut to.channel, &mut wait);
    let mut seen = vec![0; message.payload().bytes()];
    message.payload().read_at(0, &mut seen).unwrap();
    assert_eq!(seen, text);
    assert_eq!((message.tag().stream, message.tag().packet), (7, 1));
}

/// Listen, connect, accept, speak both ways, disconnect: each end learns address and key of the other from what it says.
#[test]
fn s2_17_two_programs_connect_speak_and_disconnect() {
    let listener = Listener::tcp(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let address = listener.address().unwrap();
    let [near, far] = crate::two_devices();
    let active = thread::spawn(move || {
        client(Control::tcp(TcpStream::connect(address).unwrap()).unwrap(), near, shape(4, 64))
    });
    let request = Request::receive(next(&listener), soon()).unwrap();
    let card = *request.card();
    assert_eq!((card.blocks, card.payload_bytes), (4, 64));
    assert!(card.memory.bytes >= 4 * 64 && card.memory.rkey != 0, "{card:?}");
    let mut passive = request.accept(far, shape(4, 64), patient(), soon()).unwrap();
    let mut active = active.join().unwrap().unwrap();
    say(&mut active, &mut passive, b"from the client");
    say(&mut passive, &mut active, b"from the server");
    assert_eq!(passive.heard(), Heard::Nothing);
    active.disconnect().unwrap();
    while passive.heard() == Heard::Nothing {
        thread::yield_now();
    }
    passive.disconnect().unwrap();
}

#[test]
fn s2_17_a_client_that_is_rejected_or_does_not_fit_learns_why() {
    let refused = |serve: Box<dyn FnOnce(Request, Arc<dyn Context>)>| {
        let (a, b) = UnixStream::pair().unwrap();
        let [near, far] = crate::two_devices();
        let active =
            thread::spawn(move || client(Control::unix(a).unwrap(), near, shape(4, 64)).map(drop));
        serve(Request::receive(Control::unix(b).unwrap(), soon()).unwrap(), far);
        match active.join().unwrap() {
            Err(EstablishError::Refused(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let rejected = refused(Box::new(|request, _| request.reject("not today")));
    assert_eq!(rejected, "not today");
    let misfit = refused(Box::new(|request, context| {
        let refused = request.accept(context, shape(8, 64), patient(), soon()).map(drop);
        assert!(matches!(refused, Err(EstablishError::Channel(ChannelError::Card(_)))));
    }));
    assert!(misfit.contains("4 slots of 64 bytes, this end 8 of 64"), "{misfit}");
}

#[test]
fn s2_17_a_peer_that_dies_on_the_way_leaves_nothing_and_is_heard_later() {
    let [near, far] = crate::two_devices();
    let (a, b) = UnixStream::pair().unwrap();
    drop(b);
    let alone = client(Control::unix(a).unwrap(), Arc::clone(&near), shape(4, 64)).map(drop);
    assert!(matches!(alone, Err(EstablishError::Control { .. })), "{alone:?}");
    let (a, b) = UnixStream::pair().unwrap();
    let passive = thread::spawn(move || {
        let request = Request::receive(Control::unix(b).unwrap(), soon()).unwrap();
        request.accept(far, shape(4, 64), patient(), soon()).unwrap()
    });
    let active = client(Control::unix(a).unwrap(), near, shape(4, 64)).unwrap();
    let passive = passive.join().unwrap();
    // Without a goodbye.
    drop(active);
    while passive.heard() == Heard::Nothing {
        thread::yield_now();
    }
    assert_eq!(passive.heard(), Heard::End);
    passive.disconnect().unwrap();
}
