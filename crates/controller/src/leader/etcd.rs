//! etcd 3.4 and later, as JSON over HTTP: its gRPC gateway.
//!
//! The key `KEY` holds who leads, under a lease; `KEY/term` the term of the last leader, and `KEY/left` what a leader said
//! when it gave up, without one.
use super::answer::{self, Granted, KeptAlive, Left, Txn, Watched};
use super::{Campaign, Candidate, Leader, Seen, Store, StoreError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
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
        granted.lease(self.lease_s).map_err(|what| self.wrong(what))
    }

    /// Renews a lease; returns whether it was still there.
    fn keep_alive(&mut self, lease: &str) -> Result<bool, StoreError> {
        let kept: KeptAlive = self.ask("lease/keepalive", &json!({"ID": lease}))?;
        Ok(kept.is_there())
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
        answer::read(&line).map_err(failed)
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
        let is_news = stream.read_line(&mut line).is_ok() && answer::read::<Watched>(&line).is_ok();
        self.stream = is_news.then_some(stream);
        is_news
    }

    fn begin(&self) -> Result<Lines, String> {
        let request = json!({"create_request": {"key": base64(&self.key)}});
        post(&self.agent, &self.endpoints[self.at], "watch", &request)
    }
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
        let looked = txn.looked().map_err(|what| self.wrong(what))?;
        self.term_revision = looked.term_revision;
        Ok(looked.seen)
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
        let campaign = txn.campaign().map_err(|what| self.wrong(what));
        if matches!(campaign, Ok(Campaign::Won)) {
            self.lease = Some((lease, own.clone()));
        } else {
            // Nobody waits for its end.
            let _ = self.ask::<Value>("lease/revoke", &json!({"ID": lease}));
        }
        campaign
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
