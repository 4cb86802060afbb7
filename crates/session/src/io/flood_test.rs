//! Peers that never finish their handshake, in numbers, and storms of good ones.
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::socket_test::{Events, LIMIT, attend, connect, eventually, listen, serve};
use super::*;
use crate::backoff::Backoff;
use crate::machine::{Ended, Retry};
use crate::message::Message;
use crate::samples;
use crate::wire::encode;

/// Both ends of a thousand connections are in this process.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A collector that serves every session to its end.
async fn collector(config: ListenerConfig) -> (Address, Events, tokio::task::JoinHandle<()>) {
    let (mut listener, events) = listen("127.0.0.1:0", config).await;
    let address = listener.local().clone();
    let task = tokio::spawn(async move {
        while let Some(accepted) = listener.accept().await {
            tokio::spawn(serve(accepted));
        }
    });
    (address, events, task)
}

/// Connects again and again as a source does until its session is finished; how many times.
async fn persist(address: &Address, seed: u64) -> u32 {
    let backoff = Backoff::new(seed);
    for attempt in 0..100 {
        let ended = attend(connect(address).await.unwrap()).await;
        match ended.retry() {
            Retry::Never => {
                assert_eq!(ended, Ended::Finished);
                return attempt + 1;
            }
            Retry::After(wait) => tokio::time::sleep(backoff.delay(attempt, wait)).await,
        }
    }
    panic!("100 refusals");
}

/// Opens 1,000 connections that send `bytes` and no more; at least `rejections` of them must be
/// reported by the listener.
async fn flood(bytes: &[u8], rejections: usize) {
    raise_open_files();
    let (address, events, task) = collector(ListenerConfig::default()).await;
    let mut idlers = Vec::new();
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(address.to_string()).await.unwrap();
        let _ = stream.write_all(bytes).await;
        idlers.push(stream);
    }
    let good = tokio::time::timeout(6 * LIMIT, persist(&address, 1)).await;
    assert!(good.is_ok(), "the good one was kept out");
    let labels =
        |label| events.lock().unwrap().iter().filter(|event| event.reason.label() == label).count();
    // All end with a reason, and the places are free again.
    eventually("every idler is turned away", || events.lock().unwrap().len() >= rejections).await;
    let (busy, evicted) = (labels("busy"), labels("evicted"));
    assert!(busy + evicted + 300 >= rejections, "{busy} busy, {evicted} evicted");
    for mut idler in idlers {
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(LIMIT, idler.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "an idler is still connected");
    }
    assert_eq!(persist(&address, 2).await, 1);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_silent_connections_do_not_keep_a_good_one_out() {
    flood(b"", 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_that_stop_inside_hello_do_not_keep_a_good_one_out() {
    flood(b"\0\0\x80\0{\"type\":\"hello\",", 1_000).await;
}

/// These have left the listener with their Hello; the engine turns them away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_that_stop_after_hello_do_not_keep_a_good_one_out() {
    let mut hello = Vec::new();
    encode(&Message::Hello(samples::hello()), &mut hello).unwrap();
    flood(&hello, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_peers_that_come_back_at_once_do_not_keep_a_good_one_out() {
    raise_open_files();
    let (address, _, task) = collector(ListenerConfig::default()).await;
    let mut attackers = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let address = address.to_string();
        attackers.spawn(async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(&address).await {
                    let mut answer = Vec::new();
                    let _ = stream.read_to_end(&mut answer).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    // Which try gets through is luck: all that came since have a place before it. On a busy machine
    // more of them come meanwhile.
    let tries = tokio::time::timeout(6 * LIMIT, persist(&address, 3)).await;
    assert!(tries.is_ok(), "the good one was kept out");
    attackers.abort_all();
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sources_at_once_all_get_a_session() {
    raise_open_files();
    let (address, _, task) = collector(ListenerConfig::default()).await;
    let start = Instant::now();
    let mut sources = tokio::task::JoinSet::new();
    for seed in 0..1_000 {
        let address = address.clone();
        sources.spawn(async move { persist(&address, seed).await });
    }
    let tries = tokio::time::timeout(6 * LIMIT, sources.join_all()).await;
    let tries: u32 = tries.expect("some got no session").into_iter().sum();
    let took = start.elapsed();
    println!("1000 sessions in {took:?} with {tries} connections");
    task.abort();
}
