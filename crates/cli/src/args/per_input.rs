//! Which options of `catchment send` belong to which input: an option belongs to the `--input`
//! before it; before the first one it holds for all.
use super::Rate;
use catchment::format::FormatWish;
use catchment::session::names::DeviceName;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputArgs {
    pub(crate) input: OsString,
    pub(crate) device: DeviceName,
    pub(crate) format: FormatWish,
    pub(crate) rate: Option<Rate>,
    pub(crate) frames: Option<u64>,
    pub(crate) repeat: bool,
    pub(crate) every_frame: bool,
}

/// Reads them from clap's matches; `command` formats errors as clap's own.
pub(super) fn read(
    matches: &ArgMatches,
    mut command: Command,
) -> Result<Vec<InputArgs>, clap::Error> {
    each(matches).map_err(|text| command.error(ErrorKind::ValueValidation, text))
}

fn each(matches: &ArgMatches) -> Result<Vec<InputArgs>, String> {
    let inputs: Vec<OsString> = values(matches, "input").map(|(_, value)| value).collect();
    let starts: Vec<usize> = matches.indices_of("input").into_iter().flatten().collect();
    let devices: Vec<String> = values(matches, "device").map(|(_, value)| value).collect();
    let names = device_names(&inputs, &devices)?;
    let formats = Grouped::new(values::<FormatWish>(matches, "format"), &starts);
    let rates = Grouped::new(values::<Rate>(matches, "rate"), &starts);
    let frames = Grouped::new(values::<u64>(matches, "frames"), &starts);
    let repeats = Grouped::new(values::<bool>(matches, "repeat"), &starts);
    let every = Grouped::new(values::<bool>(matches, "every_frame"), &starts);
    let one = |(i, (input, device)): (usize, (OsString, DeviceName))| InputArgs {
        input,
        device,
        format: formats.of(i).unwrap_or_default(),
        rate: rates.of(i),
        frames: frames.of(i),
        repeat: repeats.of(i).unwrap_or(false),
        every_frame: every.of(i).unwrap_or(false),
    };
    let each: Vec<InputArgs> = inputs.into_iter().zip(names).enumerate().map(one).collect();
    each.iter().try_for_each(check_loop)?;
    Ok(each)
}

fn check_loop(one: &InputArgs) -> Result<(), String> {
    let input = one.input.to_string_lossy();
    let stdin = ["-", "raw:-", "y4m:-"].contains(&input.as_ref());
    if one.repeat && stdin {
        return Err(format!(
            "--loop with --input {input}: standard input cannot be read again; omit --loop, or give a file"
        ));
    }
    Ok(())
}

/// The values of an option with their places in the command line.
fn values<'a, T: Clone + Send + Sync + 'static>(
    matches: &'a ArgMatches,
    name: &str,
) -> impl Iterator<Item = (usize, T)> + use<'a, T> {
    let places = matches.indices_of(name).into_iter().flatten();
    let values = matches.get_many::<T>(name).into_iter().flatten().cloned();
    places.zip(values)
}

/// The values of an option by input.
struct Grouped<T> {
    for_all: Option<T>,
    for_one: BTreeMap<usize, T>,
}

impl<T: Clone> Grouped<T> {
    fn new(values: impl Iterator<Item = (usize, T)>, starts: &[usize]) -> Self {
        let mut grouped = Self { for_all: None, for_one: BTreeMap::new() };
        for (place, value) in values {
            match starts.partition_point(|start| *start < place) {
                0 => grouped.for_all = Some(value),
                inputs_before => drop(grouped.for_one.insert(inputs_before - 1, value)),
            }
        }
        grouped
    }

    fn of(&self, input: usize) -> Option<T> {
        self.for_one.get(&input).or(self.for_all.as_ref()).cloned()
    }
}

fn device_names(inputs: &[OsString], devices: &[String]) -> Result<Vec<DeviceName>, String> {
    if !devices.is_empty() && devices.len() != inputs.len() {
        return Err(format!(
            "{} --input and {} --device: give each --input its --device, or none",
            inputs.len(),
            devices.len()
        ));
    }
    let given = devices.iter().cloned();
    let names: Vec<String> = if devices.is_empty() {
        inputs.iter().enumerate().map(|(i, input)| default_name(i, input)).collect()
    } else {
        given.collect()
    };
    let mut seen = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        if let Some(first) = seen.insert(name, i) {
            return Err(format!(
                "inputs {} and {} are both device {name:?}: give each a name of its own with \
                 --device",
                first + 1,
                i + 1
            ));
        }
    }
    let parsed = names.iter().map(|name| name.parse());
    parsed
        .collect::<Result<_, _>>()
        .map_err(|error: catchment::session::names::DeviceNameError| error.to_string())
}

/// `/clips/front door.mp4` is `front-door`; what has no file name is `camN`.
fn default_name(number: usize, input: &OsStr) -> String {
    let text = input.to_string_lossy();
    let no_file = text == "-" || text.contains("://") || text.starts_with("synthetic");
    let stem = Path::new(input).file_stem().filter(|_| !no_file);
    let name: String =
        stem.map(|stem| stem.to_string_lossy().chars().map(allowed).collect()).unwrap_or_default();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() {
        return format!("cam{number}");
    }
    name.chars().take(64).collect()
}

fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, Command};
    use super::*;

    fn parse(words: &str) -> Result<Vec<InputArgs>, String> {
        let words: Vec<&str> = ["catchment", "send"]
            .into_iter()
            .chain(words.split_whitespace())
            .chain(["127.0.0.1:1"])
            .collect();
        let parsed = Arguments::parse_words(&words).map_err(|e| e.to_string())?;
        let Command::Send(send) = parsed.command else {
            panic!("{words:?} is no send");
        };
        Ok(send.each)
    }

    #[test]
    fn options_belong_to_the_input_before_them_or_to_all() {
        let each = parse(
            "--rate 10 --input a.mp4 --frames 3 --input b.mp4 --rate max --loop --input c.mp4",
        )
        .unwrap();
        let ten = Rate::Fps("10".parse().unwrap());
        assert_eq!(each[0].rate, Some(ten));
        assert_eq!(each[0].frames, Some(3));
        assert_eq!(each[1].rate, Some(Rate::Max));
        assert!(each[1].repeat && !each[0].repeat && !each[2].repeat);
        let every = parse("--input a.mp4 --every-frame --input b.mp4").unwrap();
        assert!(every[0].every_frame && !every[1].every_frame);
        assert_eq!((each[2].rate, each[2].frames), (Some(ten), None));
    }

    #[test]
    fn devices_are_named_by_order_or_by_file() {
        let named = |words| -> Vec<String> {
            parse(words).unwrap().iter().map(|one| one.device.to_string()).collect()
        };
        assert_eq!(named("--device x --input a.mp4 --input b.mp4 --device y"), ["x", "y"]);
        assert_eq!(
            named("--input /v/a.b.mp4 --input - --input rtsp://h/s --input synthetic:64x48"),
            ["a.b", "cam1", "cam2", "cam3"]
        );
    }

    #[test]
    fn wrong_names_are_usage_errors() {
        for (words, expected) in [
            ("--input a --input b --device x", "2 --input and 1 --device"),
            ("--input v/a.mp4 --input w/a.mp4", "both device \"a\""),
            ("--input a --device ../x", "../x"),
            ("--input a --device=-x", "\"-x\" starts with a hyphen"),
            ("--loop --input a --input -", "--loop with --input -"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
