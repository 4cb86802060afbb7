//! A controller and sources on real sockets.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]
mod admin;
mod source;

use catchment_controller::config::Settings;
use catchment_controller::{NewCapacity, Service};
use catchment_session::io::{Address, ClientSecurity, ServerSecurity};
use catchment_session::registration::{Register, RegisterError};
use catchment_session::reread::{ClientTls, ServerTls};
use source::{MIB, Source};
use std::time::{Duration, SystemTime};

const CAPACITY_BPS: u64 = 1_000_000_000;

fn anywhere() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn start(address: &Address) -> Service {
    let settings = Settings::bottleneck(address.clone(), CAPACITY_BPS, None);
    Service::start(settings, &ServerSecurity::default()).unwrap()
}

fn plain() -> ClientSecurity {
    ClientSecurity::default()
}

#[test]
fn sources_share_a_link_and_an_urgent_one_goes_first() {
    let service = start(&anywhere());
    let mut tolerant = Source::register(service.local(), &plain(), None).unwrap();
    let mut urgent = Source::register(service.local(), &plain(), Some("urgent")).unwrap();
    assert_eq!(
        (tolerant.classes(), urgent.classes()),
        (&["tolerant".to_owned()][..], &["urgent".to_owned()][..])
    );
    tolerant.ask(1, 64 * MIB);
    tolerant.wait("a chunk", |source| source.sent_bytes > 0);
    urgent.ask(1, 4 * MIB);
    let both = |source: &mut Source, other: &mut Source| {
        source.step();
        other.step();
    };
    while urgent.sent_bytes < 4 * MIB {
        both(&mut tolerant, &mut urgent);
    }
    let when_urgent_was_done = tolerant.sent_bytes;
    assert!(when_urgent_was_done < 32 * MIB, "it went first: {when_urgent_was_done}");
    while tolerant.sent_bytes < 64 * MIB {
        both(&mut tolerant, &mut urgent);
    }
    tolerant.wait("the end is confirmed", |source| source.side.transfers() == 0);
    urgent.wait("the end is confirmed", |source| source.side.transfers() == 0);
    let status = service.status().unwrap();
    let ended = |at: usize| status.classes[at].on_time + status.classes[at].late;
    assert_eq!((ended(0), ended(1), status.sources.len()), (1, 1, 2), "{status:?}");
    assert_eq!(status.links[0].granted_bps, 0, "all is given back");
}

#[test]
fn forged_and_replayed_datagrams_change_nothing() {
    let service = start(&anywhere());
    let mut source = Source::register(service.local(), &plain(), None).unwrap();
    source.ask(1, 4 * MIB);
    source.wait("all is sent", |source| source.side.transfers() == 0);
    let before = service.status().unwrap();
    let last = source.last.clone().unwrap();
    let mut forged = last.clone();
    *forged.last_mut().unwrap() ^= 1;
    for datagram in [&last[..], &forged, b"", &[0; 1500], &last[..39]] {
        source.send_raw(datagram);
    }
    let mut stranger = last.clone();
    stranger[8..12].copy_from_slice(&77_u32.to_be_bytes());
    source.send_raw(&stranger);
    let after = source::until("all six are counted", || {
        let now = service.status().unwrap();
        let counts = |status: &catchment_controller::Status| {
            let datagrams = status.datagrams;
            [datagrams.forged, datagrams.replayed, datagrams.malformed, datagrams.unknown]
        };
        let (old, new) = (counts(&before), counts(&now));
        let all: u64 = new.iter().sum::<u64>() - old.iter().sum::<u64>();
        (all == 6).then_some(now)
    });
    assert_eq!(after.datagrams.replayed, before.datagrams.replayed + 1);
    assert_eq!(after.datagrams.forged, before.datagrams.forged + 1);
    assert_eq!(after.datagrams.unknown, before.datagrams.unknown + 1);
    assert_eq!((after.classes, after.links), (before.classes, before.links));
}

#[test]
fn another_process_takes_over_and_the_source_goes_on() {
    let first = start(&anywhere());
    let address = first.local().clone();
    let term = first.term();
    let mut source = Source::register(&address, &plain(), None).unwrap();
    source.ask(1, 256 * MIB);
    source.wait("a chunk", |source| source.sent_bytes > 0);
    drop(first);
    let second = start(&address);
    assert!(second.term() > term);
    // A hint tells it to register again.
    source.wait("it registers again", |source| source.registered > 1);
    source.wait("all is sent", |source| source.sent_bytes == 256 * MIB);
    source.wait("the end is confirmed", |source| source.side.transfers() == 0);
    assert!(second.status().unwrap().datagrams.hints > 0);
    assert_eq!(source.twice, 0, "no byte goes twice");
}

#[test]
fn capacities_change_while_it_runs_and_nothing_else_does() {
    let service = start(&anywhere());
    let faster = Settings::bottleneck(anywhere(), 2 * CAPACITY_BPS, None);
    let reloaded = service.reload(faster.clone()).unwrap();
    let (before_bps, capacity_bps) = (CAPACITY_BPS, 2 * CAPACITY_BPS);
    let change = NewCapacity { link: "bottleneck".to_owned(), before_bps, capacity_bps };
    assert_eq!(reloaded.capacities, [change]);
    assert_eq!(service.status().unwrap().links[0].capacity_bps, 2 * CAPACITY_BPS);
    let mut other = Settings { lease_ns: 300_000_000, ..faster };
    other.links[0].capacity_bps = 5;
    let error = service.reload(other).unwrap_err();
    assert!(error.to_string().contains("lease"), "{error}");
    assert_eq!(service.status().unwrap().links[0].capacity_bps, 2 * CAPACITY_BPS, "nothing");
}

/// Another link, another path: what was granted stands, and the source goes on by the new ones.
#[test]
fn links_and_paths_change_while_sources_send() {
    let text = |names: [&str; 2], way: &str| {
        let links =
            names.map(|name| format!("[[link]]\nname = \"{name}\"\ncapacity = \"2Gbit\"\n"));
        format!("{}[[path]]\nlinks = [{way}]\n", links.concat())
    };
    let settings = |text: &str| Settings::parse(text, &anywhere()).unwrap();
    let service =
        Service::start(settings(&text(["old", "spare"], "\"old\"")), &ServerSecurity::default())
            .unwrap();
    let mut source = Source::register(service.local(), &plain(), None).unwrap();
    source.ask(1, 128 * MIB);
    source.wait("a chunk", |source| source.sent_bytes > 0);
    let new = settings(&text(["new", "old"], "\"new\", \"old\""));
    let reloaded = service.reload(new.clone()).unwrap();
    assert!(reloaded.network && reloaded.capacities.is_empty());
    // At once after it, a capacity of what holds then.
    let mut slower = new;
    slower.links[0].capacity_bps = 1_000_000_000;
    assert_eq!(service.reload(slower).unwrap().capacities[0].link, "new");
    source.wait("it registers again", |source| source.registered > 1);
    source.wait("all is sent", |source| source.sent_bytes == 128 * MIB);
    source.wait("the end is confirmed", |source| source.side.transfers() == 0);
    let links = service.status().unwrap().links;
    let links: Vec<_> = links.iter().map(|link| (link.name.as_str(), link.capacity_bps)).collect();
    assert_eq!(links, [("new", 1_000_000_000), ("old", 2_000_000_000)]);
    assert_eq!(source.twice, 0, "no byte goes twice");
    assert_eq!(service.status().unwrap().term, service.term(), "it leads as before");
}

#[test]
fn with_certificates_both_ends_derive_the_root_and_rules_hold() {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let authority = catchment_session::cert::Authority::create(dir.path(), now).unwrap();
    let day = Duration::from_secs(86_400);
    let issue = |name: &str| authority.issue(name, &[name, "127.0.0.1"], now, day).unwrap().files;
    let text = "[[link]]\nname = \"a\"\ncapacity = \"1Gbit\"\n\
        [[allow]]\ncertificate = \"good\"\nclasses = [\"tolerant\"]\n";
    let settings = Settings::parse(text, &anywhere()).unwrap();
    let tls = Some(ServerTls::open(issue("controller")).unwrap());
    let service = Service::start(settings, &ServerSecurity { tls, insecure: false }).unwrap();
    let client = |name: &str| ClientSecurity {
        tls: Some(ClientTls::open(issue(name)).unwrap()),
        insecure: false,
    };
    let mut source = Source::register(service.local(), &client("good"), Some("urgent")).unwrap();
    assert_eq!(source.classes(), ["tolerant"], "what its certificate may have");
    source.ask(1, 4 * MIB);
    source.wait("all is sent", |source| source.side.transfers() == 0);
    let seen = service.status().unwrap().sources[0].certificate.clone();
    assert_eq!(seen.as_deref(), Some("good"));
    let error = Source::register(service.local(), &client("other"), None).err().unwrap();
    assert!(
        matches!(&error, RegisterError::Refused { reason, .. } if reason.contains("[[allow]]")),
        "{error}"
    );
    assert!(Source::register(service.local(), &plain(), None).is_err(), "without a certificate");
}

#[test]
fn one_that_stands_by_knows_who_asks_for_it_and_grants_when_it_leads() {
    let settings = Settings::bottleneck(anywhere(), CAPACITY_BPS, None);
    let standby = Service::stand_by(settings, &ServerSecurity::default()).unwrap();
    let error = Source::register(standby.local(), &plain(), None).err().unwrap();
    let stands_by = |reason: &str| reason.contains("stands by");
    assert!(
        matches!(&error, RegisterError::Refused { reason, transient: true, .. } if stands_by(reason)),
        "{error}"
    );
    let mut wish = source::wish(None);
    // Of the controller that leads.
    (wish.standby, wish.term) = (true, u32::MAX - 1);
    let told = source::ask_once(standby.local(), &wish).unwrap().told;
    let status = standby.status().unwrap();
    assert_eq!((told.term, status.term, status.sources.len()), (0, 0, 1), "{status:?}");
    assert_eq!(standby.term(), 0);
    standby.lead(7, Some(Duration::ZERO)).unwrap();
    assert_eq!((standby.term(), standby.status().unwrap().term), (7, 7));
    let mut source = Source::register(standby.local(), &plain(), None).unwrap();
    source.ask(1, 4 * MIB);
    source.wait("all is sent", |source| source.side.transfers() == 0);
    assert!(standby.give_up().is_some(), "it knows what it granted");
    assert!(Source::register(standby.local(), &plain(), None).is_err(), "nothing more is granted");
}

#[test]
fn who_may_still_wait_for_windows_of_an_earlier_one_does_not_say_that_they_are_over() {
    let settings = Settings::bottleneck(anywhere(), CAPACITY_BPS, None);
    let settings = Settings { lease_ns: 10_000_000_000, ..settings };
    let service = Service::stand_by(settings, &ServerSecurity::default()).unwrap();
    service.lead(7, None).unwrap();
    assert_eq!(service.give_up(), None);
    assert_eq!(service.give_up(), None, "it has ended");
}

/// A source that was told a safe rate by an earlier controller may use it until this one grants.
#[test]
fn who_knew_an_earlier_controller_is_told_how_long_nothing_is_granted() {
    let mut settings = Settings::bottleneck(anywhere(), CAPACITY_BPS, None);
    settings.safe_sources = 1;
    let service = Service::stand_by(settings, &ServerSecurity::default()).unwrap();
    // Longer than anything takes.
    let left = Duration::from_secs(3600);
    service.lead(7, Some(left)).unwrap();
    let safe = |term| {
        let wish = Register { term, ..source::wish(None) };
        source::ask_once(service.local(), &wish).unwrap().told.safe_ns.map(Duration::from_nanos)
    };
    assert_eq!(safe(0), None, "it knew none, and has the only part of the safe rates");
    assert_eq!(safe(6), None, "it has no part");
    let settings = Settings::bottleneck(anywhere(), CAPACITY_BPS, None);
    let service = Service::stand_by(settings, &ServerSecurity::default()).unwrap();
    service.lead(7, Some(left)).unwrap();
    let wish = Register { term: 6, ..source::wish(None) };
    let told = source::ask_once(service.local(), &wish).unwrap().told.safe_ns;
    assert!(told.map(Duration::from_nanos).is_some_and(|told| told < left), "{told:?}");
}

/// What sources do while no controller answers fits the link, whoever has registered when; urgent ones have twice as much as
/// others, as long as a quarter of them are.
#[test]
fn safe_rates_fit_the_link_and_urgent_sources_have_two_parts() {
    let mut settings = Settings::bottleneck(anywhere(), CAPACITY_BPS, Some(128 << 10));
    settings.safe_sources = 4;
    let service = Service::start(settings, &ServerSecurity::default()).unwrap();
    let classes = [None, Some("urgent"), Some("urgent"), None, None];
    let told =
        classes.map(|class| source::ask_once(service.local(), &source::wish(class)).unwrap().told);
    let part = CAPACITY_BPS / 10 * 9 / 5;
    assert_eq!(told.each_ref().map(|told| told.safe_rate_bps), [part, 2 * part, part, part, 0]);
    // Half of the queue goes through in half a millisecond, and a chunk is no longer.
    assert!(told.iter().all(|told| told.max_burst_ns == Some(524_288)));
    assert!(told.iter().all(|told| told.chunk_bytes == 64 << 10));
}
