//! Clients that break the protocol of the control connection.
use super::talk::{answer, ask};
use super::*;
use catchment_channel::{Card, Resources};
use std::io::{Read, Write};

fn hurried(name: &str) -> LinkOptions {
    LinkOptions { patience: Duration::from_millis(300), ..options(2, 64, name) }
}

#[test]
fn nonsense_silence_and_half_a_card() {
    let open = shm();
    let options = hurried("bad");
    let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
    let mut good = Resources::acquire(open(), options.shape).unwrap().card();
    let mut other_shape = good;
    other_shape.blocks = 3;
    good.memory.bytes = 1;
    for (bytes, answered) in [
        (
            &b"GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: of another kind\r\n\r\n......."[..],
            "",
        ),
        (&[0xff; 72], ""),
        (&[0; 10], ""),
        (&[], ""),
        (&other_shape.encode(), "3 slots of 64 bytes, this end 2"),
        (&good.encode(), "the peer offers 1 bytes"),
    ] {
        let before = served.server.counts().refused;
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(bytes).unwrap();
        let mut heard = Vec::new();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may end with a reset: not all that was written was read.
        let _ = stream.read_to_end(&mut heard);
        let text = String::from_utf8_lossy(&heard);
        assert!(text.contains(answered), "{text}");
        until("it is refused", || served.server.counts().refused == before + 1);
        nothing_left(&served.census);
        visit(served.address, open(), &self::options(2, 64, "next"));
    }
}

/// A client that sends a correct card, and then nothing, or another byte.
#[test]
fn a_client_that_never_connects() {
    let open = shm();
    let options = hurried("late");
    let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
    for word in [&[][..], &[9]] {
        let before = served.server.counts().refused;
        let resources = Resources::acquire(open(), options.shape).unwrap();
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(&resources.card().encode()).unwrap();
        let mut card = [0; 72];
        stream.read_exact(&mut card).unwrap();
        Card::decode(&card).unwrap();
        stream.write_all(word).unwrap();
        until("it is refused", || served.server.counts().refused == before + 1);
        resources.release().unwrap();
        nothing_left(&served.census);
        visit(served.address, open(), &self::options(2, 64, "next"));
    }
}

#[test]
fn more_clients_than_the_server_takes() {
    let open = shm();
    let options = options(2, 64, "room");
    let listener = Listener::tcp(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let few = ServerOptions { max_clients: 2, ..ServerOptions::new(options.clone()) };
    let service = |_, link: &mut Link| answer(link, 64);
    let server = Server::start(listener, open(), few, service).unwrap();
    let address = server.address().unwrap();
    let mut links = [0, 1].map(|client| {
        let mut link = connect(address, open(), &options).unwrap();
        ask(&mut link, client, 64, 1, 1);
        link
    });
    let text = connect(address, open(), &options).err().unwrap().to_string();
    assert!(text.contains("as many clients as it takes"), "{text}");
    ask_again(&mut links[0]);
    let [first, second] = links;
    first.finish(PATIENCE).unwrap();
    until("there is room again", || connect(address, open(), &options).is_ok());
    second.finish(PATIENCE).unwrap();
}

/// One more exchange on a link that has had one.
fn ask_again(link: &mut Link) {
    use catchment_channel::Tag;
    let mut payload = vec![0; 64];
    let bytes = crate::talk::content(0, 1, &mut payload);
    link.send(Tag { stream: 0, packet: 1 }, &payload[..bytes], PATIENCE).unwrap();
    assert_eq!(link.receive(PATIENCE).unwrap().unwrap().tag().packet, 1);
}

/// The same over a unix socket.
#[test]
fn a_unix_socket_serves_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let open = shm();
    let options = options(2, 64, "unix");
    let server = Server::start(
        Listener::unix(listener).unwrap(),
        open(),
        ServerOptions::new(options.clone()),
        |_, link: &mut Link| answer(link, 64),
    );
    let server = server.unwrap();
    assert_eq!(server.address(), None);
    let control = Control::unix(std::os::unix::net::UnixStream::connect(&path).unwrap()).unwrap();
    let mut link = Link::connect(control, open(), &options).unwrap();
    ask(&mut link, 1, 64, 5, 1);
    link.finish(PATIENCE).unwrap();
    until("it is served", || server.counts().served == 1);
}
