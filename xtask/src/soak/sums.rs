//! Checks that every frame is accounted for: in the last words of both processes, and over all restarts
//! with what is stored.
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Returns the summary that a process wrote when it ended, the last one of its log.
pub(crate) fn summary(log: &str) -> Result<Value> {
    let values = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut summaries = values.filter(|value| value["event"] == "summary");
    summaries.next().context("no summary in the log of a process that ended in order")
}

/// Checks a source's summary: each device has sent = delivered + dropped + lost, and lost nothing.
pub(crate) fn check_source(summary: &Value) -> Result<()> {
    each_device(summary, |device| {
        let [sent, delivered, dropped, lost] =
            ["sent", "delivered", "dropped_reconnect", "lost"].map(|what| count(device, what));
        let (sent, lost) = (sent?, lost?);
        ensure!(sent == delivered? + dropped? + lost, "the sum is wrong: {device}");
        ensure!(lost == 0, "{lost} frames are lost: {device}");
        Ok(())
    })
}

/// Checks a collector's summary: each device has numbered = received + skipped + lost, and lost nothing;
/// and what it received is what is stored beyond what it found. `found` and `stored` are frames of each
/// device, in the order of `devices`.
pub(crate) fn check_collector(
    summary: &Value,
    devices: &[String],
    found: &[u64],
    stored: &[u64],
) -> Result<()> {
    each_device(summary, |device| {
        let [numbered, received, skipped, lost] =
            ["numbered", "received", "skipped", "lost"].map(|what| count(device, what));
        let (received, lost) = (received?, lost?);
        ensure!(numbered? == received + skipped? + lost, "the sum is wrong: {device}");
        ensure!(lost == 0, "{lost} frames are lost: {device}");
        let place = devices.iter().position(|name| device["name"] == name.as_str());
        let place = place.with_context(|| format!("an unknown device: {device}"))?;
        let (found, stored) = (found[place], stored[place]);
        ensure!(
            found + received == stored,
            "{found} frames were there and {received} came, but {stored} are stored: {device}"
        );
        Ok(())
    })
}

fn each_device(summary: &Value, check: impl Fn(&Value) -> Result<()>) -> Result<()> {
    let devices = summary["devices"].as_array().context("a summary without devices")?;
    devices.iter().try_for_each(check)
}

fn count(device: &Value, what: &str) -> Result<u64> {
    let field = format!("frames_{what}");
    device[&field].as_u64().with_context(|| format!("no number {field} in {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn source(delivered: u64, lost: u64) -> Value {
        json!({"devices": [{
            "name": "cam0", "frames_sent": 10, "frames_delivered": delivered,
            "frames_dropped_reconnect": 2, "frames_lost": lost,
        }]})
    }

    fn collector(received: u64) -> Value {
        json!({"devices": [{
            "name": "cam0", "frames_numbered": 10, "frames_received": received,
            "frames_skipped": 3, "frames_lost": 0,
        }]})
    }

    #[test]
    fn the_last_summary_counts() {
        let log =
            "{\"event\":\"summary\",\"n\":1}\nwarning\n{\"event\":\"summary\",\"n\":2}\nnoise";
        assert_eq!(summary(log).unwrap()["n"], 2);
        assert!(summary("{\"event\":\"progress\"}").is_err());
    }

    #[test]
    fn a_difference_is_found() {
        check_source(&source(8, 0)).unwrap();
        for (summary, part) in [(source(7, 0), "sum is wrong"), (source(7, 1), "1 frames are lost")]
        {
            let error = check_source(&summary).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let check = |summary, found, stored| {
            check_collector(&summary, &["cam0".to_owned()], &[found], &[stored])
        };
        check(collector(7), 5, 12).unwrap();
        assert!(check(collector(6), 5, 12).is_err());
        let error = check(collector(7), 5, 13).unwrap_err().to_string();
        assert!(error.contains("5 frames were there and 7 came, but 13 are stored"), "{error}");
    }
}
