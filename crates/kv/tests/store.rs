//! A server and its clients over real providers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use catchment_agent::policy::Policy;
use catchment_agent::{Agent, AgentOptions};
use catchment_kv::{Client, ClientConfig, KvError, Replaced, Server, ServerConfig, Sided};
use catchment_probe::load::scaled;
use catchment_probe::random::Random;
use catchment_providers::ProviderSet;
use catchment_session::io::{Address, ServerSecurity};
use catchment_session::path::PathRules;
use std::collections::BTreeMap;
use std::time::Duration;

fn only(provider: &str) -> ProviderSet {
    let rules = PathRules { require: vec![provider.to_owned()], ..PathRules::default() };
    ProviderSet::default().rules(rules)
}

fn serve(providers: ProviderSet, memory_bytes: u64) -> Server {
    let listen: Address = "127.0.0.1:0".parse().unwrap();
    Server::start(ServerConfig {
        listen,
        memory_bytes,
        lease: Duration::from_secs(10),
        providers,
        security: ServerSecurity::default(),
    })
    .unwrap()
}

fn client(server: &Server, providers: ProviderSet, sided: Sided) -> Client {
    let config = ClientConfig { sided, providers, ..ClientConfig::new(server.local().clone()) };
    Client::connect(&config).unwrap()
}

fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Random::new(seed).fill(&mut value);
    value
}

/// What a store does for one client, and for another one beside it.
fn use_store(providers: impl Fn() -> ProviderSet, sided: Sided) {
    let server = serve(providers(), 64 << 20);
    let (mut a, mut b) =
        (client(&server, providers(), sided), client(&server, providers(), Sided::Two));
    assert_eq!(a.get(b"nothing").unwrap(), None);
    assert_eq!(a.delete(b"nothing").unwrap(), None);
    for bytes in [0, 1, 32, 1024, 5000, 65_536, 1 << 20] {
        let key = format!("key of {bytes}").into_bytes();
        let (first, second) = (value(1, bytes), value(2, bytes / 2));
        let version = a.put(&key, &first).unwrap();
        // The first time by the index, then by the place, then of another client's making.
        for _ in 0..2 {
            let read = a.get(&key).unwrap().unwrap();
            assert!(read.bytes == first && read.version == version, "{bytes}");
        }
        assert!(b.get(&key).unwrap().unwrap().bytes == first, "{bytes}");
        assert_eq!(b.put(&key, &second).unwrap(), version + 1);
        let read = a.get(&key).unwrap().unwrap();
        assert!(read.bytes == second && read.version == version + 1, "{bytes}");
        assert_eq!(
            a.replace(&key, version, b"late").unwrap(),
            Replaced::Changed(Some(version + 1))
        );
        assert_eq!(
            a.replace(&key, version + 1, b"in time").unwrap(),
            Replaced::Stored(version + 2)
        );
        assert_eq!(b.get(&key).unwrap().unwrap().bytes, b"in time");
        assert_eq!(a.delete(&key).unwrap(), Some(version + 3));
        assert_eq!((a.get(&key).unwrap(), b.get(&key).unwrap()), (None, None));
        assert_eq!(b.delete(&key).unwrap(), None);
    }
    assert!(matches!(a.put(b"", b""), Err(KvError::Key(0))));
    assert!(matches!(a.put(&[1; 1025], b""), Err(KvError::Key(1025))));
    assert!(matches!(a.put(b"k", &vec![0; (1 << 20) + 1]), Err(KvError::Value(_))));
}

#[test]
fn s5_24_a_store_over_shm() {
    use_store(|| only("shm"), Sided::One);
    use_store(|| only("shm"), Sided::Two);
}

#[test]
fn s5_24_a_store_over_roce() {
    use_store(|| only("roce"), Sided::One);
    use_store(|| only("roce"), Sided::Two);
}

#[test]
fn s5_24_a_store_over_an_agent() {
    let name = format!("kv-{}", std::process::id());
    let policy = format!(
        r#"{{"name": "{name}", "device": "shm", "applications": [{{"name": "kv", "weight": 1, "memory_bytes": 1073741824}}]}}"#
    );
    let policy: Policy = serde_json::from_str(&policy).unwrap();
    let agent = Agent::start(policy).unwrap();
    let through =
        || only("agent").with(AgentOptions { agent: name.clone(), application: "kv".to_owned() });
    use_store(through, Sided::One);
    use_store(through, Sided::Two);
    drop(agent);
}

#[test]
fn a_table_grows_under_its_clients_and_deleted_memory_is_used_again() {
    let server = serve(only("shm"), 16 << 20);
    let (mut one, mut two) =
        (client(&server, only("shm"), Sided::One), client(&server, only("shm"), Sided::Two));
    let keys = scaled(6000);
    // Three times as much as there is memory for, were it not used again.
    for round in 0..6_u64 {
        for n in 0..keys {
            let client = if n % 7 == 0 { &mut two } else { &mut one };
            client.put(format!("key {n}").as_bytes(), &value(n + round, 1500)[..1400]).unwrap();
        }
        for n in 0..keys {
            let key = format!("key {n}");
            let read = one.get(key.as_bytes()).unwrap().unwrap();
            assert!(read.bytes == &value(n + round, 1500)[..1400], "{key} in round {round}");
        }
        for n in (0..keys).filter(|n| n % 2 == 0) {
            assert!(one.delete(format!("key {n}").as_bytes()).unwrap().is_some());
        }
    }
    let (counts, _) = one.counts().unwrap();
    assert!(counts.generation >= 3 && counts.words >= 2 * keys, "{counts:?}");
    assert_eq!(counts.clients, 2);
}

#[test]
fn a_full_store_names_its_limit_and_evicts_nothing() {
    let server = serve(only("shm"), 4 << 20);
    for sided in [Sided::One, Sided::Two] {
        let mut client = client(&server, only("shm"), sided);
        let mut stored = 0;
        let error = loop {
            match client.put(format!("{sided:?} {stored}").as_bytes(), &value(stored, 100_000)) {
                Ok(_) => stored += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("4194304 bytes") && error.contains("--memory"), "{error}");
        for n in 0..stored {
            let read = client.get(format!("{sided:?} {n}").as_bytes()).unwrap().unwrap();
            assert!(read.bytes == value(n, 100_000));
        }
        // Room that is made is used.
        for n in 0..stored {
            client.delete(format!("{sided:?} {n}").as_bytes()).unwrap();
        }
        client.put(b"after", &value(7, 100_000)).unwrap();
        client.delete(b"after").unwrap();
    }
}

#[test]
fn a_client_that_is_gone_leaves_its_blocks_to_others() {
    let server = serve(only("shm"), 4 << 20);
    let mut left = BTreeMap::new();
    for round in 0..20 {
        let mut client = client(&server, only("shm"), Sided::One);
        // It holds blocks for more than a third of the memory, and fills few of them.
        for n in 0..3_u64 {
            let key = format!("key {n}").into_bytes();
            let bytes = value(round * 10 + n, 20_000);
            client.put(&key, &bytes).unwrap();
            left.insert(key, bytes);
        }
        for (key, bytes) in &left {
            assert!(client.get(key).unwrap().unwrap().bytes == bytes);
        }
    }
}

#[test]
fn a_lost_server_is_an_error_that_says_so() {
    let server = serve(only("shm"), 4 << 20);
    let mut one = client(&server, only("shm"), Sided::One);
    one.put(b"key", b"value").unwrap();
    drop(server);
    let error = loop {
        if let Err(error) = one.put(b"key", b"value") {
            break error.to_string();
        }
    };
    assert!(error.contains("server"), "{error}");
    assert!(one.get(b"key").is_err());
}
