//! Clients that behave.
use super::talk::{SHORTLY, answer, ask, content, write_and_read_back};
use super::*;
use catchment_channel::{ClaimError, Tag};
use catchment_probe::load::{did, scaled};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn s3_2_sixteen_clients_at_once() {
    for (name, open) in every_provider() {
        let options = options(4, 3000, "many");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 3000));
        std::thread::scope(|scope| {
            for client in 0..16 {
                let (open, options, address) = (&open, &options, served.address);
                scope.spawn(move || {
                    let (context, census) = Census::of(open());
                    let mut link = connect(address, context, options).unwrap();
                    ask(&mut link, client, 3000, 200, 4);
                    let counts = link.counts();
                    assert_eq!((counts.sent, counts.came), (200, 200));
                    link.finish(PATIENCE).unwrap();
                    assert_eq!(census.total(), 0);
                });
            }
        });
        until("all are served", || served.server.counts().served == 16);
        let counts = served.server.stop();
        assert_eq!((counts.present, counts.failed), (0, 0), "{name}");
        nothing_left(&served.census);
    }
}

/// Messages go in both directions without waiting for each other, and all of them arrive although each
/// side ends as soon as it has sent.
#[test]
fn what_was_sent_before_the_goodbye_arrives() {
    for (name, open) in every_provider() {
        let options = options(3, 500, "last");
        let came = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&came);
        let served = serve(open(), &options, move |_, link: &mut Link| {
            let mut wanted = vec![0; 500];
            for packet in 0.. {
                match link.receive(PATIENCE) {
                    Ok(block) => {
                        let block = block.expect("a message");
                        let bytes = content(7, packet, &mut wanted);
                        assert!(block.payload().to_vec() == wanted[..bytes]);
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(EndError::PeerGone) if link.said_goodbye() => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        for round in 1..=20 {
            let mut link = connect(served.address, open(), &options).unwrap();
            let mut payload = vec![0; 500];
            for packet in 0..10 {
                let bytes = content(7, packet, &mut payload);
                link.send(Tag { stream: 7, packet }, &payload[..bytes], PATIENCE).unwrap();
            }
            link.finish(PATIENCE).unwrap();
            until("the client is served", || {
                let counts = served.server.counts();
                assert_eq!((counts.failed, counts.refused), (0, 0), "{name}");
                counts.served == round
            });
            assert_eq!(came.load(Ordering::SeqCst), 10 * round, "{name}");
        }
    }
}

/// Questions and answers, each sent while the other side sleeps (S3.12).
#[test]
fn s3_12_no_wake_up_is_lost() {
    for (name, open) in every_provider() {
        let rounds = match name {
            "shm" => scaled(20_000),
            _ => scaled(2_000),
        };
        let options = options(2, 64, "wake");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let mut link = connect(served.address, open(), &options).unwrap();
        ask(&mut link, 1, 64, rounds, 1);
        link.finish(PATIENCE).unwrap();
        assert_eq!(served.server.stop().failed, 0, "{name}");
        did("S3.12", rounds, &format!("rounds in which both sides slept, {name}"));
    }
}

/// READs and WRITEs complete by the same events as messages.
#[test]
fn s3_12_reads_and_writes_beside_messages() {
    for (name, open) in every_provider() {
        let options = options(4, 64, "both");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let mut link = connect(served.address, open(), &options).unwrap();
        for round in 0..100u8 {
            assert!(write_and_read_back(&mut link, round), "{name}");
        }
        ask(&mut link, 1, 64, 10, 1);
        link.finish(PATIENCE).unwrap();
    }
}

/// Names of the threads of this process that begin so.
pub(crate) fn threads(start: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let mut names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    names.retain(|name| name.starts_with(start));
    names.sort();
    names
}

#[test]
fn s3_8_three_threads_come_and_go_with_a_link() {
    let options = options(2, 64, "s38");
    let open = shm();
    let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
    let mine = LinkOptions { name: "me38".into(), ..options };
    let link = connect(served.address, open(), &mine).unwrap();
    until("the threads have their names", || {
        threads("me38") == ["me38-cq", "me38-rq", "me38-sq"]
            && threads("s38") == ["s38-0-cq", "s38-0-rq", "s38-0-sq"]
    });
    link.close().unwrap();
    // A thread that was joined may stand in `/proc` for a moment more: the kernel wakes who joins
    // it before it takes the task away.
    until("the client's threads end", || threads("me38").is_empty());
    until("the server's threads end", || threads("s38").is_empty());
    served.server.stop();
}

/// The peer takes nothing: the sender gives up after its patience, and nothing is lost (S3.8).
#[test]
fn sending_into_a_full_window_gives_up() {
    for (name, open) in every_provider() {
        let options = options(3, 64, "full");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let served = serve(open(), &options, move |_, link: &mut Link| {
            wait.lock().unwrap().recv().unwrap();
            for packet in 0..3 {
                assert_eq!(link.receive(PATIENCE)?.expect("a message").tag().packet, packet);
            }
            answer(link, 64).map_err(|error| panic!("{error}"))
        });
        let mut link = connect(served.address, open(), &options).unwrap();
        let tag = |packet| Tag { stream: 0, packet };
        for packet in 0..3 {
            link.send(tag(packet), b"x", PATIENCE).unwrap();
        }
        assert_eq!(link.send(tag(3), b"x", SHORTLY), Err(ClaimError::WouldBlock), "{name}");
        let long = link.send(tag(3), &[0; 65], SHORTLY);
        assert!(matches!(long, Err(ClaimError::Length { asked: 65, .. })));
        assert!(link.receive(SHORTLY).unwrap().is_none());
        go.send(()).unwrap();
        ask(&mut link, 0, 64, 5, 1);
        link.finish(PATIENCE).unwrap();
    }
}
