//! The accounts of an agent in the text format that Prometheus reads (version 0.0.4).
use crate::protocol::Account;
use std::fmt::Write as _;

/// Name, type, help, and where the value is.
type Metric = (&'static str, &'static str, &'static str, fn(&Account) -> f64);

/// In the order of docs/reference/metrics.md.
const METRICS: [Metric; 12] = [
    ("catchment_agent_weight", "gauge", "Weight of the policy.", |a| a.weight),
    (
        "catchment_agent_share",
        "gauge",
        "Part of the device while all have something to send.",
        |a| a.share,
    ),
    ("catchment_agent_requests_total", "counter", "Requests given, receives not counted.", |a| {
        a.requests as f64
    }),
    (
        "catchment_agent_requests_done_total",
        "counter",
        "Requests done, failed ones included.",
        |a| a.done as f64,
    ),
    (
        "catchment_agent_requests_failed_total",
        "counter",
        "Requests that failed or were flushed.",
        |a| a.failed as f64,
    ),
    (
        "catchment_agent_entries_refused_total",
        "counter",
        "Entries that were no request, or not one of its own.",
        |a| a.refused as f64,
    ),
    ("catchment_agent_chunks_total", "counter", "Chunks given to the device.", |a| a.chunks as f64),
    (
        "catchment_agent_bytes_total",
        "counter",
        "Bytes given to the device; a chunk counts 64 at least.",
        |a| a.bytes as f64,
    ),
    ("catchment_agent_requests_waiting", "gauge", "Requests that wait for their turn.", |a| {
        a.waiting as f64
    }),
    ("catchment_agent_emptied_total", "counter", "How often none waited any more.", |a| {
        a.emptied as f64
    }),
    ("catchment_agent_queue_pairs", "gauge", "Queue pairs.", |a| a.queue_pairs as f64),
    ("catchment_agent_memory_bytes", "gauge", "Bytes of registered memory.", |a| {
        a.memory_bytes as f64
    }),
];

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the accounts of the applications of an agent of this name. Applications of one name are told apart
/// by their process.
#[must_use]
pub fn prometheus(agent: &str, accounts: &[Account]) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in METRICS {
        // Writing to a string never fails.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for account in accounts {
            let (agent, application) = (escaped(agent), escaped(&account.application));
            let (process, value) = (account.process, value(account));
            let labels =
                format!(r#"agent="{agent}",application="{application}",process="{process}""#);
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_what_is_written_and_labels_are_escaped() {
        let account = Account {
            application: "a\"b".to_owned(),
            process: 7,
            bytes: 123,
            ..Account::default()
        };
        let text = prometheus("agent0", &[account]);
        let line =
            r#"catchment_agent_bytes_total{agent="agent0",application="a\"b",process="7"} 123"#;
        assert!(text.lines().any(|one| one == line), "{text}");
        let page = include_str!("../../../docs/reference/metrics.md");
        for (name, kind, ..) in METRICS {
            assert!(page.contains(&format!("| `{name}` | {kind} |")), "{name} is not on the page");
        }
        let listed = page.matches("| `catchment_agent_").count();
        assert_eq!(listed, METRICS.len());
    }
}
