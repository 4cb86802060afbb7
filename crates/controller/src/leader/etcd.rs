//! etcd 3.4 and later, as JSON over HTTP: its gRPC gateway.
//!
//! The key `KEY` holds who leads, under a lease; `KEY/term` the term of the last leader, and `KEY/left` what a leader said
//! when it gave up, without one.
use super::{Campaign, Candidate, Leader, Seen, Store, StoreError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::{Duration, Instant};
use ureq::{Agent, BodyReader};

/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// A request may take this part of a lease: the store may be tried again before the lease is over.
const TRIES: u32 = 5;
/// And so long at least.
const TRY_LEAST: Duration = Duration::from_millis(200);
/// A stream of changes is begun anew after this time.
const WATCH: Duration = Duration::from_secs(30);
/// What was granted is over after this time, at the latest: a lease of windows is 10 s at most.
const LEFT_MAX: Duration = Duration::from_secs(30);

/// Servers of one etcd.
#[derive(Debug)]
pub struct Etcd {
    agent: Agent,
    endpoints: Vec<String>,
    /// The one that answered last.
    at: usize,
    key: String,
    term_key: String,
    left_key: String,
    /// When the term was written that was seen last; 0 for none.
    term_revision: String,
    lease_s: u64,
    /// Of the next campaign.
    ready: Option<String>,
    /// Of the campaign that was won, with what the key holds then.
    lease: Option<(String, Candidate)>,
}

/// What a leader says when it gives up.
#[derive(Serialize, Deserialize)]
struct Left {
    /// Its term.
    term: u32,
    /// How long what it granted may still be used: milliseconds.
    left_ms: u64,
}

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "TTL")]
    ttl: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct KeptAlive {
    result: Kept,
}

#[derive(Deserialize)]
struct Kept {
    /// Not there when the lease is over.
    #[serde(rename = "TTL")]
    ttl: Option<String>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, Deserialize)]
struct KeyValue {
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: String,
}

#[derive(Deserialize)]
struct Txn {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<Range>,
}

impl Etcd {
    /// Names the servers; none is asked yet.
    #[must_use]
    pub fn new(settings: &Leader) -> Self {
        let limit = (settings.lease / TRIES).max(TRY_LEAST);
        Self {
            agent: agent(limit),
            endpoints: settings.endpoints.clone(),
            at: 0,
            key: settings.key.clone(),
            term_key: format!("{}/term", settings.key),
            left_key: format!("{}/left", settings.key),
            term_revision: "0".to_owned(),
            lease_s: settings.lease.as_secs().max(1),
            ready: None,
            lease: None,
        }
    }

    /// Returns what waits for changes of the key.
    pub(super) fn watcher(&self) -> Watcher {
        let (endpoints, key) = (self.endpoints.clone(), self.key.clone());
        Watcher { agent: agent(WATCH), endpoints, at: 0, key, stream: None }
    }

    fn wrong(&self, what: String) -> StoreError {
        StoreError { endpoint: self.endpoints[self.at].clone(), what }
    }

    /// Asks the server that answered last, then the others.
    fn ask<T: DeserializeOwned>(&mut self, path: &str, request: &Value) -> Result<T, StoreError> {
        let count = self.endpoints.len();
        let mut first = None;
        for other in 0..count {
            let at = (self.at + other) % count;
            match self.ask_at(at, path, request) {
                Ok(answer) => {
                    self.at = at;
                    return Ok(answer);
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        let none = || StoreError { endpoint: String::new(), what: "no endpoint".to_owned() };
        Err(first.unwrap_or_else(none))
    }

    /// Asks for a lease.
    fn grant(&mut self) -> Result<String, StoreError> {
        let granted: Granted =
            self.ask("lease/grant", &json!({"TTL": self.lease_s.to_string()}))?;
        if let Some(error) = granted.error.filter(|error| !error.is_empty()) {
            return Err(self.wrong(format!("grants no lease: {error}")));
        }
        let ttl = granted.ttl.as_deref().and_then(|ttl| ttl.parse::<u64>().ok());
        if ttl.is_none_or(|ttl| ttl < self.lease_s) {
            let what = format!("grants a lease of {ttl:?} s in place of {}", self.lease_s);
            return Err(self.wrong(what));
        }
        Ok(granted.id)
    }

    /// Renews a lease; returns whether it was still there.
    fn keep_alive(&mut self, lease: &str) -> Result<bool, StoreError> {
        let kept: KeptAlive = self.ask("lease/keepalive", &json!({"ID": lease}))?;
        Ok(kept.result.ttl.and_then(|ttl| ttl.parse::<u64>().ok()).is_some_and(|ttl| ttl > 0))
    }

    fn ask_at<T: DeserializeOwned>(
        &self,
        at: usize,
        path: &str,
        request: &Value,
    ) -> Result<T, StoreError> {
        let endpoint = &self.endpoints[at];
        let failed = |what: String| StoreError { endpoint: endpoint.clone(), what };
        let asked = Instant::now();
        let mut lines = post(&self.agent, endpoint, path, request).map_err(failed)?;
        // An answer is one line; that of a stream is followed by others, which nobody waits for.
        let mut line = String::new();
        lines.read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        tracing::debug!(path, took = ?asked.elapsed(), "the store has answered");
        read(&line).map_err(failed)
    }
}

fn agent(limit: Duration) -> Agent {
    let config = Agent::config_builder();
    config.timeout_global(Some(limit)).max_redirects(0).proxy(None).build().new_agent()
}

type Lines = BufReader<std::io::Take<BodyReader<'static>>>;

fn post(agent: &Agent, endpoint: &str, path: &str, request: &Value) -> Result<Lines, String> {
    let answer = agent
        .post(format!("{endpoint}/v3/{path}"))
        .header("content-type", "application/json")
        .send(request.to_string())
        .map_err(|error| error.to_string())?;
    Ok(BufReader::new(answer.into_body().into_reader().take(ANSWER_BYTES_MAX)))
}

/// Waits for changes of the key.
pub(super) struct Watcher {
    agent: Agent,
    endpoints: Vec<String>,
    at: usize,
    key: String,
    stream: Option<Lines>,
}

impl Watcher {
    /// Waits until the key has changed, or may have; returns false where that is not known, as the store does not
    /// answer, or has said nothing for long.
    pub(super) fn wait(&mut self) -> bool {
        let stream = self.stream.take().map_or_else(|| self.begin(), Ok);
        let Ok(mut stream) = stream else {
            self.at = (self.at + 1) % self.endpoints.len();
            return false;
        };
        let mut line = String::new();
        // The first line says that it has begun: what happened before that is not in it.
        let is_news = stream.read_line(&mut line).is_ok() && read::<Watched>(&line).is_ok();
        self.stream = is_news.then_some(stream);
        is_news
    }

    fn begin(&self) -> Result<Lines, String> {
        let request = json!({"create_request": {"key": base64(&self.key)}});
        post(&self.agent, &self.endpoints[self.at], "watch", &request)
    }
}

#[derive(Deserialize)]
struct Watched {
    #[serde(rename = "result")]
    _result: serde::de::IgnoredAny,
}

/// Reads an answer.
fn read<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| {
        let seen: String = line.chars().take(100).collect();
        format!("answers {:?}, which is not as etcd 3.4 answers: {error}", seen.trim_end())
    })
}

/// Reads who leads, out of the value of the key.
fn candidate(value: &KeyValue) -> Result<Candidate, String> {
    let bytes = BASE64.decode(&value.value).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| {
        format!("the key holds something else than a controller ({error}); give a key that nobody else uses")
    })
}

fn term(value: &KeyValue) -> Result<u32, String> {
    let bytes = BASE64.decode(&value.value).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    text.parse().map_err(|_| format!("the key of the term holds {text:?}; remove it"))
}

/// Returns how long what the leader of a term has granted may still be used; `None` where it did not say so.
fn left(value: &KeyValue, term: u32) -> Option<Duration> {
    let said: Left = serde_json::from_slice(&BASE64.decode(&value.value).ok()?).ok()?;
    let left = Duration::from_millis(said.left_ms);
    (said.term == term && left <= LEFT_MAX).then_some(left)
}

/// Returns what the key holds while a candidate leads.
fn text(own: &Candidate) -> String {
    json!({"address": own.address, "term": own.term}).to_string()
}

fn put(key: &str, value: &str, lease: &str) -> Value {
    json!({"requestPut": {"key": base64(key), "value": base64(value), "lease": lease}})
}

fn base64(text: &str) -> String {
    BASE64.encode(text)
}

impl Store for Etcd {
    fn look(&mut self) -> Result<Seen, StoreError> {
        let range = |key: &str| json!({"requestRange": {"key": base64(key)}});
        let keys = [&self.key, &self.term_key, &self.left_key].map(|key| range(key));
        let txn: Txn = self.ask("kv/txn", &json!({"success": keys}))?;
        let [leader, last, said] = &txn.responses[..] else {
            return Err(self.wrong(format!("{} answers to 3 questions", txn.responses.len())));
        };
        let value = |response: &Response| {
            response.response_range.as_ref().and_then(|range| range.kvs.first().cloned())
        };
        let (leader, last) = (value(leader), value(last));
        let wrong = |what: String| self.wrong(what);
        let leader = leader.as_ref().map(candidate).transpose().map_err(wrong)?;
        let term = last.as_ref().map(term).transpose().map_err(wrong)?.unwrap_or(0);
        let left = value(said).and_then(|said| left(&said, term));
        self.term_revision = last.map_or("0".to_owned(), |last| last.mod_revision);
        Ok(Seen { leader, term, left })
    }

    fn prepare(&mut self) -> Result<(), StoreError> {
        if let Some(lease) = self.ready.take()
            && self.keep_alive(&lease)?
        {
            self.ready = Some(lease);
            return Ok(());
        }
        self.ready = Some(self.grant()?);
        Ok(())
    }

    fn campaign(&mut self, own: &Candidate) -> Result<Campaign, StoreError> {
        // One that has run out meanwhile wins nothing.
        let lease = self.ready.take().map_or_else(|| self.grant(), Ok)?;
        let request = json!({
            "compare": [
                {"key": base64(&self.key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"},
                {"key": base64(&self.term_key), "target": "MOD", "result": "EQUAL", "mod_revision": self.term_revision},
            ],
            "success": [
                put(&self.key, &text(own), &lease),
                put(&self.term_key, &own.term.to_string(), "0"),
            ],
            "failure": [{"requestRange": {"key": base64(&self.key)}}],
        });
        let txn: Txn = self.ask("kv/txn", &request)?;
        if txn.succeeded {
            self.lease = Some((lease, own.clone()));
            return Ok(Campaign::Won);
        }
        // Nobody waits for its end.
        let _ = self.ask::<Value>("lease/revoke", &json!({"ID": lease}));
        let range = txn.responses.first().and_then(|response| response.response_range.as_ref());
        let leads = range.and_then(|range| range.kvs.first()).map(candidate).transpose();
        leads.map(Campaign::Led).map_err(|what| self.wrong(what))
    }

    fn renew(&mut self) -> Result<bool, StoreError> {
        let Some((lease, _)) = self.lease.clone() else { return Ok(false) };
        self.keep_alive(&lease)
    }

    fn resign(&mut self, left: Option<Duration>) {
        let Some((lease, own)) = self.lease.take() else { return };
        if let Some(left) = left {
            // Rounded up.
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            let said = json!(Left { term: own.term, left_ms }).to_string();
            let key = base64(&self.key);
            let request = json!({
                "compare": [{"key": key, "target": "VALUE", "result": "EQUAL", "value": base64(&text(&own))}],
                "success": [put(&self.left_key, &said, "0"), {"requestDeleteRange": {"key": key}}],
            });
            // Else the next one waits as after a death.
            let _ = self.ask::<Value>("kv/txn", &request);
        }
        // Else the lease runs out.
        let _ = self.ask::<Value>("lease/revoke", &json!({"ID": lease}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> KeyValue {
        KeyValue { value: value.to_owned(), mod_revision: "7".to_owned() }
    }

    #[test]
    fn what_a_leader_said_when_it_gave_up_counts_for_its_term_alone_and_not_for_ever() {
        let said = |text: &str| left(&key(&base64(text)), 7);
        assert_eq!(said(r#"{"term":7,"left_ms":42}"#), Some(Duration::from_millis(42)));
        let wrong = [
            r#"{"term":6,"left_ms":42}"#,
            r#"{"term":7,"left_ms":40000}"#,
            r#"{"term":7,"left_ms":-1}"#,
            r#"{"term":7}"#,
            "",
        ];
        wrong.iter().for_each(|text| assert_eq!(said(text), None, "{text}"));
        assert_eq!(left(&key("!"), 7), None);
    }

    #[test]
    fn what_a_store_says_is_checked() {
        let kept = read::<KeptAlive>(r#"{"result":{"header":{},"ID":"7","TTL":"2"}}"#).unwrap();
        assert_eq!(kept.result.ttl.as_deref(), Some("2"));
        let over = read::<KeptAlive>(r#"{"result":{"ID":"7"}}"#).unwrap();
        assert_eq!(over.result.ttl, None);
        let hostile = [
            "",
            "null",
            "[]",
            "{",
            "{\"result\":7}",
            "<html>404</html>",
            "{\"ID\":7}",
            "\u{0}",
            "{\"result\":{\"TTL\":[]}}",
        ];
        for line in hostile {
            let error = read::<KeptAlive>(line).err().unwrap();
            assert!(error.contains("not as etcd 3.4"), "{line}: {error}");
        }
        for value in ["", "AAAA", "!", "e30=", "bnVsbA=="] {
            assert!(candidate(&key(value)).is_err(), "{value}");
        }
        for value in ["", "!", "LTE=", "OTk5OTk5OTk5OTk5"] {
            assert!(term(&key(value)).is_err(), "{value}");
        }
        let own = Candidate { address: "10.0.0.1:7118".to_owned(), term: 7 };
        let value = key(&base64(&serde_json::to_string(&own).unwrap()));
        assert_eq!(candidate(&value).unwrap(), own);
    }
}
