//! What an agent and a transmission controller say, in the text format that Prometheus reads (version 0.0.4).
use catchment::observe::metrics;
use catchment::observe::prometheus::table;
use catchment_agent::protocol::{Account, Processor, Rounds};
use catchment_controller::{ClassStatus, LinkStatus, SourceStatus, Status};

metrics! { APPLICATION of |a: &Account|
    gauge "catchment_agent_weight" = a.weight => "Weight of the policy.";
    gauge "catchment_agent_share" = a.share =>
        "Part of the device while all have something to send.";
    gauge "catchment_agent_rate_bytes_per_second" = a.rate_bytes_per_s =>
        "Rate agreed with other hosts; 0 without.";
    counter "catchment_agent_requests_total" = a.requests as f64 =>
        "Requests given, receives not counted.";
    counter "catchment_agent_requests_done_total" = a.done as f64 =>
        "Requests done, failed ones included.";
    counter "catchment_agent_requests_failed_total" = a.failed as f64 =>
        "Requests that failed or were flushed.";
    counter "catchment_agent_entries_refused_total" = a.refused as f64 =>
        "Entries that were no request, or not one of its own.";
    counter "catchment_agent_chunks_total" = a.chunks as f64 => "Chunks given to the device.";
    counter "catchment_agent_bytes_total" = a.bytes as f64 =>
        "Bytes given to the device; a chunk counts 64 at least.";
    counter "catchment_agent_cost_bytes_total" = a.cost_bytes as f64 =>
        "What these cost, in bytes: shares and rates are of these.";
    gauge "catchment_agent_requests_waiting" = a.waiting as f64 =>
        "Requests that wait for their turn.";
    counter "catchment_agent_waited_seconds_total" = seconds(a.waited_ns) =>
        "How long requests have waited for their turn, added up.";
    counter "catchment_agent_emptied_total" = a.emptied as f64 => "How often none waited any more.";
    gauge "catchment_agent_queue_pairs" = a.queue_pairs as f64 => "Queue pairs.";
    gauge "catchment_agent_memory_bytes" = a.memory_bytes as f64 =>
        "Bytes of memory chunks and of registered memory of its own.";
    gauge "catchment_agent_memory_chunks" = a.memory_chunks as f64 => "Memory chunks.";
    counter "catchment_agent_registrations_total" = a.registrations as f64 =>
        "Regions registered at the device; those in memory chunks are not.";
}

metrics! { PROCESSOR of |p: &Processor|
    counter "catchment_agent_take_seconds_total" = seconds(p.take_ns) =>
        "The engine's time for requests out of the applications' rings.";
    counter "catchment_agent_schedule_seconds_total" = seconds(p.schedule_ns) =>
        "The engine's time for whose chunk is next.";
    counter "catchment_agent_post_seconds_total" = seconds(p.post_ns) =>
        "The engine's time for chunks to queue pairs of the device.";
    counter "catchment_agent_complete_seconds_total" = seconds(p.complete_ns) =>
        "The engine's time for completions to the applications.";
    counter "catchment_agent_command_seconds_total" = seconds(p.command_ns) =>
        "The engine's time for what threads of applications and other hosts ask.";
    counter "catchment_agent_look_seconds_total" = seconds(p.look_ns) =>
        "The engine's time for looks that found nothing, and for falling asleep.";
    counter "catchment_agent_engine_seconds_total" = seconds(p.engine_ns) =>
        "Processor time of the engine, the thread that moves requests.";
    counter "catchment_agent_process_seconds_total" = seconds(p.process_ns) =>
        "Processor time of all threads of the agent.";
}

metrics! { SENDING of |both: &(u64, u64)|
    gauge "catchment_agent_send_bytes_per_second" = both.0 as f64 =>
        "What the device sends, by the policy.";
    gauge "catchment_agent_working_bytes_per_second" = both.1 as f64 =>
        "What rates are agreed out of: less than the policy says where applications were not served what was agreed.";
}

metrics! { CONTROLLER of |s: &Status|
    gauge "catchment_control_uptime_seconds" = s.uptime_s => "Time since the controller started.";
    gauge "catchment_control_term" = s.term.into() => "Its term; sources obey the highest.";
    gauge "catchment_control_superseded" = f64::from(u8::from(s.superseded)) =>
        "1 once a source knows a higher term, else 0.";
    gauge "catchment_control_sources" = s.sources.len() as f64 => "Sources that are registered.";
    counter "catchment_control_datagrams_opened_total" = s.datagrams.opened as f64 =>
        "Datagrams with the right code.";
    counter "catchment_control_datagrams_sent_total" = s.datagrams.sent as f64 =>
        "Datagrams sent, without hints.";
    counter "catchment_control_hints_total" = s.datagrams.hints as f64 =>
        "Hints that a source should register.";
    counter "catchment_control_datagrams_malformed_total" = s.datagrams.malformed as f64 =>
        "Datagrams of no known form.";
    counter "catchment_control_datagrams_unknown_total" = s.datagrams.unknown as f64 =>
        "Datagrams of unknown sources.";
    counter "catchment_control_datagrams_forged_total" = s.datagrams.forged as f64 =>
        "Datagrams without the right code.";
    counter "catchment_control_datagrams_replayed_total" = s.datagrams.replayed as f64 =>
        "Datagrams that came before.";
}

metrics! { LINK of |link: &LinkStatus|
    gauge "catchment_control_link_capacity_bits_per_second" = link.capacity_bps as f64 =>
        "Payload that the link is said to carry.";
    gauge "catchment_control_link_working_bits_per_second" = link.working_bps as f64 =>
        "What is granted of the link at most: less than it is said to carry after losses.";
    gauge "catchment_control_link_granted_bits_per_second" = link.granted_bps as f64 =>
        "The rates of all that may be sent over it now.";
}

metrics! { CLASS of |class: &ClassStatus|
    gauge "catchment_control_transfers_waiting" = class.waiting as f64 =>
        "Transfers that wait for a window.";
    gauge "catchment_control_transfers_granted" = class.granted as f64 =>
        "Transfers that have a window.";
    counter "catchment_control_transfers_on_time_total" = class.on_time as f64 =>
        "Transfers sent in time.";
    counter "catchment_control_transfers_late_total" = class.late as f64 => "Transfers sent late.";
    counter "catchment_control_transfers_dropped_total" = class.dropped as f64 =>
        "Transfers dropped as late.";
}

metrics! { SOURCE of |source: &SourceStatus|
    gauge "catchment_control_source_waiting" = source.waiting as f64 =>
        "Transfers of the source that wait.";
    gauge "catchment_control_source_granted_bits_per_second" = source.granted_bps as f64 =>
        "The sum of the source's windows and of the rates of its periodic devices.";
    gauge "catchment_control_source_rate_devices" = source.rates as f64 =>
        "Periodic devices of the source that have a rate.";
    gauge "catchment_control_source_rate_bits_per_second" = source.rates_bps as f64 =>
        "The sum of the rates of the source's periodic devices.";
    gauge "catchment_control_source_silent_seconds" = source.silent_ms as f64 / 1e3 =>
        "Time since the source's last datagram.";
}

/// Returns the accounts of the applications of an agent of this name, what it can send where rates are agreed, and its
/// processor time. Applications of one name are told apart by their process.
pub(crate) fn of_agent(
    agent: &str,
    accounts: &[Account],
    (rounds, processor): (Option<&Rounds>, Option<&Processor>),
) -> String {
    let applications = table(APPLICATION, accounts, |account| {
        vec![
            ("agent", agent.to_owned()),
            ("application", account.application.clone()),
            ("process", account.process.to_string()),
        ]
    });
    let sending = rounds.and_then(|one| one.send_bytes_per_s.zip(one.working_bytes_per_s));
    let sending = sending.map_or_else(String::new, |both| {
        table(SENDING, &[both], |_| vec![("agent", agent.to_owned())])
    });
    let own = processor.map_or_else(String::new, |processor| {
        table(PROCESSOR, std::slice::from_ref(processor), |_| vec![("agent", agent.to_owned())])
    });
    applications + &sending + &own
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Returns how a controller stands.
pub(crate) fn of_controller(status: &Status) -> String {
    let own = table(CONTROLLER, std::slice::from_ref(status), |_| Vec::new());
    let links = table(LINK, &status.links, |link| vec![("link", link.name.clone())]);
    let classes = table(CLASS, &status.classes, |class| vec![("class", class.name.clone())]);
    let sources = table(SOURCE, &status.sources, |source| {
        let certificate = source.certificate.clone().unwrap_or_default();
        vec![("source", source.source.to_string()), ("certificate", certificate)]
    });
    [own, links, classes, sources].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_controller::DatagramStatus;

    const PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

    /// Every metric is on the page with its kind, and the page has no other of these.
    fn compare(text: &str, prefix: &str) {
        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let kinds: Vec<(&str, &str)> = kinds.filter_map(|line| line.split_once(' ')).collect();
        for (name, kind) in &kinds {
            assert!(name.starts_with(prefix), "{name}");
            assert!(PAGE.contains(&format!("| `{name}` | {kind} |")), "{name} is not on the page");
        }
        assert_eq!(PAGE.matches(&format!("| `{prefix}")).count(), kinds.len());
    }

    #[test]
    fn the_page_lists_what_an_agent_says_and_labels_are_escaped() {
        let account = Account {
            application: "a\"b".to_owned(),
            process: 7,
            bytes: 123,
            ..Account::default()
        };
        let processor = Processor { post_ns: 1_500_000_000, ..Processor::default() };
        let rounds = Rounds {
            send_bytes_per_s: Some(2_000_000_000),
            working_bytes_per_s: Some(1_500_000_000),
            ..Rounds::default()
        };
        let text = of_agent("agent0", &[account], (Some(&rounds), Some(&processor)));
        let working = r#"catchment_agent_working_bytes_per_second{agent="agent0"} 1500000000"#;
        assert!(text.lines().any(|one| one == working), "{text}");
        let line =
            r#"catchment_agent_bytes_total{agent="agent0",application="a\"b",process="7"} 123"#;
        assert!(text.lines().any(|one| one == line), "{text}");
        compare(&text, "catchment_agent_");
    }

    #[test]
    fn the_page_lists_what_a_controller_says() {
        let status = Status {
            term: 3,
            uptime_s: 2.5,
            lease_ms: 200,
            superseded: false,
            links: vec![LinkStatus {
                name: "up\"link".to_owned(),
                capacity_bps: 20_000_000_000,
                working_bps: 15_000_000_000,
                granted_bps: 10_000_000_000,
            }],
            classes: vec![ClassStatus {
                name: "urgent".to_owned(),
                waiting: 1,
                granted: 2,
                on_time: 30,
                late: 4,
                dropped: 5,
            }],
            sources: vec![SourceStatus {
                source: 7,
                address: None,
                carried: false,
                certificate: Some("cam".to_owned()),
                devices: Vec::new(),
                waiting: 1,
                granted_bps: 5,
                rates: 2,
                rates_bps: 4,
                silent_ms: 1500,
            }],
            datagrams: DatagramStatus {
                opened: 9,
                sent: 8,
                hints: 7,
                malformed: 6,
                unknown: 5,
                forged: 4,
                replayed: 3,
            },
        };
        let text = of_controller(&status);
        for line in [
            "catchment_control_term 3",
            "catchment_control_datagrams_forged_total 4",
            r#"catchment_control_link_granted_bits_per_second{link="up\"link"} 10000000000"#,
            r#"catchment_control_link_working_bits_per_second{link="up\"link"} 15000000000"#,
            r#"catchment_control_transfers_late_total{class="urgent"} 4"#,
            r#"catchment_control_transfers_dropped_total{class="urgent"} 5"#,
            r#"catchment_control_source_rate_bits_per_second{source="7",certificate="cam"} 4"#,
            r#"catchment_control_source_silent_seconds{source="7",certificate="cam"} 1.5"#,
        ] {
            assert!(text.lines().any(|one| one == line), "no {line}: {text}");
        }
        compare(&text, "catchment_control_");
    }
}
