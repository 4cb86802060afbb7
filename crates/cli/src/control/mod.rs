//! `catchment control`: a transmission controller, or what one says.
mod ask;
mod lead;
mod page;

use crate::args::{ControlArgs, ControlStatusArgs, ControlWhat, Security, controller_address};
use crate::cert::{client_security, tls_failure};
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::progress::Progress;
use crate::output::{self, say, units};
use crate::stop::Stop;
use crate::{hint, stop};
use anyhow::{Context as _, anyhow};
use catchment::observe::StatusView;
use catchment::session::io::{Address, ServerSecurity};
use catchment::session::registration::{Answer, RegisterError, Request, ask_blocking};
use catchment::session::reread::ServerTls;
use catchment_controller::config::Settings;
use catchment_controller::leader::Leadership;
use catchment_controller::{NewCapacity, Reloaded, Service, ServiceHandle, Status};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_secs(1);
/// How often one that leads by a store looks whether it still does.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &ControlArgs) -> Result<(), Failure> {
    match &args.what {
        Some(ControlWhat::Status(args)) => return show_status(args),
        Some(ControlWhat::Top(args)) => return ask::top(args),
        Some(ControlWhat::Capacity(args)) => return ask::set_capacity(args),
        None => {}
    }
    let mut settings = settings(args)?;
    let stop = stop::watch(args.until_stdin_closes, || {})?;
    let tls = args.security.files().map(ServerTls::open).transpose().map_err(tls_failure)?;
    let security = ServerSecurity { tls: tls.clone(), insecure: args.security.insecure };
    hint::warn_insecure(&settings.listen, args.security.insecure);
    let running = page::Running::default();
    let (path, admin, reloaded) = (args.config.clone(), args.admin.clone(), running.clone());
    stop.on_hangup(Arc::new(move || {
        let certificates = tls.as_ref().map(|tls| tls.reread());
        if let Some(Err(error)) = certificates {
            say!("warning: the certificates stay as they were: {error}");
        }
        if let (Some(path), Some(service)) = (&path, page::now(&reloaded)) {
            reload(path, admin.as_ref(), &service);
        }
    }));
    let shown = page::Shown(running.clone());
    let _page =
        crate::page::start(&args.page, &security, args.json, StatusView::Controller, shown)?;
    let begun = |service: &Service| {
        *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(service.handle());
    };
    let Some(leader) = settings.leader.clone() else {
        let service = Service::start(settings.clone(), &security).or_fail(Code::Local)?;
        begun(&service);
        greet(args, &settings, &service)?;
        return grant(args, &service, None, &stop).map(drop);
    };
    loop {
        let service = Service::stand_by(settings.clone(), &security).or_fail(Code::Local)?;
        begun(&service);
        let Some(lead::Begins { leadership, term, left }) =
            lead::stand_by(&leader, service.local(), args.json, &stop)?
        else {
            return Ok(());
        };
        // The file may have changed meanwhile.
        settings = reread(args, settings);
        let listen = service.local().clone();
        service.reload(Settings { listen, ..settings.clone() }).or_fail(Code::Local)?;
        service.lead(term, left).or_fail(Code::Local)?;
        greet(args, &settings, &service)?;
        if grant(args, &service, Some(&leadership), &stop)? {
            leadership.resign(service.give_up());
            return Ok(());
        }
    }
}

/// Says that a controller has begun.
fn greet(args: &ControlArgs, settings: &Settings, service: &Service) -> Result<(), Failure> {
    let address = service.local().to_string();
    if args.json {
        let event = json!({"event": "listening", "address": address, "term": service.term(), "pid": std::process::id()});
        return output::print_json(&event);
    }
    for link in &settings.links {
        say!("link {} carries {}", link.name, rate(link.capacity_bps));
    }
    say!("granting at {address}; sources: catchment send --controller {address} ...");
    say!("Ctrl-C ends it");
    Ok(())
}

/// Says how a controller stands, until it is to end (true), or does not lead any more.
fn grant(
    args: &ControlArgs,
    service: &Service,
    leadership: Option<&Leadership>,
    stop: &Stop,
) -> Result<bool, Failure> {
    let progress = if args.until_stdin_closes { Progress::none() } else { Progress::text() };
    let mut told = Instant::now();
    let mut election = lead::Watch::default();
    while !stop.wait(if leadership.is_some() { LOOK } else { TICK }) {
        let is_shown = told.elapsed() >= TICK && (args.json || progress.is_shown());
        if leadership.is_none() && !is_shown {
            continue;
        }
        let Some(status) = service.status() else {
            return Err(Failure::new(Code::Failed, anyhow!("the thread that grants has ended")));
        };
        if let Some(leadership) = leadership
            && election.is_over(leadership, status.superseded, args.json)?
        {
            return Ok(false);
        }
        if !is_shown {
            continue;
        }
        told = Instant::now();
        if args.json {
            output::print_json(&with_event(serde_json::to_value(&status).or_fail(Code::Failed)?))?;
        }
        progress.set_text(line(&status));
    }
    Ok(true)
}

/// Returns the settings of the file as it is now; those from before if it cannot be used.
fn reread(args: &ControlArgs, before: Settings) -> Settings {
    let Some(path) = &args.config else { return before };
    let now = read(path, &before.listen)
        .map(|now| Settings { admin: args.admin.clone().or(now.admin.clone()), ..now });
    match now {
        Ok(now)
            if before
                .fixed_difference(&Settings { listen: before.listen.clone(), ..now.clone() })
                .is_none() =>
        {
            Settings { listen: before.listen, ..now }
        }
        Ok(_) => {
            say!("warning: {} has changed what cannot change; it counts as it was", path.display());
            before
        }
        Err(error) => {
            say!("warning: nothing has changed: {error:#}");
            before
        }
    }
}

fn with_event(mut status: Value) -> Value {
    if let Some(members) = status.as_object_mut() {
        members.insert("event".to_owned(), "status".into());
    }
    status
}

fn settings(args: &ControlArgs) -> Result<Settings, Failure> {
    let listen = args.listen.clone().unwrap_or_else(controller_address);
    if let Some(path) = &args.config {
        let mut settings = read(path, &listen).or_fail(Code::Local)?;
        if args.listen.is_some() {
            settings.listen = listen;
        }
        settings.admin = args.admin.clone().or(settings.admin);
        return Ok(settings);
    }
    let rate_bps = args.bottleneck.ok_or_else(|| {
        Failure::new(
            Code::Usage,
            anyhow!("neither --bottleneck nor --config: which links are shared?"),
        )
    })?;
    let settings = Settings::bottleneck(listen, rate_bps, args.queue);
    Ok(Settings { admin: args.admin.clone(), ..settings })
}

fn read(path: &Path, listen: &catchment::session::io::Address) -> anyhow::Result<Settings> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Settings::parse(&text, listen).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Takes over the file as it is now.
fn reload(path: &Path, admin: Option<&Address>, service: &ServiceHandle) {
    let settings = match read(path, service.local()) {
        Ok(settings) => Settings { admin: admin.cloned().or(settings.admin.clone()), ..settings },
        Err(error) => return say!("warning: nothing has changed: {error:#}"),
    };
    match service.reload(settings) {
        Ok(reloaded) => {
            for NewCapacity { link, before_bps, capacity_bps } in &reloaded.capacities {
                say!("link {link} carries {}, before {}", rate(*capacity_bps), rate(*before_bps));
            }
            if reloaded.classes {
                say!("[[class]] has changed: deadlines count for what is asked for from now on");
            }
            if reloaded.policy {
                say!("another policy holds; windows that stand run to their end");
            }
            if reloaded.allow {
                say!("[[allow]] has changed, for registrations from now on");
            }
            if reloaded.network {
                say!(
                    "links, paths or classes are others: sources register again, what was granted stands"
                );
            }
            let Reloaded { capacities, policy, classes, allow, network } = &reloaded;
            if capacities.is_empty() && !policy && !allow && !classes && !network {
                say!("{} says nothing new", path.display());
            }
        }
        Err(error) => say!("warning: {}: {error}", path.display()),
    }
}

/// Returns a status of now.
fn status(controller: &Address, security: &Security) -> Result<Value, Failure> {
    match ask_controller(controller, security, &Request::Status {})? {
        Answer::Status { status } => Ok(status),
        Answer::Refused { .. }
        | Answer::Registered(_)
        | Answer::Explained { .. }
        | Answer::Carrying {} => Err(Failure::new(
            Code::Unreachable,
            anyhow!("the controller answers what was not asked"),
        )),
    }
}

fn show_status(args: &ControlStatusArgs) -> Result<(), Failure> {
    let status = status(&args.of.controller, &args.of.security)?;
    if args.of.json {
        return output::print_json(&status);
    }
    if args.prometheus {
        let status = serde_json::from_value(status).map_err(|error| {
            Failure::new(Code::Unreachable, error)
                .hint("the controller is of another version; --json shows what it says")
        })?;
        return output::print(&output::metrics::of_controller(&status));
    }
    output::print(&text(&status))
}

/// Asks a controller that runs; a refusal is a failure.
pub(crate) fn ask_controller(
    controller: &Address,
    security: &Security,
    request: &Request,
) -> Result<Answer, Failure> {
    let asked = ask_blocking(controller, &client_security(security)?, request);
    let (answer, _) = asked.map_err(|error| {
        let is_refusal = matches!(error, RegisterError::Refused { .. });
        let failure = Failure::new(Code::Unreachable, error);
        if is_refusal {
            failure
        } else {
            failure.hint("`catchment control --bottleneck RATE` starts a controller")
        }
    })?;
    Ok(answer)
}

pub(crate) fn rate(bps: u64) -> String {
    let bps = bps as f64;
    if bps >= 1e9 { format!("{:.1} Gbit/s", bps / 1e9) } else { format!("{:.1} Mbit/s", bps / 1e6) }
}

/// Returns a status in one line.
fn line(status: &Status) -> String {
    let links = status.links.iter().map(|link| {
        let lossy = if link.working_bps < link.capacity_bps { " (losses)" } else { "" };
        format!("{}: {} of {}{lossy}", link.name, rate(link.granted_bps), rate(link.working_bps))
    });
    let classes = status.classes.iter().map(|class| {
        let all = class.on_time + class.late;
        format!("{}: {} wait, {} on time of {all}", class.name, class.waiting, class.on_time)
    });
    let sources = units::counted(status.sources.len() as u64, "source");
    let parts: Vec<String> = [sources].into_iter().chain(links).chain(classes).collect();
    parts.join("  ")
}

/// Returns a status as it came, for people.
fn text(status: &Value) -> String {
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or(0);
    let name =
        |value: &Value, name: &str| value[name].as_str().unwrap_or("?").escape_debug().to_string();
    let rows = |list: &str| status[list].as_array().cloned().unwrap_or_default();
    let leads = match number(status, "term") {
        0 => "stands by".to_owned(),
        term => format!("term {term}"),
    };
    let mut text = format!("{leads}, up {} s\n", status["uptime_s"]);
    for link in rows("links") {
        let [granted, capacity] = ["granted_bps", "capacity_bps"].map(|name| number(&link, name));
        // One of an earlier version does not say it.
        let working = link["working_bps"].as_u64().unwrap_or(capacity);
        let (name, granted) = (name(&link, "name"), rate(granted));
        text += &format!("link {name}: {granted} of {} granted", rate(working));
        if working < capacity {
            text += &format!("; losses: it was said to carry {}", rate(capacity));
        }
        text += "\n";
    }
    for class in rows("classes") {
        let [waiting, granted, on_time, late, dropped] =
            ["waiting", "granted", "on_time", "late", "dropped"]
                .map(|member| number(&class, member));
        let dropped = if dropped > 0 { format!(", {dropped} dropped") } else { String::new() };
        text += &format!(
            "class {}: {waiting} wait, {granted} granted; {on_time} sent in time, {late} late{dropped}\n",
            name(&class, "name")
        );
    }
    for source in rows("sources") {
        let devices: Vec<String> = source["devices"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(|device| device.escape_debug().to_string())
            .collect();
        text += &format!(
            "source {} at {}: {}; {} wait, {} granted\n",
            number(&source, "source"),
            name(&source, "address"),
            devices.join(", "),
            number(&source, "waiting"),
            rate(number(&source, "granted_bps")),
        );
    }
    text
}
