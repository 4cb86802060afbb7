//! perftest's figures of the kernel's RoCE.
use super::{LATENCY_ROUNDS, LIMIT, STREAM_BYTES, Sample};
use crate::vm::guest::Guest;
use anyhow::{Context as _, Result};

/// Runs the program of perftest that its arguments name on `rxv1` and on `rxv0`, with the index of the
/// RoCE v2 GID with an IPv4 address from the device's table.
const SCRIPT: &str = include_str!("../../guest/perftest.sh");

/// WRITEs of a stream: some seconds on an emulated machine, so that the start does not matter.
pub(super) const STREAM_WRITES: usize = 6000;

/// How often to try to measure a stream. perftest counts cycles and measures their length, which
/// sometimes fails on an emulated clock: it then reports 0.
const TRIES: usize = 3;

/// Measures once, without its `--cpu_util`, which reports a third of a percent for busy processors.
pub(super) fn measure(guest: &Guest) -> Result<Sample> {
    let run = |words: &[&str]| -> Result<String> {
        let words = [&["sh", "-c", SCRIPT, "perftest"], words].concat();
        Ok(guest.run(&words, LIMIT)?.stdout)
    };
    let (bytes, writes) = (STREAM_BYTES.to_string(), STREAM_WRITES.to_string());
    let options = ["-F", "-m", "4096"];
    let stream = ["ib_write_bw", "-s", &bytes, "-n", &writes];
    let streams = (0..TRIES).map(|_| stream_of(&run(&[&stream[..], &options].concat())?));
    let (rate, cpu_s) = first_sound(streams)?;
    let bytes_moved = (STREAM_BYTES * STREAM_WRITES) as f64;
    let rounds = LATENCY_ROUNDS.to_string();
    let latency = ["ib_write_lat", "-s", "64", "-n", &rounds];
    let output = run(&[&latency[..], &options].concat())?;
    // Size, iterations, minimum, maximum, typical (the median), and more.
    let typical = numbers(&output, 64, 5)?[4];
    Ok(Sample {
        bytes_per_s: rate * f64::from(1 << 20),
        cpu_s_per_gb: cpu_s / (bytes_moved / 1e9),
        latency_ns: typical * 1e3,
        ..Sample::default()
    })
}

/// Rate in MiB a second, and processor time in seconds.
fn stream_of(output: &str) -> Result<(f64, f64)> {
    // Size, iterations, peak, average in MiB/s, messages.
    let rate = numbers(output, STREAM_BYTES, 5)?[3];
    Ok((rate, busy_s(output)?))
}

fn first_sound(mut streams: impl Iterator<Item = Result<(f64, f64)>>) -> Result<(f64, f64)> {
    let sound = |stream: &Result<(f64, f64)>| !matches!(stream, Ok((rate, _)) if *rate <= 0.0);
    let found = streams.find(sound);
    found.with_context(|| format!("perftest reported no data {TRIES} times"))?
}

fn busy_s(output: &str) -> Result<f64> {
    let mut lines = output.lines();
    let line = lines.find_map(|line| line.strip_prefix("busy "));
    let (ticks, hertz) = line
        .and_then(|line| line.split_once(" of "))
        .with_context(|| format!("no processor time: {output}"))?;
    Ok(ticks.parse::<f64>()? / hertz.parse::<f64>()?)
}

fn numbers(output: &str, size: usize, least: usize) -> Result<Vec<f64>> {
    let lines = output.lines().map(|line| {
        let numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        numbers.collect::<Vec<f64>>()
    });
    let mut lines = lines.filter(|numbers| numbers.len() >= least);
    lines
        .find(|numbers| numbers[0] == size as f64)
        .with_context(|| format!("perftest has no row of {size} bytes: {output}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_size_is_found() {
        let output = " Mtu : 4096[B]\n #bytes #iterations BW\n 64 1000 5.1 9.0 6.25 6.3 0.1 7 8\n";
        assert_eq!(numbers(output, 64, 5).unwrap()[4], 6.25);
        assert!(numbers(output, 65_536, 5).is_err());
        assert!(numbers(output, 64, 10).is_err());
    }

    #[test]
    fn a_stream_without_a_rate_is_measured_again() {
        let first = |rates: [f64; 2]| first_sound(rates.map(|rate| Ok((rate, 1.0))).into_iter());
        assert_eq!(first([0.0, 7.0]).unwrap(), (7.0, 1.0));
        assert!(first([0.0, 0.0]).is_err());
        let failed = [Err(anyhow::anyhow!("no device")), Ok((7.0, 1.0))];
        assert!(first_sound(failed.into_iter()).is_err(), "not a wrong clock");
    }

    #[test]
    fn processor_time_is_in_ticks() {
        assert_eq!(busy_s("x\nbusy 250 of 100\n").unwrap(), 2.5);
        assert!(busy_s("lazy 250 of 100").is_err());
    }
}
