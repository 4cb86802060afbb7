//! `catchment explain stream`: what the frames of a device wait for, as the transmission controller says.
use crate::args::ExplainStreamArgs;
use crate::control::{ask_controller, rate};
use crate::failure::{Code, Failure};
use crate::output::{self, units};
use anyhow::anyhow;
use catchment::session::names::printable;
use catchment::session::registration::{Answer, Request};
use catchment_controller::{BeforeStatus, RateStatus, StreamStatus, TransferState, TransferStatus};
use std::time::Duration;

/// A source that says nothing for this long is worth a word.
const SILENT: Duration = Duration::from_secs(2);
/// A link that has less than a fiftieth left is full.
const FULL_PART: u64 = 50;

pub(super) fn run(args: &ExplainStreamArgs) -> Result<(), Failure> {
    let request = Request::Explain { device: args.name.clone() };
    let answer = ask_controller(&args.controller, &args.security, &request)?;
    let Answer::Explained { streams } = answer else {
        let error = anyhow!("the controller answers what was not asked");
        return Err(Failure::new(Code::Unreachable, error));
    };
    let told: Vec<StreamStatus> = serde_json::from_value(streams.clone()).map_err(|error| {
        Failure::new(Code::Unreachable, error).hint("the controller is of another version")
    })?;
    if args.json {
        output::print_json(&streams)?;
    } else {
        output::print(&told.iter().map(|stream| text(stream) + "\n").collect::<String>())?;
    }
    if told.is_empty() {
        let error =
            anyhow!("no source with a device {} is registered at {}", args.name, args.controller);
        let hint = "`catchment control status` lists the sources and their devices";
        return Err(Failure::new(Code::Failed, error).hint(hint));
    }
    Ok(())
}

/// Returns what is told of a stream, in a few sentences.
pub(crate) fn text(stream: &StreamStatus) -> String {
    let StreamStatus { source, device, class, notes, .. } = stream;
    let mut said = vec![match &stream.transfer {
        None => "nothing of it waits or is sent".to_owned(),
        Some(transfer) => of_transfer(transfer, class),
    }];
    said.extend(stream.rate.as_ref().map(of_rate));
    said.extend(notes.iter().map(|note| printable(note, 512)));
    if stream.carried {
        said.push("UDP does not pass: its messages go over a connection".to_owned());
    }
    let silent = Duration::from_millis(stream.silent_ms);
    if silent >= SILENT {
        said.push(format!(
            "its source has said nothing for {:.1} s: after a lease without an answer it sends at its safe rate, or \
             not at all, as its --fallback says",
            silent.as_secs_f64()
        ));
    }
    let [device, class] = [device, class].map(|name| printable(name, 256));
    format!("{device} of source {source}, class {class}: {}", said.join("; "))
}

/// Returns whether a periodic device may send without asking.
fn of_rate(told: &RateStatus) -> String {
    match told {
        RateStatus { rate_bps, .. } if *rate_bps > 0 => {
            format!("it has {} without asking", rate(*rate_bps))
        }
        RateStatus { wanted_bps, could_bps, .. } if could_bps >= wanted_bps => format!(
            "it waits for {} without asking, until windows leave room; its frames ask meanwhile",
            rate(*wanted_bps)
        ),
        RateStatus { wanted_bps, could_bps, .. } => format!(
            "it wants {} without asking and could have {}: its frames ask",
            rate(*wanted_bps),
            rate(*could_bps)
        ),
    }
}

fn of_transfer(transfer: &TransferStatus, class: &str) -> String {
    let mut said = Vec::new();
    match transfer.state {
        TransferState::Waiting => {
            said.push(format!("waiting {}: {}", ms(transfer.age_ms), link(transfer)));
            if !transfer.before.is_empty() {
                said.push(format!("before it {}", before(transfer, class)));
            }
            said.push(format!("starts in about {}", ms(transfer.starts_in_ms)));
        }
        TransferState::Granted if transfer.starts_in_ms > 0.0 => {
            said.push(format!(
                "granted {}: starts in {}",
                rate(transfer.rate_bps),
                ms(transfer.starts_in_ms)
            ));
        }
        TransferState::Granted => {
            let left = units::bytes(transfer.left_bytes as f64);
            said.push(format!("sending at {}, {left} left", rate(transfer.rate_bps)));
        }
        TransferState::Stopping => {
            said.push("its window is over, and its source has not said how far it is".to_owned());
        }
    }
    if transfer.is_over_share {
        said.push("it has had its share: others of its class go first".to_owned());
    }
    if transfer.is_lowered {
        said.push("its class has had its share, and goes with the next one".to_owned());
    }
    if transfer.spare_ms < 0.0 {
        said.push(format!("{} too late for its deadline", ms(-transfer.spare_ms)));
    }
    if transfer.is_demoted {
        said.push("so it goes behind all that can be in time".to_owned());
    }
    said.join("; ")
}

fn link(transfer: &TransferStatus) -> String {
    let (granted, capacity) = (transfer.link_granted_bps, transfer.link_capacity_bps);
    let name = printable(&transfer.link, 256);
    let of = format!("{} of {}", rate(granted), rate(capacity));
    if granted.saturating_add(capacity / FULL_PART) >= capacity {
        format!("link {name} is full ({of})")
    } else {
        // For example while a window that nobody uses any more runs out.
        format!("link {name} has {of} granted")
    }
}

/// Returns how many go first, by class, and how much that is.
fn before(transfer: &TransferStatus, own: &str) -> String {
    let one = |BeforeStatus { class, transfers, .. }: &BeforeStatus| {
        let older = if class == own { "older " } else { "" };
        let events = if *transfers == 1 { "event" } else { "events" };
        format!("{transfers} {older}{events} of class {}", printable(class, 256))
    };
    let parts: Vec<String> = transfer.before.iter().map(one).collect();
    let bytes: u64 = transfer.before.iter().map(|before| before.bytes).sum();
    format!("{}, {}", parts.join(" and "), units::bytes(bytes as f64))
}

fn ms(ms: f64) -> String {
    units::latency(Some(ms * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer() -> TransferStatus {
        let before = |class: &str, transfers| BeforeStatus {
            class: class.to_owned(),
            transfers,
            bytes: transfers * 360_000_000,
        };
        TransferStatus {
            state: TransferState::Waiting,
            age_ms: 412.3,
            left_bytes: 373_248_000,
            rate_bps: 0,
            link: "uplink-3".to_owned(),
            link_granted_bps: 19_990_000_000,
            link_capacity_bps: 20_000_000_000,
            before: vec![before("tolerant", 3)],
            starts_in_ms: 460.0,
            spare_ms: -90.2,
            is_demoted: false,
            is_over_share: false,
            is_lowered: false,
        }
    }

    #[test]
    fn a_waiting_stream_is_explained_in_one_sentence() {
        let said = of_transfer(&transfer(), "tolerant");
        let expected = "waiting 412 ms: link uplink-3 is full (20.0 Gbit/s of 20.0 Gbit/s); before it 3 older events \
                        of class tolerant, 1.08 GB; starts in about 460 ms; 90.2 ms too late for its deadline";
        assert_eq!(said, expected);
    }

    #[test]
    fn a_periodic_stream_hears_which_rate_it_has_or_could_have() {
        let said = |rate_bps, could_bps| {
            of_rate(&RateStatus { wanted_bps: 100_000_000, rate_bps, could_bps })
        };
        assert_eq!(said(100_000_000, 900_000_000), "it has 100.0 Mbit/s without asking");
        assert!(said(0, 900_000_000).starts_with("it waits for 100.0 Mbit/s"));
        let could =
            "it wants 100.0 Mbit/s without asking and could have 60.0 Mbit/s: its frames ask";
        assert_eq!(said(0, 60_000_000), could);
    }

    #[test]
    fn what_a_controller_says_reaches_the_terminal_as_text_only() {
        let stream = StreamStatus {
            source: 7,
            address: None,
            carried: true,
            certificate: None,
            device: "cam0".to_owned(),
            class: "tolerant".to_owned(),
            notes: vec!["device cam0 may not claim class urgent\u{1b}[31m".to_owned()],
            rate: None,
            silent_ms: 7_300,
            transfer: None,
        };
        let said = text(&stream);
        assert!(!said.contains('\u{1b}'), "{said:?}");
        let begins = "cam0 of source 7, class tolerant: nothing of it waits or is sent; device cam0 may not claim";
        assert!(said.starts_with(begins), "{said}");
        assert!(said.contains("said nothing for 7.3 s"), "{said}");
    }
}
