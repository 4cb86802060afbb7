//! Part 4: certificates, and whom a device name belongs to.
use super::{Case, quick, slow};
use crate::host::place::User;
use crate::host::process::{Process, pass, wait_until};
use crate::host::{Folder, Host, give};
use crate::learned::learn;
use crate::report::Verdict;
use crate::scene::{Check, Scene, Setup, attacked, newest_frame, page_address};
use crate::wire::{http, tls};
use anyhow::{Context as _, Result, ensure};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, date_time_ymd};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    quick("4.first-owner", "The first certificate that used a device name keeps it", |h, n| {
        owner(h, n, Again::Same)
    }),
    quick("4.owner-restart", "A device name keeps its owner over restarts", |h, n| {
        owner(h, n, Again::Restarted)
    }),
    quick("4.forget", "collect --forget NAME frees a name", |h, n| owner(h, n, Again::Forgotten)),
    quick("4.loopback-no-owner", "Loopback without certificates has no owners", loopback),
    quick("4.allow", "--allow binds names to certificate names", allow),
    slow(
        "4.devices-certificate",
        "Devices of one certificate are limited over its sessions",
        per_certificate,
    ),
    quick("4.reload-hup", "Certificates are read again on SIGHUP, and streams go on", |h, n| {
        with_certificates(h, n, |scene, certificates| reload(scene, certificates, true))
    }),
    quick("4.reload-change", "Certificates are read again when they change", |h, n| {
        with_certificates(h, n, |scene, certificates| reload(scene, certificates, false))
    }),
    quick("4.key-mode", "A key that others can read is refused with the chmod to make", key_mode),
    quick("4.insecure-warns", "--insecure warns once, with what it means", insecure),
    quick("4.hint-works", "The printed hint for sources works as printed", hint),
    quick("4.metrics-tls", "Metrics can be had over TLS from another host", scrape),
    quick("4.clear-named", "Where a stream leaves the host in clear, what helps is named", clear),
];

/// An authority, and certificates of a collector and two sources, of the victim.
pub(super) struct Certificates {
    folder: Folder,
}

pub(super) fn certificates(host: &Host, name: &str) -> Result<Certificates> {
    let made = Certificates { folder: host.folder(name)? };
    made.make(
        host,
        &["collector,127.0.0.1,10.98.0.1", "source,127.0.0.1,10.98.0.2", "other,127.0.0.1"],
    )?;
    Ok(made)
}

impl Certificates {
    fn make(&self, host: &Host, names: &[&str]) -> Result<()> {
        let mut command = host.catchment();
        command.args(["cert", "--json", "--out"]).arg(&self.folder.path);
        for name in names {
            command.args(["--name", name]);
        }
        let output = command.output()?;
        ensure!(output.status.success(), "cert: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Options of one who has this certificate.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let path = |file: String| self.folder.join(&file).display().to_string();
        let (cert, key) = (path(format!("{name}.pem")), path(format!("{name}.key")));
        ["--cert", &cert, "--key", &key, "--ca", &path("ca.pem".to_owned())]
            .map(str::to_owned)
            .to_vec()
    }

    /// Makes a certificate that was valid until yesterday, and returns its options.
    pub(super) fn expired(&self, name: &str) -> Result<Vec<String>> {
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).context("the authority");
        let issuer =
            Issuer::from_ca_cert_pem(&read("ca.pem")?, KeyPair::from_pem(&read("ca.key")?)?)?;
        let mut asked = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        asked.distinguished_name.push(DnType::CommonName, name);
        asked.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        asked.not_before = date_time_ymd(2020, 1, 1);
        asked.not_after = date_time_ymd(2021, 1, 1);
        let key = KeyPair::generate()?;
        let cert = asked.signed_by(&key, &issuer)?;
        for (ending, text) in [("pem", cert.pem()), ("key", key.serialize_pem())] {
            let path = self.folder.join(&format!("{name}.{ending}"));
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            give(&path)?;
        }
        Ok(self.words(name))
    }

    /// Puts another certificate of the same authority in the place of the collector's.
    fn renew(&self, host: &Host) -> Result<()> {
        for file in ["collector.pem", "collector.key"] {
            fs::remove_file(self.folder.join(file))?;
        }
        self.make(host, &["collector,127.0.0.1,10.98.0.1"])
    }
}

fn secured(certificates: &Certificates) -> Setup {
    Setup {
        collect: certificates.words("collector"),
        send: certificates.words("source"),
        ..Setup::over("shm")
    }
}

fn with_certificates(
    host: &Host,
    name: &str,
    attack: impl Fn(&mut Scene<'_>, &Certificates) -> Result<Check>,
) -> Result<Verdict> {
    let certificates = certificates(host, &format!("{name}-certs"))?;
    attacked(host, name, &secured(&certificates), |scene| attack(scene, &certificates))
}

/// A source of one device with the certificate of `who`; its exit code and last words.
fn send_as(
    scene: &Scene<'_>,
    certificates: &Certificates,
    who: &str,
    device: &str,
) -> Result<(i32, String)> {
    let mut command = scene.host.catchment();
    command.args([
        "send", "--json", "--input", "synthetic:64x48:rgb24", "--frames", "5", "--wait", "4",
    ]);
    command.args(certificates.words(who)).args(["--device", device]).arg(scene.address.to_string());
    let mut source = scene.start_source(&mut command, device)?;
    Ok((source.finish()?, source.last_line()))
}

/// When the second certificate comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Same,
    Restarted,
    Forgotten,
}

fn owner(host: &Host, name: &str, again: Again) -> Result<Verdict> {
    let certificates = certificates(host, &format!("{name}-certs"))?;
    let setup = Setup { bystanders: 0, ..secured(&certificates) };
    let mut scene = Scene::start(host, name, &setup)?;
    let (first, said) = send_as(&scene, &certificates, "source", "door")?;
    ensure!(first == 0, "the first source ended with {first}: {said}");
    let mut freed = true;
    if again != Again::Same {
        scene.collector.stop()?;
        if again == Again::Forgotten {
            freed = forget(&scene)?;
        }
        let mut command = crate::scene::collect_command(host, &setup, &scene.folder);
        scene.collector = Process::start(&mut command, &scene.folder.path, "collect")?;
        let listening = scene.collector.wait_event("listening")?;
        scene.address = listening["address"].as_str().context("no address")?.parse()?;
    }
    let (other, said) = send_as(&scene, &certificates, "other", "door")?;
    let (owner, _) = send_as(&scene, &certificates, "source", "door")?;
    let held = match again {
        Again::Same | Again::Restarted => other == 3 && owner == 0,
        Again::Forgotten => freed && other == 0 && owner == 3,
    };
    let text = format!("another certificate ended with {other} ({said}), the owner with {owner}");
    Ok(Verdict::new(held, text))
}

fn forget(scene: &Scene<'_>) -> Result<bool> {
    let mut command = scene.host.catchment();
    command.args(["collect", "--forget", "door", "--out"]).arg(scene.out());
    let mut process = Process::start(&mut command, &scene.folder.path, "forget")?;
    Ok(process.finish()? == 0)
}

fn loopback(host: &Host, name: &str) -> Result<Verdict> {
    let mut scene = Scene::start(host, name, &Setup { bystanders: 0, ..Setup::over("shm") })?;
    let (first, _) = crate::scene::newcomer(&scene, "door")?;
    let (second, text) = crate::scene::newcomer(&scene, "door")?;
    let faults = scene.finish()?;
    Ok(Verdict::new(first && second && faults.is_empty(), text))
}

fn allow(host: &Host, name: &str) -> Result<Verdict> {
    let help = host.catchment().args(["collect", "--help"]).output()?;
    if !String::from_utf8_lossy(&help.stdout).contains("--allow") {
        return Ok(Verdict::new(false, "there is no option --allow"));
    }
    let certificates = certificates(host, &format!("{name}-certs"))?;
    let setup = Setup { bystanders: 0, ..secured(&certificates) };
    let scene = Scene::start(host, name, &setup.collect(&["--allow", "source=door*"]))?;
    let (other, said) = send_as(&scene, &certificates, "other", "door1")?;
    let (owner, _) = send_as(&scene, &certificates, "source", "door1")?;
    let text =
        format!("another certificate ended with {other} ({said}), the one allowed with {owner}");
    Ok(Verdict::new(other == 3 && owner == 0, text))
}

fn per_certificate(host: &Host, name: &str) -> Result<Verdict> {
    let certificates = certificates(host, &format!("{name}-certs"))?;
    let learned = learn(host, "roce")?;
    let setup = Setup { provider: "roce", leaves_devices: false, ..secured(&certificates) };
    attacked(host, name, &setup, |scene| {
        let args = json!({
            "address": scene.address, "model": learned.hello, "connect": learned.connect, "instance": 77,
            "certificates": certificates.folder.path, "certificate": "other", "names": 2000, "count": 4,
            "seconds": 1.0,
        });
        let found = scene.attack(User::Same, "sessions", &args)?;
        let ready = found["ready"].as_u64().unwrap_or(0);
        let held = (1..=2).contains(&ready) && found["last"]["type"] == "refused";
        Ok((
            held,
            format!("{ready} sessions of 2,000 devices each; then {}", found["last"]["type"]),
        ))
    })
}

fn reload(scene: &mut Scene<'_>, certificates: &Certificates, hangup: bool) -> Result<Check> {
    let folder = certificates.folder.path.clone();
    let shown = || tls::connect(scene.address, &folder, "source").map(|stream| tls::shown(&stream));
    let before = shown()?;
    certificates.renew(scene.host)?;
    if hangup {
        scene.collector.signal(Signal::HUP);
    }
    let renewed = || shown().is_ok_and(|now| now != before);
    let limit = Duration::from_secs(if hangup { 5 } else { 15 });
    let held = crate::host::process::poll(limit, || renewed().then_some(())).is_some();
    let ended = scene.collector.code();
    Ok((
        held && ended.is_none(),
        format!("the new certificate is shown: {held}; the collector's end: {ended:?}"),
    ))
}

fn key_mode(host: &Host, name: &str) -> Result<Verdict> {
    let certificates = certificates(host, &format!("{name}-certs"))?;
    let key = certificates.folder.join("collector.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644))?;
    let folder = host.folder(name)?;
    let mut command = host.catchment();
    command.args(["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--no-dashboard"]);
    command.args(certificates.words("collector"));
    let mut collector = Process::start(&mut command, &folder.path, "collect")?;
    let code = collector.end_within(Duration::from_secs(3));
    let said = collector.said();
    let held = code.is_some_and(|code| code != 0) && said.contains("chmod");
    Ok(Verdict::new(
        held,
        format!("a key of mode 0644: ended with {code:?}: {}", collector.last_line()),
    ))
}

/// A collector without certificates on all addresses, for people to read.
fn open_collector(host: &Host, name: &str, words: &[&str]) -> Result<(Folder, Process)> {
    let folder = host.folder(name)?;
    let mut command = host.catchment();
    command.args(["collect", "--insecure", "--out"]).arg(folder.join("out")).args(words);
    let collector = Process::start(&mut command, &folder.path, "collect")?;
    let pid = collector.id();
    wait_until("the collector listens", || {
        collector.said().contains("Ctrl-C")
            || !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })?;
    Ok((folder, collector))
}

fn insecure(host: &Host, name: &str) -> Result<Verdict> {
    let (_folder, mut collector) = open_collector(host, name, &["--listen", "0.0.0.0:0"])?;
    pass(Duration::from_millis(200));
    collector.stop()?;
    let said = collector.said();
    let warnings = said.lines().filter(|line| {
        let line = line.to_lowercase();
        !line.contains("frames go to")
            && line.contains("insecure")
            && (line.contains("warn")
                || line.contains("anyone")
                || line.contains("without certificates"))
    });
    let count = warnings.clone().count();
    Ok(Verdict::new(count == 1, format!("{count} warnings: {:?}", warnings.collect::<Vec<_>>())))
}

fn hint(host: &Host, name: &str) -> Result<Verdict> {
    let (folder, mut collector) = open_collector(host, name, &["--listen", "0.0.0.0:0"])?;
    let said = collector.said();
    let line = said.lines().find(|line| line.contains("catchment send"));
    let line = line.with_context(|| format!("no hint: {said}"))?.to_owned();
    let words = &line[line.find("catchment send").unwrap_or(0)..];
    let script = format!("{} --frames 3 --wait 5", words.replace("...", "synthetic:64x48:rgb24"));
    let pasteable = !words.contains("0.0.0.0") && !words.contains("...");
    let mut command = crate::host::as_victim("/bin/sh".as_ref());
    let path = host.binary.parent().context("no folder")?.display();
    command.args(["-c", &script]).env("PATH", format!("{path}:/usr/bin:/bin"));
    let mut source = Process::start(command.current_dir(&folder.path), &folder.path, "hint")?;
    let code = source.finish()?;
    collector.stop()?;
    let text = format!("`{words}` ended with {code}: {}", source.last_line());
    Ok(Verdict::new(code == 0 && pasteable, text))
}

fn scrape(host: &Host, name: &str) -> Result<Verdict> {
    let certificates = certificates(host, &format!("{name}-certs"))?;
    let folder = host.folder(name)?;
    let lan = crate::host::place::Lan::new()?;
    let mut command = host.catchment();
    command.args(["collect", "--json", "--listen", "10.98.0.1:0", "--dashboard", "10.98.0.1:0"]);
    command.args(["--sink", "null"]).args(certificates.words("collector"));
    let start = || Process::start(&mut command, &folder.path, "collect");
    let mut collector = lan.collector.run(start)??;
    let Ok(listening) = collector.wait_event("listening") else {
        return Ok(Verdict::new(false, collector.last_line()));
    };
    let url = listening["dashboard"].as_str().context("no page")?;
    let address = page_address(url).context("no address")?;
    let path = certificates.folder.path.clone();
    let fetch =
        || http::ask(tls::connect(address, &path, "source")?, &address.to_string(), "/metrics");
    let got = lan.source.run(fetch)?;
    let text = match &got {
        Ok((status, _)) => format!("{url} answered {status}"),
        Err(error) => format!("{url}: {error:#}"),
    };
    Ok(Verdict::new(
        got.is_ok_and(|(status, body)| status == 200 && body.contains("catchment_")),
        text,
    ))
}

fn clear(host: &Host, name: &str) -> Result<Verdict> {
    let certificates = certificates(host, &format!("{name}-certs"))?;
    let setup = Setup {
        collect: certificates.words("collector"),
        send: certificates.words("source"),
        relay: false,
        ..Setup::lan()
    };
    let mut scene = Scene::start(host, name, &setup)?;
    let mut command: Command = scene.source_command("plain", scene.address);
    command.args(["--frames", "3"]);
    let mut source = scene.start_source(&mut command, "plain")?;
    source.finish()?;
    wait_until("the stream flows", || newest_frame(&scene.out().join("plain")) > 0)?;
    let faults = scene.finish()?;
    let said = source.said() + &scene.collector.said();
    let named = said.contains("WireGuard") || said.contains("--authenticate");
    Ok(Verdict::new(named && faults.is_empty(), format!("named: {named}")))
}
