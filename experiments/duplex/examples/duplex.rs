//! Client and server of duplex channels that check every byte: two programs to look at, and what
//! `cargo xtask soak duplex` kills and restarts.
//!
//! ```text
//! cargo run --release --example duplex -- server shm
//! cargo run --release --example duplex -- client shm 127.0.0.1:PORT 1
//! ```
//!
//! Both end well when their standard input does, and write what they did as lines of JSON.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that is looked at")]
use catchment_channel::{ChannelShape, ClaimError, EndError, Message, Tag};
use catchment_duplex::*;
use catchment_probe::census::Census;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider};
use serde_json::{Value, json};
use std::error::Error;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

const BLOCKS: u32 = 8;
const PAYLOAD_BYTES: usize = 16_384;
const SHARED_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the server says how it is.
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// Set in the stream of a message that the server says.
const OF_SERVER: u32 = 1 << 31;
/// How often a client tries to connect.
const TRIES: u32 = 5;
/// Every so many messages a client WRITEs and READs.
const ONE_SIDED_EVERY: u64 = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["server", provider] => server(provider),
        ["client", provider, address, number] => client(provider, address, number),
        _ => Err("give `server PROVIDER`, or `client PROVIDER ADDRESS NUMBER`".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn device(provider: &str) -> Result<Arc<dyn Context>, Box<dyn Error>> {
    match provider {
        "shm" => Ok(ShmProvider::new().open("shm0")?),
        "roce" => {
            let options = RoceOptions { port: 0, ..RoceOptions::default() };
            Ok(RoceProvider::new(options).open("127.0.0.1")?)
        }
        other => Err(format!("no provider is called {other}: take shm or roce").into()),
    }
}

fn options() -> LinkOptions {
    let shape = ChannelShape::new(BLOCKS, PAYLOAD_BYTES as u32).with_shared(SHARED_BYTES as u32);
    LinkOptions::new(shape)
}

/// True once standard input has ended.
fn end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while matches!(std::io::stdin().read(&mut rest), Ok(1..)) {}
        flag.store(true, Relaxed);
    });
    ended
}

/// Bytes of message number `packet` of a stream, and how many.
fn content(stream: u32, packet: u64, out: &mut [u8; PAYLOAD_BYTES]) -> usize {
    let mut state = (packet << 32 | u64::from(stream)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let bytes = next() as usize % (PAYLOAD_BYTES + 1);
    for chunk in out[..bytes].chunks_mut(8) {
        chunk.copy_from_slice(&next().to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// One side of a conversation.
struct Speaker {
    made: Box<[u8; PAYLOAD_BYTES]>,
    seen: Box<[u8; PAYLOAD_BYTES]>,
}

/// Why a conversation is over.
#[derive(Debug)]
enum Trouble {
    Ended(EndError),
    /// Bytes came that nobody sent.
    Wrong(Tag),
}

impl From<EndError> for Trouble {
    fn from(error: EndError) -> Trouble {
        Trouble::Ended(error)
    }
}

impl Speaker {
    fn new() -> Speaker {
        Speaker { made: Box::new([0; PAYLOAD_BYTES]), seen: Box::new([0; PAYLOAD_BYTES]) }
    }

    fn say(&mut self, link: &mut Link, tag: Tag) -> Result<usize, Trouble> {
        let bytes = content(tag.stream, tag.packet, &mut self.made);
        match link.send(tag, &self.made[..bytes], PATIENCE) {
            Ok(()) => Ok(bytes),
            Err(ClaimError::End(error)) => Err(error.into()),
            Err(_) => Err(EndError::PeerGone.into()),
        }
    }

    /// Every byte must be what that side says with that number.
    fn check(&mut self, block: &Message, wanted: Tag) -> Result<usize, Trouble> {
        let bytes = content(wanted.stream, wanted.packet, &mut self.made);
        let payload = block.payload();
        let is_right = block.tag() == wanted
            && payload.bytes() == bytes
            && payload.read_at(0, &mut self.seen[..bytes]).is_ok()
            && self.seen[..bytes] == self.made[..bytes];
        is_right.then_some(bytes).ok_or(Trouble::Wrong(wanted))
    }
}

#[derive(Default)]
struct Totals {
    messages: AtomicU64,
    bytes: AtomicU64,
    wrong: AtomicU64,
}

fn server(provider: &str) -> Result<(), Box<dyn Error>> {
    let (context, census) = Census::of(device(provider)?);
    let totals = Arc::new(Totals::default());
    let counted = Arc::clone(&totals);
    let listener = Listener::tcp(TcpListener::bind("127.0.0.1:0")?)?;
    let options = ServerOptions::new(options());
    let server = Server::start(listener, context, options, move |_, link: &mut Link| {
        answer(link, &counted)
    })?;
    let report = |counts: ServerCounts, ended: bool| {
        // The log of the census is for tests.
        census.take_log();
        let line = json!({
            "present": counts.present, "served": counts.served,
            "failed": counts.failed, "refused": counts.refused,
            "messages": totals.messages.load(Relaxed), "bytes": totals.bytes.load(Relaxed),
            "wrong": totals.wrong.load(Relaxed), "objects": census.total(), "ended": ended,
        });
        println!("{line}");
    };
    // Who reads the address may count threads from then on: all that there are without clients are here.
    let ended = end_of_input();
    println!("{}", json!({"address": server.address().map(|a| a.to_string())}));
    while !ended.load(Relaxed) {
        // Who reads the lines wants one now and then; nothing that happens here is waited for.
        std::thread::sleep(REPORT_EVERY);
        report(server.counts(), false);
    }
    report(server.stop(), true);
    Ok(())
}

/// Checks every message of a client and answers it, until it says goodbye.
fn answer(link: &mut Link, totals: &Totals) -> Result<(), EndError> {
    let mut speaker = Speaker::new();
    let mut packet = 0;
    loop {
        let block = match link.receive(PATIENCE) {
            Ok(Some(block)) => block,
            Ok(None) => continue,
            Err(EndError::PeerGone) if link.said_goodbye() => return Ok(()),
            Err(error) => return Err(error),
        };
        let stream = block.tag().stream;
        let result = speaker.check(&block, Tag { stream, packet });
        drop(block);
        let stream = stream | OF_SERVER;
        let result = result.and_then(|came| {
            let said = speaker.say(link, Tag { stream, packet })?;
            Ok(came + said)
        });
        match result {
            Ok(bytes) => {
                totals.messages.fetch_add(2, Relaxed);
                totals.bytes.fetch_add(bytes as u64, Relaxed);
            }
            Err(Trouble::Ended(error)) => return Err(error),
            Err(Trouble::Wrong(tag)) => {
                totals.wrong.fetch_add(1, Relaxed);
                eprintln!("wrong bytes in {tag:?}");
                return Err(EndError::Closed);
            }
        }
        packet += 1;
    }
}

fn client(provider: &str, address: &str, number: &str) -> Result<(), Box<dyn Error>> {
    let stream: u32 = number.parse()?;
    let mut link = connect(provider, address)?;
    let ended = end_of_input();
    if let Err(trouble) = converse(&mut link, stream, &ended) {
        return Err(format!("client {stream}: {trouble:?}").into());
    }
    let line: Value = json!({"messages": link.counts().sent, "bytes": link.counts().sent_bytes});
    link.finish(PATIENCE)?;
    println!("{line}");
    Ok(())
}

/// Comes again when it is refused: on a machine that does many other things a device may not answer
/// in time.
fn connect(provider: &str, address: &str) -> Result<Link, Box<dyn Error>> {
    let mut tries = 0;
    loop {
        let control = Control::tcp(TcpStream::connect(address)?)?;
        tries += 1;
        match Link::connect(control, device(provider)?, &options()) {
            Ok(link) => return Ok(link),
            Err(error) if tries == TRIES => return Err(error.into()),
            Err(error) => eprintln!("try {tries} of {TRIES}: {error}"),
        }
    }
}

/// Speaks as long as it may, without waiting for the answers, and checks all of them.
fn converse(link: &mut Link, stream: u32, ended: &AtomicBool) -> Result<(), Trouble> {
    let mut speaker = Speaker::new();
    let (mut said, mut heard) = (0, 0);
    while !ended.load(Relaxed) || heard < said {
        if !ended.load(Relaxed) && said - heard < u64::from(BLOCKS) {
            let tag = Tag { stream, packet: said };
            speaker.say(link, tag)?;
            said += 1;
            if said.is_multiple_of(ONE_SIDED_EVERY) {
                write_and_read_back(link, stream, said)?;
            }
            continue;
        }
        let Some(block) = link.receive(PATIENCE)? else {
            return Err(EndError::PeerGone.into());
        };
        let tag = Tag { stream: stream | OF_SERVER, packet: heard };
        speaker.check(&block, tag)?;
        heard += 1;
    }
    Ok(())
}

/// The first half of what is local goes to the server's memory and comes back into the second.
fn write_and_read_back(link: &mut Link, stream: u32, round: u64) -> Result<(), Trouble> {
    const HALF: usize = SHARED_BYTES / 2;
    let wrong = Trouble::Wrong(Tag { stream, packet: round });
    let data = [round as u8 ^ stream as u8; HALF];
    let mut seen = [0; HALF];
    let moved = |link: &Link, ticket| match ticket {
        Ok(ticket) => Ok(link.wait(ticket, PATIENCE)?),
        // Messages fill the queue: another time.
        Err(catchment_channel::OperationError::QueueFull) => Ok(false),
        Err(catchment_channel::OperationError::End(error)) => Err(error),
        Err(_) => Err(EndError::Closed),
    };
    let written = link.scratch().write_at(0, &data).is_ok();
    let there = written && moved(link, link.write(0, 0, HALF as u32))?;
    if !there || !moved(link, link.read(0, HALF, HALF as u32))? {
        return Ok(());
    }
    let read = link.scratch().read_at(HALF, &mut seen);
    if read.is_err() || seen != data {
        return Err(wrong);
    }
    Ok(())
}
