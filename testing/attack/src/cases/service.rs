//! Part 4: what one source can take of a collector, and what builds say of themselves.
use super::{Case, quick, slow};
use crate::host::Host;
use crate::host::place::User;
use crate::host::process::{Process, pass};
use crate::learned::{Learned, learn};
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked, newcomer};
use crate::wire::relay::Relay;
use anyhow::{Context as _, Result};
use object::Object as _;
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick("4.hello-5mb", "A Hello of 5 MB costs little memory and no directories", |h, n| {
        forged(h, n, hello_5mb)
    }),
    quick(
        "4.names-65536",
        "A session with as many names as it can have shuts nobody out",
        |h, n| forged(h, n, many_names),
    ),
    quick(
        "4.devices-limit",
        "Devices of one source are limited to 4,096 unless asked otherwise",
        |h, n| forged(h, n, limit),
    ),
    quick("4.refused-leaves-nothing", "A refused Hello leaves nothing", |h, n| {
        forged(h, n, refused)
    }),
    quick("4.first-frame", "Directories are made at the first frame", |h, n| {
        forged(h, n, no_frame)
    }),
    quick("4.jump", "A jump of packet numbers is refused and binds no name", |h, n| {
        attacked(h, n, &Setup::over("shm"), jump)
    }),
    slow(
        "4.jump-restart",
        "A jump of packet numbers binds no name over restarts either",
        |h, n| attacked(h, n, &Setup::over("shm"), jump_restart),
    ),
    quick("4.garbage", "Bytes that are no message disturb nobody", |h, n| {
        attacked(h, n, &Setup::over("shm"), |scene| {
            let args = json!({ "address": scene.address, "count": 20 });
            let found = scene.attack(User::Other, "garbage", &args)?;
            let (held, text) = newcomer(scene, "later")?;
            Ok((held, format!("{} messages; {text}", found["sent"])))
        })
    }),
    quick("4.silent", "Connections that never finish their handshake keep nobody out", |h, n| {
        attacked(h, n, &Setup::over("shm"), |scene| {
            let args =
                json!({ "address": scene.address, "count": 2000, "first": "", "seconds": 40.0 });
            let before = scene.collector.usage().fds;
            scene.beside((User::Other, "connections", &args), |scene| {
                let (held, text) = newcomer(scene, "during")?;
                let open = scene.collector.usage().fds.saturating_sub(before);
                Ok((held, format!("{open} connections open; {text}")))
            })
        })
    }),
    quick(
        "4.versions",
        "Another version is refused with both versions and which side to update",
        |h, n| forged(h, n, versions),
    ),
    quick("4.bench-insecure", "bench server off loopback wants --insecure", bench),
    quick("4.binary-stripped", "The command carries no debug tables", |h, _| stripped(h)),
    quick("4.binary-paths", "The command carries no paths of who built it", |h, _| build_paths(h)),
    quick("4.deny", "deny.toml has licences and advisories", |h, _| deny(h)),
];

/// An attack with Hellos by hand, after which no directory may be left.
fn forged(
    host: &Host,
    name: &str,
    attack: fn(&mut Scene<'_>, &Learned) -> Result<Check>,
) -> Result<crate::report::Verdict> {
    let setup = Setup { leaves_devices: false, ..Setup::over("roce") };
    let learned = learn(host, "roce")?;
    attacked(host, name, &setup, |scene| attack(scene, &learned))
}

fn args(scene: &Scene<'_>, learned: &Learned, more: &Value) -> Value {
    let mut args = json!({
        "address": scene.address, "model": learned.hello, "connect": learned.connect,
        "instance": 0xbad_u32, "seconds": 0.5, "names": 1, "count": 1,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        args[name] = value.clone();
    }
    args
}

fn directories(scene: &Scene<'_>) -> usize {
    crate::scene::directories(&scene.out()).len() - scene.sources.len()
}

fn hello_5mb(scene: &mut Scene<'_>, learned: &Learned) -> Result<Check> {
    let peak = scene.collector.usage().peak_kib;
    let args = args(scene, learned, &json!({ "names": 65_536, "filler": 10 }));
    let found = scene.attack(User::Other, "hello", &args)?;
    let grown = scene.collector.usage().peak_kib.saturating_sub(peak) >> 10;
    let made = directories(scene);
    let text = format!("{grown} MiB and {made} directories; answered {}", kind(&found["answer"]));
    Ok((grown <= 64 && made == 0, text))
}

fn kind(answer: &Value) -> String {
    let code = answer["code"].as_str().or(answer["type"].as_str());
    code.unwrap_or("nothing").to_owned()
}

fn many_names(scene: &mut Scene<'_>, learned: &Learned) -> Result<Check> {
    let args = args(scene, learned, &json!({ "names": 65_536, "seconds": 6.0 }));
    let mut attack = scene.start_attack(User::Other, "sessions", &args)?;
    pass(Duration::from_secs(3));
    let mut command = scene.source_command("by-late", scene.address);
    command.args(["--frames", "5", "--wait", "2"]);
    let mut source = scene.start_source(&mut command, "late")?;
    let code = source.finish()?;
    let found = scene.end_attack(&mut attack)?;
    // The source that came may have its directory.
    let _ = fs::remove_dir_all(scene.out().join("by-late"));
    let text = format!("{} sessions ready; a source that came then: {code}", found["ready"]);
    Ok((code == 0, text))
}

fn limit(scene: &mut Scene<'_>, learned: &Learned) -> Result<Check> {
    let args = args(scene, learned, &json!({ "names": 4097 }));
    let found = scene.attack(User::Other, "hello", &args)?;
    let reason = found["answer"]["reason"].as_str().unwrap_or_default().to_owned();
    let named = reason.contains("4096") || reason.contains("4,096");
    let held = found["answer"]["type"] == "refused" && named;
    Ok((held, format!("4,097 devices: {}: {reason}", kind(&found["answer"]))))
}

fn refused(scene: &mut Scene<'_>, learned: &Learned) -> Result<Check> {
    let more = json!({ "names": 2000, "changes": { "providers": [{ "name": "nothing", "gid": "0".repeat(32), "device": null }] } });
    let found = scene.attack(User::Other, "hello", &args(scene, learned, &more))?;
    let made = directories(scene);
    let held = found["answer"]["type"] == "refused" && made == 0;
    Ok((held, format!("{made} directories after {}", kind(&found["answer"]))))
}

fn no_frame(scene: &mut Scene<'_>, learned: &Learned) -> Result<Check> {
    let found =
        scene.attack(User::Other, "sessions", &args(scene, learned, &json!({ "names": 50 })))?;
    let made = directories(scene);
    Ok((
        made == 0 && found["ready"] == 1,
        format!("{} sessions without a frame: {made} directories", found["ready"]),
    ))
}

const FAR: u64 = (1 << 53) - 2;

/// A source of the attacker that believes that the collector has seen nearly all packet numbers.
fn send_far(scene: &Scene<'_>) -> Result<String> {
    let relay = Relay::with(Ipv4Addr::LOCALHOST, scene.address, |_, mut message| {
        for stream in message.get_mut("streams").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if stream["device"].is_string() {
                stream["next_packet"] = json!(FAR);
            }
        }
        Some(message)
    })?;
    let mut command = scene.source_command("jumped", relay.address);
    command.args(["--frames", "1", "--wait", "3"]);
    let mut source = scene.start_source(&mut command, "far")?;
    let code = source.finish()?;
    Ok(format!("a frame of number 2^53 - 2 ended with {code} {}", source.last_line()))
}

fn jump(scene: &mut Scene<'_>) -> Result<Check> {
    let far = send_far(scene)?;
    let (held, text) = newcomer(scene, "jumped")?;
    Ok((held, format!("{far}; then the device itself: {text}")))
}

fn jump_restart(scene: &mut Scene<'_>) -> Result<Check> {
    let far = send_far(scene)?;
    let folder = scene.host.folder("4.jump-restarted")?;
    let copied = Command::new("cp").arg("-a").arg(scene.out()).arg(&folder.path).status()?;
    let setup = Setup { bystanders: 0, ..Setup::over("shm") };
    let mut command = crate::scene::collect_command(scene.host, &setup, &folder);
    let mut collector = Process::start(&mut command, &folder.path, "again")?;
    let listening = collector.wait_event("listening")?;
    let address = listening["address"].as_str().context("no address")?.parse()?;
    let mut command = scene.source_command("jumped", address);
    command.args(["--frames", "5", "--wait", "10"]);
    let mut source = scene.start_source(&mut command, "jumped")?;
    let code = source.finish()?;
    let text =
        format!("{far}; the device at a new collector ended with {code}: {}", source.last_line());
    Ok((code == 0 && copied.success(), text))
}

fn versions(scene: &mut Scene<'_>, learned: &Learned) -> Result<Check> {
    let mut model = learned.hello.clone();
    let ours = model["protocol"]["max"].clone();
    model["protocol"] = json!({ "min": 98, "max": 99 });
    let more = json!({ "texts": [model.to_string()], "seconds": 0.0 });
    let found = scene.attack(User::Other, "raw", &args(scene, learned, &more))?;
    let answer = found["answers"][0].as_str().unwrap_or_default().to_lowercase();
    let versions = answer.contains("99") && answer.contains(&ours.to_string());
    let held = answer.contains("protocol_version") && versions && answer.contains("update");
    Ok((held, answer))
}

fn bench(host: &Host, name: &str) -> Result<Verdict> {
    let folder = host.folder(name)?;
    let mut command = host.catchment();
    command.args(["bench", "server", "--listen", "0.0.0.0:0"]);
    let mut server = Process::start(&mut command, &folder.path, "server")?;
    let code = server.end_within(Duration::from_secs(3));
    let held = code.is_some_and(|code| code != 0) && server.said().contains("--insecure");
    let end = code.map_or("it listens".to_owned(), |code| format!("ended with {code}"));
    Ok(Verdict::new(held, format!("{end}: {}", server.last_line())))
}

fn stripped(host: &Host) -> Result<Verdict> {
    let bytes = fs::read(&host.binary)?;
    let file = object::File::parse(&*bytes)?;
    let found: Vec<_> = [".debug_line", ".symtab"]
        .into_iter()
        .filter(|name| file.section_by_name(name).is_some())
        .collect();
    // With its tables it has some 70 MB.
    let held = found.is_empty() && bytes.len() < 24_000_000;
    Ok(Verdict::new(held, format!("{:.1} MB, sections {found:?}", bytes.len() as f64 / 1e6)))
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn build_paths(host: &Host) -> Result<Verdict> {
    let bytes = fs::read(&host.binary)?;
    let home = std::env::var("CARGO_HOME").or(std::env::var("HOME")).unwrap_or_default();
    let docs = host.docs.display().to_string();
    let marks = ["/registry/src/", "/rustc/", "/target/debug/", "/target/release/"];
    let own = [home, docs].into_iter().filter(|path| path.len() > 4);
    let marks = marks.into_iter().filter(|mark| *mark != "/rustc/").map(str::to_owned).chain(own);
    let found: Vec<_> = marks.filter(|mark| holds(&bytes, mark.as_bytes())).collect();
    Ok(Verdict::new(found.is_empty(), format!("holds {} kinds of build paths", found.len())))
}

fn deny(host: &Host) -> Result<Verdict> {
    let text = fs::read_to_string(host.docs.join("deny.toml")).unwrap_or_default();
    let missing: Vec<_> =
        ["[licenses]", "[advisories]"].into_iter().filter(|part| !text.contains(part)).collect();
    Ok(Verdict::new(missing.is_empty(), format!("missing {missing:?}")))
}
