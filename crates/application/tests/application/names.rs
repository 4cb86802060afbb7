//! Who may offer what, and who is found under which name.
use crate::agents::{agent, connected, open, policy};
use catchment_agent::policy::Policy;
use catchment_agent::{Inquiry, status};
use catchment_application::{Application, Error};
use std::time::Duration;

fn said<T>(result: Result<T, Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn a_policy_says_who_offers_what() {
    let (_agent, name) = agent("names");
    let store = open("store", &name);
    let refused = said(store.serve("sensor"));
    assert!(
        refused.contains("application \"store\" may offer store, and not \"sensor\""),
        "{refused}"
    );
    let refused = said(open("sensor", &name).serve("store"));
    assert!(refused.contains("may offer sensor, spare, and not \"store\""), "{refused}");
    assert!(said(store.serve("a b")).contains("\"a b\" cannot name a service"));
    let service = store.serve("store").unwrap();
    let again = said(open("store", &name).serve("store"));
    let process = std::process::id();
    assert!(
        again.contains(&format!("process {process}, application \"store\", offers")),
        "{again}"
    );
    let _spare = open("sensor", &name).serve("spare").unwrap();
    let offered = Inquiry::new(&*name).ask().unwrap().services;
    let offered: Vec<_> = offered.iter().map(|it| (&*it.service, &*it.application)).collect();
    assert_eq!(offered, [("spare", "sensor"), ("store", "store")]);
    drop(service);
    // The agent hears of it as of any hang-up.
    catchment_conformance::eventually("the name is free", || store.serve("store").is_ok());
}

#[test]
fn whoever_is_not_found_is_told_what_there_is() {
    let (_agent, name) = agent("found");
    let vision = open("vision", &name);
    let none = said(vision.connect("", "store"));
    assert_eq!(
        none,
        "cannot connect to the service \"store\" of this host: there is no service \"store\"; none is offered there"
    );
    let _service = open("store", &name).serve("store").unwrap();
    assert!(said(vision.connect("", "stores")).contains("there are: store"));
    assert!(said(vision.connect("", "no name")).contains("cannot name a service"));
    // Shared memory reaches no other host, and the policy names none.
    let elsewhere = said(vision.connect("192.0.2.1", "store"));
    assert!(elsewhere.contains("192.0.2.1 is not this host"), "{elsewhere}");
    assert!(said(vision.connect("no such host", "store")).contains("is not this host"));
    assert!(said(Application::open("nobody@nowhere")).contains("no agent of the name \"nowhere\""));
    let stranger = said(Application::open(&format!("stranger@{name}")));
    assert!(stranger.contains("no application \"stranger\""), "{stranger}");
}

/// A service sees who calls, and need not take everybody.
#[test]
fn a_caller_that_is_turned_away_learns_why() {
    let (_agent, name) = agent("turned");
    let service = open("store", &name).serve("store").unwrap();
    let vision = open("vision", &name);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let caller = service.next().unwrap();
            assert_eq!((caller.application(), caller.host()), ("vision", None));
            caller.reject("no room for \u{1b}[2J vision").unwrap();
            drop(service.next().unwrap());
        });
        let refused = said(vision.connect("localhost", "store"));
        assert!(refused.ends_with("refused: no room for \\u{1b}[2J vision"), "{refused}");
        assert!(
            said(vision.connect("127.0.0.1", "store"))
                .ends_with("refused: the service did not accept")
        );
    });
    let (mut here, mut there) = connected(&name, &service, "vision");
    here.send(b"in").unwrap();
    assert_eq!(there.recv().unwrap().unwrap(), b"in");
}

/// A policy that takes a service away ends it; its connections go on.
#[test]
fn a_service_that_the_policy_takes_away_ends() {
    let (agent, name) = agent("taken");
    let service = open("store", &name).serve("store").unwrap();
    let (mut here, mut there) = connected(&name, &service, "vision");
    let mut new = policy(&name);
    new["applications"][0]["services"] = serde_json::json!(["other"]);
    agent.reload(Policy::parse(&new.to_string()).unwrap()).unwrap();
    let ended = said(service.next_within(Duration::from_secs(60)));
    assert!(ended.contains("its policy has changed"), "{ended}");
    here.send(b"goes on").unwrap();
    assert_eq!(there.recv().unwrap().unwrap(), b"goes on");
    assert_eq!(status(&name).unwrap().len(), 2);
}
