//! Applications of two hosts.
use crate::agents::two_agents;
use catchment_agent::{Inquiry, status};
use catchment_application::{Application, Error, Rights};
use catchment_conformance::eventually;

/// Messages and memory between two hosts, which go by address and by the name of their agent; connections share queue pairs
/// as any others.
#[test]
fn a_service_of_another_host_is_found_by_its_name() {
    let (_agents, names) = two_agents("hosts", 1 << 40);
    let [here, there] = [("vision", 0), ("store", 1)].map(|(application, at)| {
        Application::open(&format!("{application}@{}", names[at])).unwrap()
    });
    let service = there.serve("store").unwrap();
    let table = service.region("table", 1 << 20, Rights::ReadWrite).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            for _ in 0..2 {
                let caller = service.next().unwrap();
                assert_eq!((caller.application(), caller.host()), ("vision", Some(0)));
                let _ = crate::answer(&mut caller.accept().unwrap());
            }
        });
        for host in ["127.0.0.2", &names[1]] {
            let mut store = here.connect(host, "store").unwrap();
            crate::ask(&mut store, &[0, 1, 65_537, 921_600]);
            let data = crate::message(1 << 20, 9);
            store.write("table", 0, &data).unwrap();
            let mut read = vec![0; data.len()];
            store.read("table", 0, &mut read).unwrap();
            assert!(read == data);
            table.read_at(0, &mut read).unwrap();
            assert!(read == data);
            store.close().unwrap();
        }
        served.join().unwrap();
    });
    eventually("nothing remains", || {
        let accounts = status(&names[1]).unwrap();
        accounts.iter().all(|account| account.queue_pairs == 0)
    });
    assert_eq!(Inquiry::new(&*names[1]).ask().unwrap().services[0].calls, 2);
}

/// Why a service of another host was not reached.
#[test]
fn whoever_calls_another_host_learns_why_not() {
    let (_agents, names) = two_agents("why", 1 << 40);
    let vision = Application::open(&format!("vision@{}", names[0])).unwrap();
    let said = |host: &str| vision.connect(host, "store").map(drop).unwrap_err().to_string();
    assert_eq!(
        said("127.0.0.2"),
        "cannot connect to the service \"store\" of host 127.0.0.2: there is no service \"store\"; none is offered there"
    );
    let nowhere = said("no-such-agent");
    assert!(nowhere.contains("no session with an agent of no-such-agent within 5s"), "{nowhere}");
    // A service of this host is not looked for elsewhere, nor one of elsewhere here.
    let here = Application::open(&format!("store@{}", names[0])).unwrap();
    let _service = here.serve("store").unwrap();
    assert!(said("127.0.0.2").contains("none is offered there"));
    std::thread::scope(|scope| {
        scope.spawn(|| _service.next().unwrap().reject("seen").unwrap());
        assert!(said("127.0.0.1").ends_with("refused: seen"));
    });
}

/// A host that dies ends the connections with it.
#[test]
fn the_end_of_a_host_is_told() {
    let (agents, names) = two_agents("dies", 1 << 40);
    let [first, second] = agents;
    let store = Application::open(&format!("store@{}", names[1])).unwrap();
    let service = store.serve("store").unwrap();
    let vision = Application::open(&format!("vision@{}", names[0])).unwrap();
    let mut connection = std::thread::scope(|scope| {
        let there = scope.spawn(|| service.accept().unwrap());
        let here = vision.connect("127.0.0.2", "store").unwrap();
        drop(there.join().unwrap());
        here
    });
    assert_eq!(connection.recv(), Ok(None), "it was dropped there");
    let mut connection = std::thread::scope(|scope| {
        let there = scope.spawn(|| service.accept().unwrap());
        let here = vision.connect("127.0.0.2", "store").unwrap();
        std::mem::forget(there.join().unwrap());
        here
    });
    drop(second);
    let ended = connection.recv().unwrap_err();
    assert!(matches!(ended, Error::Broken(_)), "{ended}");
    drop(first);
}
