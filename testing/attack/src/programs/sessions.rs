//! Sessions that are agreed by hand.
use super::Args;
use crate::host::process::pass;
use crate::wire::session::{Peer, connect, forge, framed};
use crate::wire::tls;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

pub(super) fn peer(args: &Args) -> Result<Peer> {
    let Ok(name) = args.text("certificate") else { return Peer::connect(args.address()?) };
    Ok(Peer::over(tls::connect(args.address()?, Path::new(args.text("certificates")?), name)?))
}

/// Names of as many devices as asked for.
pub(super) fn devices(args: &Args, session: u64) -> Result<Vec<String>> {
    if let Some(names) = args.value("devices").as_array() {
        return Ok(names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    }
    let filler = "x".repeat(args.number("filler").unwrap_or(0) as usize);
    let name = |number| format!("a{session}-{number}{filler}");
    Ok((0..args.number("names")?).map(name).collect())
}

/// Says one Hello, and returns the answer; `changes` replace members of it.
pub(super) fn hello(args: &Args) -> Result<Value> {
    let mut hello = forge(args.value("model"), args.number("instance")?, &devices(args, 0)?)?;
    for (name, value) in args.value("changes").as_object().into_iter().flatten() {
        hello[name] = value.clone();
    }
    let mut peer = peer(args)?;
    let answer = peer.hello(&hello);
    pass(args.time()?);
    Ok(match answer {
        Ok(answer) => json!({ "answer": summary(&answer) }),
        Err(error) => json!({ "answer": { "type": "none", "reason": format!("{error:#}") } }),
    })
}

/// An answer without its lists.
fn summary(answer: &Value) -> Value {
    let mut answer = answer.clone();
    answer["streams"] = json!(answer["streams"].as_array().map(Vec::len));
    answer
}

/// Holds `count` sessions with devices of their own to the end of its time, from `first_packet` on.
pub(super) fn sessions(args: &Args) -> Result<Value> {
    let (start, first) = (Instant::now(), args.number("first_packet").unwrap_or(0));
    let mut held = Vec::new();
    let mut last = json!(null);
    for number in 0..args.number("count")? {
        let named = devices(args, number)?;
        let hello = forge(args.value("model"), args.number("instance")? + number, &named)?;
        let mut peer = peer(args)?;
        last = peer.hello(&hello)?;
        if last["type"] == "welcome" {
            last = peer.ready(&last, args.value("connect"), first)?;
        }
        if last["type"] == "ready" {
            held.push(peer);
        }
    }
    pass(args.time()?.saturating_sub(start.elapsed()));
    Ok(json!({ "ready": held.len(), "last": summary(&last) }))
}

/// Says Hello many times, one after the other, and collects the keys and numbers that it is told.
pub(super) fn sample(args: &Args) -> Result<Value> {
    let (mut keys, mut numbers) = (Vec::new(), Vec::new());
    let no = json!({ "type": "refused", "code": "busy", "reason": "r", "remedy": "r", "retry_after_ms": null });
    for number in 0..args.number("count")? {
        let named = devices(args, number % 50)?;
        let mut hello = forge(args.value("model"), args.number("instance")? + number, &named)?;
        hello["wish"] = json!({ "blocks": 1, "block_bytes": 128 });
        let mut peer = peer(args)?;
        let welcome = peer.hello(&hello)?;
        let told = |pointer: &str| {
            let told = welcome.pointer(pointer).and_then(Value::as_u64);
            told.with_context(|| format!("no {pointer}: {}", summary(&welcome)))
        };
        keys.push(told("/ring/rkey")?);
        numbers.push(told("/endpoint/qpn")?);
        // What was made for it is gone once the collector hangs up.
        peer.send(&no)?;
        while peer.receive().is_ok() {}
    }
    Ok(json!({ "keys": keys, "numbers": numbers }))
}

/// Sends these texts as they are, each on a connection of its own, and keeps these open.
pub(super) fn raw(args: &Args) -> Result<Value> {
    let mut answers = Vec::new();
    let mut open = Vec::new();
    for text in args.value("texts").as_array().into_iter().flatten() {
        let mut stream = connect(args.address()?)?;
        stream.write_all(&framed(text.as_str().unwrap_or_default().as_bytes()))?;
        let mut bytes = vec![0; 65_536];
        let read = stream.read(&mut bytes).unwrap_or(0);
        let answer = bytes.get(4..read).unwrap_or_default();
        answers.push(String::from_utf8_lossy(answer).into_owned());
        open.push(stream);
    }
    pass(args.time()?);
    Ok(json!({ "answers": answers }))
}
