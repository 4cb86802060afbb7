//! Settings that change over HTTP, while sources are granted windows.
use super::{CAPACITY_BPS, MIB, Source, anywhere, plain};
use catchment_controller::Service;
use catchment_controller::admin::{AskError, ask, set};
use catchment_controller::config::Settings;
use catchment_session::io::{Address, ClientSecurity, ServerSecurity};
use catchment_session::reread::{ClientTls, ServerTls};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

const LIMIT: Duration = Duration::from_secs(20);

fn put(
    admin: &Address,
    security: &ClientSecurity,
    path: &str,
    json: &Value,
) -> Result<Value, AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(set(admin, security, path, json, LIMIT))
}

fn get_status(admin: &Address) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let security = plain();
    let asked = ask(admin, &security, (Default::default(), "/status"), None, LIMIT);
    runtime.block_on(asked).unwrap()
}

fn code(result: Result<Value, AskError>) -> (u16, String) {
    match result {
        Err(AskError::Refused { code, reason }) => (code, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_link_and_classes_change_over_a_unix_socket_and_nothing_granted_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let admin = Address::Unix(dir.path().join("control"));
    let settings = Settings::bottleneck(anywhere(), CAPACITY_BPS, None);
    let settings = Settings { admin: Some(admin.clone()), ..settings };
    let service = Service::start(settings, &ServerSecurity::default()).unwrap();
    let mut source = Source::register(service.local(), &plain(), None).unwrap();
    source.ask(1, 64 * MIB);
    source.wait("a chunk", |source| source.sent_bytes > 0);
    let changed = put(&admin, &plain(), "/links/bottleneck", &json!({"capacity": "500Mbit"}));
    let changed = changed.unwrap();
    assert_eq!(changed["before_bps"], CAPACITY_BPS);
    assert_eq!(get_status(&admin)["links"][0]["capacity_bps"], CAPACITY_BPS / 2);

    let text = |late: &str, more: &str| {
        format!(
            "admin = \"{admin}\"\n{more}[[link]]\nname = \"bottleneck\"\ncapacity = \"2Gbit\"\n\
            [[class]]\nname = \"urgent\"\ndeadline = \"50ms\"\n\
            [[class]]\nname = \"tolerant\"\ndeadline = \"2s\"\nlate = \"{late}\"\n"
        )
    };
    for (wrong, says) in [(text("lose", ""), "keep"), (text("keep", "lease = \"1s\"\n"), "lease")] {
        let (code, reason) = code(put(&admin, &plain(), "/config", &json!({"toml": wrong})));
        assert_eq!(code, 422);
        assert!(reason.contains(says), "{reason}");
        let after = get_status(&admin);
        assert_eq!(
            after["links"][0]["capacity_bps"],
            CAPACITY_BPS / 2,
            "a bad file changes nothing"
        );
    }
    let changed = put(&admin, &plain(), "/config", &json!({"toml": text("keep", "")})).unwrap();
    assert_eq!((&changed["classes"], &changed["allow"]), (&json!(true), &json!(false)));
    assert_eq!(changed["capacities"][0]["capacity_bps"], 2 * CAPACITY_BPS);
    for policy in ["policy = \"fifo\"\nslot = \"500Mbit\"\n", ""] {
        let sent = source.sent_bytes;
        let toml = text("keep", policy);
        let changed = put(&admin, &plain(), "/config", &json!({"toml": toml})).unwrap();
        assert_eq!((&changed["policy"], &changed["classes"]), (&json!(true), &json!(false)));
        let goes_on = |source: &Source| source.sent_bytes > sent || sent == 64 * MIB;
        source.wait("it goes on", goes_on);
    }
    let (code, reason) = code(put(&admin, &plain(), "/links/other", &json!({"capacity": "1Gbit"})));
    assert_eq!(code, 404);
    assert!(reason.contains("bottleneck"), "{reason}");
    source.wait("all is sent", |source| source.sent_bytes == 64 * MIB);
    source.wait("the end is confirmed", |source| source.side.transfers() == 0);
    assert_eq!((source.twice, source.registered), (0, 1), "no byte twice, the session stands");
}

#[test]
fn over_tls_only_an_admin_may_and_in_clear_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let authority = catchment_session::cert::Authority::create(dir.path(), now).unwrap();
    let day = Duration::from_secs(86_400);
    let issue = |name: &str| authority.issue(name, &[name, "127.0.0.1"], now, day).unwrap().files;
    // Port 0 would not be known here.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let admin: Address = format!("127.0.0.1:{port}").parse().unwrap();
    let text = format!(
        "admin = \"{admin}\"\n[[link]]\nname = \"a\"\ncapacity = \"1Gbit\"\n\
        [[allow]]\ncertificate = \"operator\"\nadmin = true\n[[allow]]\ncertificate = \"*\"\n"
    );
    let settings = Settings::parse(&text, &anywhere()).unwrap();
    let tls = Some(ServerTls::open(issue("controller")).unwrap());
    let service = Service::start(settings, &ServerSecurity { tls, insecure: false }).unwrap();
    let client = |name: &str| ClientSecurity {
        tls: Some(ClientTls::open(issue(name)).unwrap()),
        insecure: false,
    };
    let json = json!({"capacity": "500Mbit"});
    let (code, _) = code(put(&admin, &client("camera"), "/links/a", &json));
    assert_eq!(code, 403);
    assert!(put(&admin, &plain(), "/links/a", &json).is_err(), "in clear");
    assert_eq!(service.status().unwrap().links[0].capacity_bps, 1_000_000_000);
    put(&admin, &client("operator"), "/links/a", &json).unwrap();
    let status = service.status().unwrap();
    assert_eq!(
        (status.links[0].capacity_bps, status.links[0].working_bps),
        (500_000_000, 500_000_000)
    );
}
