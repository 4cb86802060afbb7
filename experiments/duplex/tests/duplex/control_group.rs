//! TCP with the threads and buffers of a link, to compare with (S3.15).
use super::clients::threads;
use super::talk::content;
use super::*;
use catchment_channel::{ClaimError, Tag};

fn pair(shape: TcpShape) -> [TcpLink; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    [TcpLink::start(client, shape, "c315").unwrap(), TcpLink::start(server, shape, "s315").unwrap()]
}

/// Messages of every length up to a megabyte go both ways at once, through three threads a side.
#[test]
fn s3_15_tcp_has_the_same_threads_and_buffers() {
    const MOST: usize = 1 << 20;
    let shape = TcpShape { blocks: 4, payload_bytes: MOST as u32 };
    let [mut client, mut server] = pair(shape);
    until("the threads have their names", || {
        threads("c315") == ["c315-cq", "c315-rq", "c315-sq"]
            && threads("s315") == ["s315-cq", "s315-rq", "s315-sq"]
    });
    let speak = |link: &mut TcpLink, own: u32, peer: u32| {
        let (mut out, mut wanted) = (vec![0; MOST], vec![0; MOST]);
        for packet in 0..40u64 {
            let most = if packet % 2 == 0 { 64 } else { MOST };
            let bytes = content(own, packet, &mut out[..most]);
            link.send(Tag { stream: own, packet }, &out[..bytes], PATIENCE).unwrap();
            let message = link.receive(PATIENCE).unwrap().expect("a message");
            let bytes = content(peer, packet, &mut wanted[..most]);
            assert_eq!(message.tag(), Tag { stream: peer, packet });
            assert!(message.payload() == &wanted[..bytes], "message {packet}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| speak(&mut client, 1, 2));
        speak(&mut server, 2, 1);
    });
    client.close();
    assert_eq!(server.receive(PATIENCE).err(), Some(EndError::PeerGone));
    server.close();
    until("all threads end", || threads("c315").is_empty() && threads("s315").is_empty());
}

/// As many messages as both sides have buffers are on their way at most, beside what TCP holds.
#[test]
fn s3_15_a_peer_that_keeps_all_buffers_stops_the_sender() {
    let shape = TcpShape { blocks: 2, payload_bytes: 8 << 20 };
    let [mut client, mut server] = pair(shape);
    let long = client.send(Tag::default(), &vec![0; (8 << 20) + 1], PATIENCE);
    assert!(matches!(long, Err(ClaimError::Length { limit, .. }) if limit == 8 << 20));
    let payload = vec![7; 8 << 20];
    let kept = [(); 2].map(|()| {
        client.send(Tag::default(), &payload, PATIENCE).unwrap();
        server.receive(PATIENCE).unwrap().expect("a message")
    });
    // As many as the sender has buffers for, and those that TCP holds.
    let mut sent = 0;
    let refused = loop {
        match client.send(Tag::default(), &payload, Duration::from_millis(300)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent <= 64, "nothing stops the sender");
    };
    assert_eq!(refused, ClaimError::WouldBlock);
    drop(kept);
    for _ in 0..sent {
        assert!(server.receive(PATIENCE).unwrap().expect("a message").payload() == payload);
    }
    // A link that is dropped does not wait for a peer that takes nothing.
    for _ in 0..2 {
        client.send(Tag::default(), &payload, PATIENCE).unwrap();
    }
    drop(client);
}
