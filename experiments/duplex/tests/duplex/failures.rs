//! Steps that fail, and links that are ended from outside (S3.14).
use super::talk::{answer, ask};
use super::*;
use catchment_channel::establish::EstablishError;

/// Every step by which the server connects a link is made to fail once: that client is refused, the
/// next one is served, and nothing is left.
#[test]
fn s3_14_a_server_survives_a_failure_at_any_step() {
    for (name, open) in every_provider() {
        let options = options(2, 64, "step");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let mut refused = 0;
        for step in 1.. {
            served.census.fail(step);
            match connect(served.address, open(), &options) {
                Ok(link) => {
                    exchange(link);
                    break;
                }
                Err(LinkError::Establish(EstablishError::Refused(text))) => {
                    assert!(text.contains("made to fail"), "{name}: {text}");
                    refused += 1;
                }
                Err(error) => panic!("{name}: {error}"),
            }
            nothing_left(&served.census);
            visit(served.address, open(), &options);
            nothing_left(&served.census);
            assert_eq!(served.server.counts().refused, refused, "{name}");
        }
        // Five kinds of objects, seven in all, and three states.
        assert_eq!(refused, 10, "{name}");
        nothing_left(&served.census);
    }
}

#[test]
fn s3_14_a_client_leaves_nothing_after_a_failure_at_any_step() {
    for (name, open) in every_provider() {
        let options = options(2, 64, "step");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let (context, census) = Census::of(open());
        let mut failures = 0;
        for step in 1.. {
            census.fail(step);
            match connect(served.address, Arc::clone(&context), &options) {
                Ok(link) => {
                    exchange(link);
                    break;
                }
                Err(error) => {
                    assert!(error.to_string().contains("made to fail"), "{error}");
                    failures += 1;
                }
            }
            assert_eq!(census.total(), 0, "{name}, step {step}");
        }
        assert_eq!((failures, census.total()), (10, 0), "{name}");
        nothing_left(&served.census);
    }
}

/// The server stops while its clients are connected.
#[test]
fn stopping_the_server_ends_every_link() {
    for (name, open) in every_provider() {
        let options = options(2, 64, "stop");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let mut links: Vec<Link> = (0..4)
            .map(|client| {
                let mut link = connect(served.address, open(), &options).unwrap();
                ask(&mut link, client, 64, 3, 1);
                link
            })
            .collect();
        let counts = served.server.stop();
        assert_eq!((counts.present, counts.failed), (0, 4), "{name}");
        assert_eq!(served.census.total(), 0);
        for link in &mut links {
            let error = failure(link);
            assert!(link.receive(PATIENCE).is_err(), "{name}: {error} stays");
        }
        links.into_iter().for_each(|link| link.close().unwrap());
    }
}

#[test]
fn a_link_is_ended_by_another_thread() {
    for (_, open) in every_provider() {
        let options = options(2, 64, "other");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let mut link = connect(served.address, open(), &options).unwrap();
        let stopper = link.stopper();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| link.receive(PATIENCE).err());
            stopper.stop();
            assert_eq!(waiting.join().unwrap(), Some(EndError::Closed));
        });
        link.close().unwrap();
        stopper.stop();
        until("its server notices", || served.server.counts().present == 0);
        nothing_left(&served.census);
    }
}

/// A service that panics ends its own link and no other (S3.2).
#[test]
fn a_service_that_panics_harms_no_other() {
    let open = shm();
    let options = options(2, 64, "panic");
    let served = serve(open(), &options, |client, link: &mut Link| {
        assert!(client != 0, "this one is meant to fail");
        answer(link, 64)
    });
    let mut first = connect(served.address, open(), &options).unwrap();
    let mut second = connect(served.address, open(), &options).unwrap();
    failure(&mut first);
    ask(&mut second, 1, 64, 10, 1);
    second.finish(PATIENCE).unwrap();
    drop(first);
    until("both are gone", || served.server.counts().present == 0);
    nothing_left(&served.census);
}
