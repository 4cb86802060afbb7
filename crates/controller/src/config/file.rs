//! The file: strict TOML, with the line of what is wrong.
use super::value::{parse_bytes, parse_queue, parse_rate, parse_time};
use super::{Allow, Class, ConfigError, Link, Path, Policy, Prefix, Settings, default_classes};
use crate::leader::{Leader, Unreachable};
use catchment_control::admission::Late;
use catchment_session::io::Address;
use serde::Deserialize;
use std::time::Duration;
use toml::Spanned;

/// A file that says all that can be said.
pub const EXAMPLE: &str = include_str!("../../example.toml");

const LEASE_NS: std::ops::RangeInclusive<u64> = 20_000_000..=10_000_000_000;
/// Of the lease of a leader.
const LEADER_NS: std::ops::RangeInclusive<u64> = SECOND_NS..=60 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 26;

type Text = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<Text>,
    policy: Option<Text>,
    slot: Option<Text>,
    lease: Option<Text>,
    chunk: Option<Text>,
    safe_sources: Option<Spanned<u32>>,
    #[serde(default)]
    link: Vec<LinkTable>,
    #[serde(default)]
    path: Vec<PathTable>,
    #[serde(default)]
    class: Vec<ClassTable>,
    #[serde(default)]
    allow: Vec<AllowTable>,
    leader: Option<LeaderTable>,
    admin: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    name: Text,
    capacity: Text,
    guard: Option<Text>,
    queue: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathTable {
    from: Option<Text>,
    to: Option<Text>,
    links: Spanned<Vec<Text>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTable {
    name: Text,
    deadline: Text,
    late: Option<Text>,
    share_max: Option<Spanned<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowTable {
    certificate: Text,
    devices: Option<Vec<Text>>,
    classes: Option<Spanned<Vec<Text>>>,
    rate_max: Option<Text>,
    weight: Option<Spanned<u32>>,
    small: Option<Text>,
    #[serde(default)]
    admin: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaderTable {
    etcd: Spanned<Vec<Text>>,
    key: Option<Text>,
    lease: Option<Text>,
    unreachable: Option<Text>,
}

/// The text, to tell lines.
#[derive(Clone, Copy)]
struct Source<'a>(&'a str);

type Parsed<T> = Result<T, ConfigError>;

impl Source<'_> {
    fn error(self, at: usize, what: String, remedy: impl Into<String>) -> ConfigError {
        let before = self.0.get(..at).unwrap_or(self.0);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        ConfigError { line, what, remedy: remedy.into() }
    }

    /// Says what is wrong with a value.
    fn wrong<T, D: std::fmt::Debug>(
        self,
        seen: &Spanned<D>,
        remedy: impl Into<String>,
    ) -> Parsed<T> {
        Err(self.error(seen.span().start, format!("{:?} cannot be used", seen.get_ref()), remedy))
    }

    fn read<T>(self, text: &Text, read: impl Fn(&str) -> Result<T, String>) -> Parsed<T> {
        read(text.get_ref()).or_else(|remedy| self.wrong(text, remedy))
    }

    fn read_or<T>(
        self,
        text: Option<&Text>,
        otherwise: T,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Parsed<T> {
        text.map_or(Ok(otherwise), |text| self.read(text, read))
    }

    /// Returns the index of a name among those that there are.
    fn find(self, name: &Text, known: &[String], what: &str) -> Parsed<usize> {
        let at = known.iter().position(|known| known == name.get_ref());
        let remedy = || format!("there is no such {what}; there are: {}", known.join(", "));
        at.map_or_else(|| self.wrong(name, remedy()), Ok)
    }

    /// Refuses a name that is there already.
    fn once(self, name: &Text, known: &[String], what: &str) -> Parsed<()> {
        if name.get_ref().is_empty() || known.contains(name.get_ref()) {
            return self.wrong(name, format!("give each {what} a name of its own"));
        }
        Ok(())
    }
}

pub(super) fn parse(text: &str, listen: &Address) -> Parsed<Settings> {
    let source = Source(text);
    let file: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.error(
            at,
            error.message().replace('\n', " "),
            "see the example in docs/guide/control.md",
        )
    })?;
    let links = links(source, &file)?;
    let paths = paths(source, &file, &links)?;
    let (classes, policy) = (classes(source, &file)?, policy(source, &file)?);
    check_drops(source, &file, policy)?;
    let allow = allow(source, &file, &classes)?;
    let between = |range: &std::ops::RangeInclusive<u64>, value: u64, what: &str| {
        if range.contains(&value) { Ok(value) } else { Err(what.to_owned()) }
    };
    let lease = |text: &str| between(&LEASE_NS, parse_time(text)?, "give 20ms to 10s");
    let chunk = |text: &str| between(&CHUNK_BYTES, parse_bytes(text)?, "give 16KiB to 64MiB");
    let address = |text: &str| text.parse::<Address>().map_err(|error| error.to_string());
    let safe_sources = match &file.safe_sources {
        Some(count) if *count.get_ref() == 0 => return source.wrong(count, "give at least 1"),
        Some(count) => *count.get_ref(),
        None => 16,
    };
    Ok(Settings {
        listen: source.read_or(file.listen.as_ref(), listen.clone(), address)?,
        policy,
        lease_ns: source.read_or(file.lease.as_ref(), 200_000_000, lease)?,
        chunk_bytes: source.read_or(file.chunk.as_ref(), 1 << 20, chunk)?,
        safe_sources,
        links,
        paths,
        classes,
        allow,
        admin: file.admin.as_ref().map(|text| source.read(text, address)).transpose()?,
        leader: file.leader.as_ref().map(|table| leader(source, table)).transpose()?,
    })
}

fn leader(source: Source<'_>, table: &LeaderTable) -> Parsed<Leader> {
    let endpoint = |text: &str| {
        let rest = text.strip_prefix("http://").filter(|rest| !rest.is_empty());
        let is_bare = rest.is_some_and(|rest| !rest.contains('/'));
        let remedy = "write http://HOST:PORT; to an etcd with TLS go through a proxy on this host";
        if is_bare { Ok(text.to_owned()) } else { Err(remedy.to_owned()) }
    };
    let endpoints = table.etcd.get_ref().iter().map(|text| source.read(text, endpoint));
    let endpoints: Vec<String> = endpoints.collect::<Parsed<_>>()?;
    if endpoints.is_empty() {
        return source.wrong(&table.etcd, "name at least one server of etcd");
    }
    let key = |text: &str| {
        let is_good = (1..=256).contains(&text.len());
        if is_good { Ok(text.to_owned()) } else { Err("give 1 to 256 bytes".to_owned()) }
    };
    let lease = |text: &str| match parse_time(text)? {
        ns if LEADER_NS.contains(&ns) && ns % SECOND_NS == 0 => Ok(Duration::from_nanos(ns)),
        _ => Err("give 1s to 60s, whole seconds, as etcd counts".to_owned()),
    };
    let unreachable = |text: &str| match text {
        "hold" => Ok(Unreachable::Hold),
        "step-down" => Ok(Unreachable::StepDown),
        _ => Err("write hold or step-down".to_owned()),
    };
    let otherwise = Duration::from_secs(2);
    Ok(Leader {
        endpoints,
        key: source.read_or(table.key.as_ref(), "/catchment/controller".to_owned(), key)?,
        lease: source.read_or(table.lease.as_ref(), otherwise, lease)?,
        unreachable: source.read_or(table.unreachable.as_ref(), Unreachable::Hold, unreachable)?,
    })
}

fn policy(source: Source<'_>, file: &File) -> Parsed<Policy> {
    let slot_bps = file.slot.as_ref().map(|slot| source.read(slot, parse_rate)).transpose()?;
    let Some(policy) = &file.policy else { return Ok(Policy::Deadline) };
    match (policy.get_ref().as_str(), slot_bps) {
        ("deadline", _) => Ok(Policy::Deadline),
        ("priority", Some(slot_bps)) => Ok(Policy::Priority { slot_bps }),
        ("fifo", Some(slot_bps)) => Ok(Policy::Fifo { slot_bps }),
        ("priority" | "fifo", None) => {
            source.wrong(policy, "add slot = \"10Gbit\", the rate of each grant")
        }
        _ => source.wrong(policy, "write deadline, priority or fifo"),
    }
}

fn links(source: Source<'_>, file: &File) -> Parsed<Vec<Link>> {
    let (mut links, mut names): (Vec<Link>, Vec<String>) = (Vec::new(), Vec::new());
    for table in &file.link {
        source.once(&table.name, &names, "link")?;
        names.push(table.name.get_ref().clone());
        links.push(Link {
            name: table.name.get_ref().clone(),
            capacity_bps: source.read(&table.capacity, parse_rate)?,
            guard_ns: source.read_or(table.guard.as_ref(), 100_000, parse_time)?,
            queue_bytes: table
                .queue
                .as_ref()
                .map(|queue| source.read(queue, parse_queue))
                .transpose()?,
        });
    }
    if links.is_empty() {
        let remedy = "add [[link]] with name and capacity, or use --bottleneck 20Gbit";
        return Err(source.error(0, "no [[link]]".to_owned(), remedy));
    }
    Ok(links)
}

fn paths(source: Source<'_>, file: &File, links: &[Link]) -> Parsed<Vec<Path>> {
    let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    if file.path.is_empty() {
        if let [_] = links {
            return Ok(vec![Path { from: None, to: None, links: vec![0] }]);
        }
        let remedy = "say with [[path]] which sources take which of them";
        return Err(source.error(0, format!("{} links and no [[path]]", links.len()), remedy));
    }
    let path = |table: &PathTable| {
        let mut taken = Vec::new();
        for name in table.links.get_ref() {
            let at = source.find(name, &names, "link")?;
            if taken.contains(&at) {
                return source.wrong(name, "name each link once");
            }
            taken.push(at);
        }
        if taken.is_empty() {
            return source.wrong(&table.links, "name at least one link");
        }
        let to = table.to.as_ref().map(|to| to.get_ref().clone()).filter(|to| to != "*");
        let from = table.from.as_ref().map(|from| source.read(from, prefix)).transpose()?;
        Ok(Path { from, to, links: taken })
    };
    file.path.iter().map(path).collect()
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let remedy = || "write addresses such as 10.1.0.0/16 or fd00::/8".to_owned();
    let (address, bits) = text.split_once('/').ok_or_else(remedy)?;
    let address: std::net::IpAddr = address.parse().map_err(|_| remedy())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u8>().ok().filter(|bits| *bits <= most).ok_or_else(remedy)?;
    Ok(Prefix { address, bits })
}

fn classes(source: Source<'_>, file: &File) -> Parsed<Vec<Class>> {
    if file.class.is_empty() {
        return Ok(default_classes());
    }
    let (mut classes, mut names): (Vec<Class>, Vec<String>) = (Vec::new(), Vec::new());
    for table in &file.class {
        source.once(&table.name, &names, "class")?;
        names.push(table.name.get_ref().clone());
        let late = |text: &str| match text {
            "keep" => Ok(Late::Keep),
            "demote" => Ok(Late::Demote),
            "drop" => Ok(Late::Drop),
            _ => Err("write keep, demote or drop".to_owned()),
        };
        let share_max_percent = match &table.share_max {
            Some(share) if *share.get_ref() > 100 => {
                return source.wrong(share, "give at most 100, percent");
            }
            Some(share) => *share.get_ref(),
            None => 100,
        };
        classes.push(Class {
            name: table.name.get_ref().clone(),
            deadline_ns: source.read(&table.deadline, parse_time)?,
            late: source.read_or(table.late.as_ref(), Late::Demote, late)?,
            share_max_percent,
        });
    }
    if classes.len() > 256 {
        return Err(source.error(0, format!("{} classes", classes.len()), "give at most 256"));
    }
    Ok(classes)
}

/// Refuses to drop late transfers where the policy knows no deadlines.
fn check_drops(source: Source<'_>, file: &File, policy: Policy) -> Parsed<()> {
    let drops = |class: &ClassTable| class.late.clone().filter(|late| late.get_ref() == "drop");
    match file.class.iter().find_map(drops) {
        Some(late) if policy != Policy::Deadline => {
            source.wrong(&late, "write policy = \"deadline\": others serve late ones in their turn")
        }
        Some(_) | None => Ok(()),
    }
}

fn allow(source: Source<'_>, file: &File, classes: &[Class]) -> Parsed<Vec<Allow>> {
    let names: Vec<String> = classes.iter().map(|class| class.name.clone()).collect();
    let one = |table: &AllowTable| {
        let devices = table.devices.as_deref().map_or_else(
            || vec!["*".to_owned()],
            |devices| devices.iter().map(|name| name.get_ref().clone()).collect(),
        );
        let mut may: Vec<usize> = match &table.classes {
            None => (0..names.len()).collect(),
            Some(list) if list.get_ref().is_empty() => {
                return source.wrong(list, "name at least one class");
            }
            Some(list) => {
                let found = list.get_ref().iter().map(|name| source.find(name, &names, "class"));
                found.collect::<Parsed<_>>()?
            }
        };
        may.sort_unstable();
        let weight = match &table.weight {
            Some(weight) if *weight.get_ref() == 0 => {
                return source.wrong(weight, "give at least 1");
            }
            Some(weight) => *weight.get_ref(),
            None => 1,
        };
        Ok(Allow {
            certificate: table.certificate.get_ref().clone(),
            devices,
            classes: may,
            rate_max_bps: table
                .rate_max
                .as_ref()
                .map(|rate| source.read(rate, parse_rate))
                .transpose()?,
            weight,
            small_bps: source.read_or(table.small.as_ref(), 0, parse_rate)?,
            is_admin: table.admin,
        })
    };
    file.allow.iter().map(one).collect()
}
