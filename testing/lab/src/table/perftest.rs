//! What perftest says of the kernel's RoCE.

use super::{LATENCY_ROUNDS, LIMIT, STREAM_BYTES, STREAM_TIME, Sample};
use crate::vm::guest::Guest;
use anyhow::{Context as _, Result};

/// Runs a program of perftest at `rxv1` and at `rxv0`, with the words behind its name. The index of
/// the RoCE v2 GID with an IPv4 address is that of the devices' tables.
const SCRIPT: &str = r#"
index() {
    for file in /sys/class/infiniband/$1/ports/1/gid_attrs/types/*; do
        at=${file##*/}
        case $(cat "$file" 2>&-)$(cat /sys/class/infiniband/$1/ports/1/gids/$at) in
            "RoCE v2"0000:0000:0000:0000:0000:ffff:*) echo "$at"; return ;;
        esac
    done
}
"$@" -d rxv1 -x "$(index rxv1)" > /dev/null 2>&1 &
# Nothing tells that it listens, except its port.
until ss -Hltn sport = 18515 | grep -q .; do sleep 0.1; done
"$@" -d rxv0 -x "$(index rxv0)" 127.0.0.1
"#;

/// Measures once: `--cpu_util` is from `/proc/stat`, of all processors.
pub(super) fn measure(guest: &Guest) -> Result<Sample> {
    let run = |words: &[&str]| -> Result<String> {
        let words = [&["sh", "-c", SCRIPT, "perftest"], words].concat();
        Ok(guest.run(&words, LIMIT)?.stdout)
    };
    let processors = guest.run(&["nproc"], LIMIT)?.stdout;
    let processors: f64 = processors.trim().parse().context("nproc")?;
    let (bytes, seconds) = (STREAM_BYTES.to_string(), STREAM_TIME.as_secs().to_string());
    let options = ["-F", "-m", "4096"];
    let stream = [
        "ib_write_bw",
        "-e",
        "--cpu_util",
        "-s",
        &bytes,
        "-D",
        &seconds,
    ];
    let said = run(&[&stream[..], &options].concat())?;
    // Size, iterations, peak, average in MiB/s, messages, processors.
    let [.., rate, _, work] = numbers(&said, STREAM_BYTES, 6)?[..] else {
        anyhow::bail!("six numbers");
    };
    let bytes_per_s = rate * f64::from(1 << 20);
    let rounds = LATENCY_ROUNDS.to_string();
    let latency = ["ib_write_lat", "-s", "64", "-n", &rounds];
    let said = run(&[&latency[..], &options].concat())?;
    // Size, iterations, least, most, typical, which is the median, and more.
    let typical = numbers(&said, 64, 5)?[4];
    Ok(Sample {
        bytes_per_s,
        cpu_s_per_gb: work / 100.0 * processors / (bytes_per_s / 1e9),
        latency_ns: typical * 1e3,
    })
}

/// The numbers of the line that begins with the size of messages; at least so many.
fn numbers(said: &str, size: usize, least: usize) -> Result<Vec<f64>> {
    let lines = said.lines().map(|line| {
        let numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        numbers.collect::<Vec<f64>>()
    });
    let mut lines = lines.filter(|numbers| numbers.len() >= least);
    lines
        .find(|numbers| numbers[0] == size as f64)
        .with_context(|| format!("perftest said nothing of {size} bytes: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_size_is_found() {
        let said = " Mtu : 4096[B]\n #bytes #iterations BW\n 64 1000 5.1 9.0 6.25 6.3 0.1 7 8\n";
        assert_eq!(numbers(said, 64, 5).unwrap()[4], 6.25);
        assert!(numbers(said, 65_536, 5).is_err());
        assert!(numbers(said, 64, 10).is_err());
    }
}
