//! Named memory, and what its owner allows.
use crate::agents::{agent, connected};
use catchment_application::{Application, Error, Rights};

const BYTES: usize = (2 << 20) + 77;

fn known(connection: &catchment_application::Connection) -> Vec<(String, u64, Rights)> {
    connection.regions().map(|(name, bytes, rights)| (name.to_owned(), bytes, rights)).collect()
}

#[test]
fn a_peer_reads_and_writes_what_it_may() {
    let (_agent, name) = agent("rights");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    let [table, inbox, both] =
        [("table", Rights::Read), ("inbox", Rights::Write), ("both", Rights::ReadWrite)]
            .map(|(name, rights)| service.region(name, BYTES, rights).unwrap());
    let (mut here, _there) = connected(&name, &service, "vision");
    assert_eq!(
        known(&here),
        [
            ("both".to_owned(), BYTES as u64, Rights::ReadWrite),
            ("inbox".to_owned(), BYTES as u64, Rights::Write),
            ("table".to_owned(), BYTES as u64, Rights::Read),
        ]
    );
    // Longer than one READ or WRITE.
    let data = crate::message(BYTES - 9, 5);
    table.write_at(9, &data).unwrap();
    let mut read = vec![0; data.len()];
    here.read("table", 9, &mut read).unwrap();
    assert!(read == data);
    here.write("inbox", 9, &data).unwrap();
    inbox.read_at(9, &mut read).unwrap();
    assert!(read == data);
    here.write("both", 0, b"and back").unwrap();
    let mut back = [0; 8];
    here.read("both", 0, &mut back).unwrap();
    assert_eq!(&back, b"and back");
    both.read_at(0, &mut back).unwrap();
    assert_eq!(&back, b"and back");
}

/// What the owner does not allow is refused by name, and the connection goes on.
#[test]
fn what_a_peer_may_not_is_refused_by_name() {
    let (_agent, name) = agent("refused");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    let table = service.region("table", 100, Rights::Read).unwrap();
    let _inbox = service.region("inbox", 100, Rights::Write).unwrap();
    let (mut here, mut there) = connected(&name, &service, "vision");
    let mut out = [0; 8];
    let text = |error: Result<(), Error>| error.unwrap_err().to_string();
    assert_eq!(
        text(here.write("table", 0, b"x")),
        "the region \"table\" may be used to read, and not to write"
    );
    assert_eq!(
        text(here.read("inbox", 0, &mut out)),
        "the region \"inbox\" may be used to write, and not to read"
    );
    assert_eq!(
        text(here.read("tables", 0, &mut out)),
        "the peer has no region \"tables\"; it has: inbox, table"
    );
    for offset in [93, 101, u64::MAX] {
        let beyond = here.read("table", offset, &mut out).unwrap_err();
        assert!(matches!(beyond, Error::Bounds { available: 100, .. }), "{beyond}");
    }
    assert!(matches!(there.read("table", 0, &mut out), Err(Error::NoRegion { .. })));
    assert_eq!(
        text(table.read_at(93, &mut out)),
        "bytes 93..+8 of the region \"table\", which has 100"
    );
    for (name, reason) in [("table", "already"), ("a b", "are a name"), ("", "are a name")] {
        let refused = service.region(name, 8, Rights::Read).map(drop).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
    assert!(
        service
            .region("empty", 0, Rights::Read)
            .map(drop)
            .unwrap_err()
            .to_string()
            .contains("no bytes")
    );
    here.send(b"goes on").unwrap();
    assert_eq!(there.recv().unwrap().unwrap(), b"goes on");
}

/// A caller has regions, too; the service has them of each caller.
#[test]
fn a_caller_has_regions_of_its_own() {
    let (_agent, name) = agent("both-ways");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    let vision = Application::open(&format!("vision@{name}")).unwrap();
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut callers = [0, 1].map(|_| service.accept().unwrap());
            for (at, caller) in callers.iter_mut().enumerate() {
                caller.write("inbox", 3, &[at as u8 + 1]).unwrap();
                caller.send(b"written").unwrap();
            }
            callers.map(|mut caller| caller.recv().unwrap())
        });
        let callers = [0, 1].map(|_| {
            let dial = vision.dial().unwrap();
            let inbox = dial.region("inbox", 8, Rights::Write).unwrap();
            (dial.connect("", "store").unwrap(), inbox)
        });
        for (at, (mut connection, inbox)) in callers.into_iter().enumerate() {
            assert_eq!(connection.recv().unwrap().unwrap(), b"written");
            let mut out = [0; 8];
            inbox.read_at(0, &mut out).unwrap();
            assert_eq!(out, [0, 0, 0, at as u8 + 1, 0, 0, 0, 0]);
        }
        assert_eq!(owner.join().unwrap(), [None, None]);
    });
}
