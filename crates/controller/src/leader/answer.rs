//! What etcd 3.4 and later answers, read and checked without I/O.
//!
//! An answer is a line of JSON, out of a store that others write to as well: whatever it says, it is refused by a short
//! text, or what it says can be used.
use super::{Campaign, Candidate, Seen};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What was granted is over after this time, at the latest: a lease of windows is 10 s at most.
pub const LEFT_MAX: Duration = Duration::from_secs(30);
/// The address of a controller has at most so many bytes.
pub const ADDRESS_BYTES_MAX: usize = 300;
/// So many characters of what was seen are shown, and of what is wrong with it.
const SHOWN: usize = 100;

/// Reads an answer.
///
/// # Errors
/// What the store answers, in place of an answer of etcd.
pub fn read<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| {
        let (seen, why) = (shown(line.trim_end()), brief(&error));
        format!("answers {seen}, which is not as etcd 3.4 answers: {why}")
    })
}

fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(SHOWN).collect::<String>())
}

/// Says what is wrong; an error of JSON repeats the value, however long it is.
fn brief(error: &serde_json::Error) -> String {
    error.to_string().chars().take(SHOWN).collect::<String>().escape_debug().to_string()
}

/// What a leader says when it gives up.
#[derive(Serialize, Deserialize)]
pub(super) struct Left {
    /// Its term.
    pub(super) term: u32,
    /// How long what it granted may still be used: milliseconds.
    pub(super) left_ms: u64,
}

/// The answer to `lease/grant`.
#[derive(Deserialize)]
pub struct Granted {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "TTL")]
    ttl: Option<String>,
    error: Option<String>,
}

impl Granted {
    /// Returns the lease that was granted, if it lasts for as many seconds as were asked for.
    ///
    /// # Errors
    /// What was answered in place of it.
    pub fn lease(self, asked_s: u64) -> Result<String, String> {
        if let Some(error) = self.error.filter(|error| !error.is_empty()) {
            return Err(format!("grants no lease: {}", shown(&error)));
        }
        let ttl = self.ttl.as_deref().and_then(|ttl| ttl.parse::<u64>().ok());
        if ttl.is_none_or(|ttl| ttl < asked_s) {
            return Err(format!("grants a lease of {ttl:?} s in place of {asked_s}"));
        }
        Ok(self.id)
    }
}

/// The answer to `lease/keepalive`.
#[derive(Deserialize)]
pub struct KeptAlive {
    result: Kept,
}

#[derive(Deserialize)]
struct Kept {
    /// Not there when the lease is over.
    #[serde(rename = "TTL")]
    ttl: Option<String>,
}

impl KeptAlive {
    /// Returns whether the lease was still there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let ttl = self.result.ttl.as_deref();
        ttl.and_then(|ttl| ttl.parse::<u64>().ok()).is_some_and(|ttl| ttl > 0)
    }
}

/// A line of the answer to `watch`.
#[derive(Deserialize)]
pub struct Watched {
    #[serde(rename = "result")]
    _result: serde::de::IgnoredAny,
}

/// The answer to `kv/txn`.
#[derive(Deserialize)]
pub struct Txn {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: String,
}

/// What the store holds, and what a campaign has to find unchanged.
#[derive(Debug, PartialEq, Eq)]
pub struct Looked {
    /// What it holds.
    pub seen: Seen,
    /// When the term was written; 0 for never.
    pub term_revision: String,
}

impl Response {
    fn value(&self) -> Option<&KeyValue> {
        self.response_range.as_ref()?.kvs.first()
    }
}

impl Txn {
    /// Reads it as the answer to the three questions: who leads, the term of the last leader, and what that one said when
    /// it gave up.
    ///
    /// # Errors
    /// What the store holds in place of that.
    pub fn looked(&self) -> Result<Looked, String> {
        let [leader, last, said] = &self.responses[..] else {
            return Err(format!("{} answers to 3 questions", self.responses.len()));
        };
        let (leader, last) = (leader.value(), last.value());
        let leader = leader.map(KeyValue::candidate).transpose()?;
        let term = last.map(KeyValue::term).transpose()?.unwrap_or(0);
        let left = said.value().and_then(|said| said.left(term));
        let term_revision = last.map_or("0".to_owned(), |last| last.mod_revision.clone());
        Ok(Looked { seen: Seen { leader, term, left }, term_revision })
    }

    /// Reads it as the answer to a campaign, which asks who leads where it is lost.
    ///
    /// # Errors
    /// What the store holds in place of a leader.
    pub fn campaign(&self) -> Result<Campaign, String> {
        if self.succeeded {
            return Ok(Campaign::Won);
        }
        let leads = self.responses.first().and_then(Response::value);
        leads.map(KeyValue::candidate).transpose().map(Campaign::Led)
    }
}

impl KeyValue {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        BASE64.decode(&self.value).map_err(|error| error.to_string())
    }

    /// Reads who leads, out of the value of the key.
    fn candidate(&self) -> Result<Candidate, String> {
        let other = |what: String| {
            format!(
                "the key holds something else than a controller ({what}); give a key that nobody else uses"
            )
        };
        let candidate: Candidate =
            serde_json::from_slice(&self.bytes()?).map_err(|error| other(brief(&error)))?;
        let address = &candidate.address;
        let is_plain = (1..=ADDRESS_BYTES_MAX).contains(&address.len())
            && address.bytes().all(|byte| byte.is_ascii_graphic());
        if is_plain { Ok(candidate) } else { Err(other(format!("at {}", shown(address)))) }
    }

    fn term(&self) -> Result<u32, String> {
        let bytes = self.bytes()?;
        let text = String::from_utf8_lossy(&bytes);
        text.parse().map_err(|_| format!("the key of the term holds {}; remove it", shown(&text)))
    }

    /// Returns how long what the leader of a term has granted may still be used; `None` where it did not say so.
    fn left(&self, term: u32) -> Option<Duration> {
        let said: Left = serde_json::from_slice(&self.bytes().ok()?).ok()?;
        let left = Duration::from_millis(said.left_ms);
        (said.term == term && left <= LEFT_MAX).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base64(text: &str) -> String {
        BASE64.encode(text)
    }

    fn key(value: &str) -> KeyValue {
        KeyValue { value: value.to_owned(), mod_revision: "7".to_owned() }
    }

    #[test]
    fn what_a_leader_said_when_it_gave_up_counts_for_its_term_alone_and_not_for_ever() {
        let said = |text: &str| key(&base64(text)).left(7);
        assert_eq!(said(r#"{"term":7,"left_ms":42}"#), Some(Duration::from_millis(42)));
        let wrong = [
            r#"{"term":6,"left_ms":42}"#,
            r#"{"term":7,"left_ms":40000}"#,
            r#"{"term":7,"left_ms":-1}"#,
            r#"{"term":7}"#,
            "",
        ];
        wrong.iter().for_each(|text| assert_eq!(said(text), None, "{text}"));
        assert_eq!(key("!").left(7), None);
    }

    #[test]
    fn what_a_store_says_is_checked() {
        let kept = read::<KeptAlive>(r#"{"result":{"header":{},"ID":"7","TTL":"2"}}"#).unwrap();
        assert!(kept.is_there());
        let over = read::<KeptAlive>(r#"{"result":{"ID":"7"}}"#).unwrap();
        assert!(!over.is_there());
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
            assert!(key(value).candidate().is_err(), "{value}");
        }
        for value in ["", "!", "LTE=", "OTk5OTk5OTk5OTk5"] {
            assert!(key(value).term().is_err(), "{value}");
        }
        let own = Candidate { address: "10.0.0.1:7118".to_owned(), term: 7 };
        let value = key(&base64(&serde_json::to_string(&own).unwrap()));
        assert_eq!(value.candidate().unwrap(), own);
    }

    #[test]
    fn a_refusal_shows_the_beginning_of_what_was_seen_alone() {
        let long = "7".repeat(50_000);
        let granted = read::<Granted>(&format!(r#"{{"ID":"1","error":"{long}"}}"#)).unwrap();
        let candidate = format!(r#"{{"address":"{long}","term":1}}"#);
        let refusals = [
            key(&base64(&long)).term().unwrap_err(),
            key(&base64(&candidate)).candidate().unwrap_err(),
            granted.lease(2).unwrap_err(),
            read::<Txn>(&long).err().unwrap(),
            read::<Txn>(&format!("{long:?}")).err().unwrap(),
            key(&base64(&format!(r#"{{"address":"a","term":{long:?}}}"#))).candidate().unwrap_err(),
        ];
        assert!(refusals.iter().all(|text| text.len() < 400 && text.contains("777")));
        let hidden = key(&base64(r#"{"address":"a\u001b[2J:1","term":1}"#)).candidate();
        assert!(hidden.is_err_and(|text| !text.contains('\u{1b}')));
    }
}
