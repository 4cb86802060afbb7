//! etcd 3.4 and later, as JSON over HTTP: its gRPC gateway.
//!
//! The key `KEY` holds who leads, under a lease; `KEY/term` the term of the last leader, without one.
use super::{Campaign, Candidate, Leader, Store, StoreError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;
use ureq::Agent;

/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// A request may take this part of a lease: the store may be tried again before the lease is over.
const TRIES: u32 = 5;
/// And so long at least.
const TRY_LEAST: Duration = Duration::from_millis(200);

/// Servers of one etcd.
#[derive(Debug)]
pub struct Etcd {
    agent: Agent,
    endpoints: Vec<String>,
    /// The one that answered last.
    at: usize,
    key: String,
    term_key: String,
    lease_s: u64,
    lease: Option<String>,
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
        let config = Agent::config_builder()
            .timeout_global(Some(limit))
            .max_redirects(0)
            .proxy(None)
            .build();
        Self {
            agent: config.new_agent(),
            endpoints: settings.endpoints.clone(),
            at: 0,
            key: settings.key.clone(),
            term_key: format!("{}/term", settings.key),
            lease_s: settings.lease.as_secs().max(1),
            lease: None,
        }
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

    fn ask_at<T: DeserializeOwned>(
        &self,
        at: usize,
        path: &str,
        request: &Value,
    ) -> Result<T, StoreError> {
        let endpoint = &self.endpoints[at];
        let failed = |what: String| StoreError { endpoint: endpoint.clone(), what };
        let answer = self
            .agent
            .post(format!("{endpoint}/v3/{path}"))
            .header("content-type", "application/json")
            .send(request.to_string())
            .map_err(|error| failed(error.to_string()))?;
        // An answer is one line; that of a stream is followed by others, which nobody waits for.
        let body = answer.into_body().into_reader().take(ANSWER_BYTES_MAX);
        let mut line = String::new();
        BufReader::new(body).read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        read(&line).map_err(failed)
    }
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

fn base64(text: &str) -> String {
    BASE64.encode(text)
}

impl Store for Etcd {
    fn look(&mut self) -> Result<(Option<Candidate>, u32), StoreError> {
        let range = |key: &str| json!({"requestRange": {"key": base64(key)}});
        let request = json!({"success": [range(&self.key), range(&self.term_key)]});
        let txn: Txn = self.ask("kv/txn", &request)?;
        let wrong = |what: String| StoreError { endpoint: self.endpoints[self.at].clone(), what };
        let [leader, last] = &txn.responses[..] else {
            return Err(wrong(format!("{} answers to 2 questions", txn.responses.len())));
        };
        let value = |response: &Response| {
            response.response_range.as_ref().and_then(|range| range.kvs.first().cloned())
        };
        let leader = value(leader).as_ref().map(candidate).transpose().map_err(wrong)?;
        let last = value(last).as_ref().map(term).transpose().map_err(wrong)?;
        Ok((leader, last.unwrap_or(0)))
    }

    fn campaign(&mut self, own: &Candidate) -> Result<Campaign, StoreError> {
        let granted: Granted =
            self.ask("lease/grant", &json!({"TTL": self.lease_s.to_string()}))?;
        let wrong =
            |at: &Self, what: String| StoreError { endpoint: at.endpoints[at.at].clone(), what };
        if let Some(error) = granted.error.filter(|error| !error.is_empty()) {
            return Err(wrong(self, format!("grants no lease: {error}")));
        }
        let ttl = granted.ttl.as_deref().and_then(|ttl| ttl.parse::<u64>().ok());
        if ttl.is_none_or(|ttl| ttl < self.lease_s) {
            return Err(wrong(
                self,
                format!("grants a lease of {ttl:?} s in place of {}", self.lease_s),
            ));
        }
        let put = |key: &str, value: &str, lease: &str| json!({"requestPut": {"key": base64(key), "value": base64(value), "lease": lease}});
        let text = json!({"address": own.address, "term": own.term}).to_string();
        let request = json!({
            "compare": [{"key": base64(&self.key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [put(&self.key, &text, &granted.id), put(&self.term_key, &own.term.to_string(), "0")],
            "failure": [{"requestRange": {"key": base64(&self.key)}}],
        });
        let txn: Txn = self.ask("kv/txn", &request)?;
        if txn.succeeded {
            self.lease = Some(granted.id);
            return Ok(Campaign::Won);
        }
        // Nobody waits for its end.
        let _ = self.ask::<Value>("lease/revoke", &json!({"ID": granted.id}));
        let range = txn.responses.first().and_then(|response| response.response_range.as_ref());
        let Some(value) = range.and_then(|range| range.kvs.first()) else {
            return Err(wrong(self, "says that another leads, and not who".to_owned()));
        };
        candidate(value).map(Campaign::Led).map_err(|what| wrong(self, what))
    }

    fn renew(&mut self) -> Result<bool, StoreError> {
        let Some(lease) = self.lease.clone() else { return Ok(false) };
        let kept: KeptAlive = self.ask("lease/keepalive", &json!({"ID": lease}))?;
        Ok(kept.result.ttl.and_then(|ttl| ttl.parse::<u64>().ok()).is_some_and(|ttl| ttl > 0))
    }

    fn resign(&mut self) {
        if let Some(lease) = self.lease.take() {
            // Else the lease runs out.
            let _ = self.ask::<Value>("lease/revoke", &json!({"ID": lease}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(candidate(&KeyValue { value: value.to_owned() }).is_err(), "{value}");
        }
        for value in ["", "!", "LTE=", "OTk5OTk5OTk5OTk5"] {
            assert!(term(&KeyValue { value: value.to_owned() }).is_err(), "{value}");
        }
        let own = Candidate { address: "10.0.0.1:7118".to_owned(), term: 7 };
        let value = KeyValue { value: base64(&serde_json::to_string(&own).unwrap()) };
        assert_eq!(candidate(&value).unwrap(), own);
    }
}
