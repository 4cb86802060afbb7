//! What perftest says of the kernel's RoCE.

use super::{LATENCY_ROUNDS, LIMIT, STREAM_BYTES, Sample};
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
busy() {
    read -r _ user nice system _ _ irq softirq _ < /proc/stat
    echo $((user + nice + system + irq + softirq))
}
"$@" -d rxv1 -x "$(index rxv1)" > /tmp/perftest 2>&1 &
# Nothing tells that it listens, except its port.
until ss -Hltn sport = 18515 | grep -q .; do
    kill -0 $! 2>&- || { cat /tmp/perftest; exit 1; }
    sleep 0.1
done
before=$(busy)
"$@" -d rxv0 -x "$(index rxv0)" 127.0.0.1
echo "busy $(($(busy) - before)) of $(getconf CLK_TCK)"
"#;

/// WRITEs of a stream: some seconds of an emulated machine, beside which the start is short.
pub(super) const STREAM_WRITES: usize = 6000;

/// Measures once. Its own `--cpu_util` is not used: it says a third of a percent of processors that are
/// busy.
pub(super) fn measure(guest: &Guest) -> Result<Sample> {
    let run = |words: &[&str]| -> Result<String> {
        let words = [&["sh", "-c", SCRIPT, "perftest"], words].concat();
        Ok(guest.run(&words, LIMIT)?.stdout)
    };
    let (bytes, writes) = (STREAM_BYTES.to_string(), STREAM_WRITES.to_string());
    let options = ["-F", "-m", "4096"];
    let stream = ["ib_write_bw", "-s", &bytes, "-n", &writes];
    let said = run(&[&stream[..], &options].concat())?;
    // Size, iterations, peak, average in MiB/s, messages.
    let rate = numbers(&said, STREAM_BYTES, 5)?[3];
    let bytes_moved = (STREAM_BYTES * STREAM_WRITES) as f64;
    let rounds = LATENCY_ROUNDS.to_string();
    let latency = ["ib_write_lat", "-s", "64", "-n", &rounds];
    let cpu_s = busy_s(&said)?;
    let said = run(&[&latency[..], &options].concat())?;
    // Size, iterations, least, most, typical, which is the median, and more.
    let typical = numbers(&said, 64, 5)?[4];
    Ok(Sample {
        bytes_per_s: rate * f64::from(1 << 20),
        cpu_s_per_gb: cpu_s / (bytes_moved / 1e9),
        latency_ns: typical * 1e3,
        ..Sample::default()
    })
}

/// Processor time of the whole guest while the client ran.
fn busy_s(said: &str) -> Result<f64> {
    let mut lines = said.lines();
    let line = lines.find_map(|line| line.strip_prefix("busy "));
    let (ticks, hertz) = line
        .and_then(|line| line.split_once(" of "))
        .with_context(|| format!("no processor time: {said}"))?;
    Ok(ticks.parse::<f64>()? / hertz.parse::<f64>()?)
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

    #[test]
    fn processor_time_is_in_ticks() {
        assert_eq!(busy_s("x\nbusy 250 of 100\n").unwrap(), 2.5);
        assert!(busy_s("lazy 250 of 100").is_err());
    }
}
