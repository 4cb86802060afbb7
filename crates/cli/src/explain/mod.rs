//! `catchment explain`: which path frames take to a host, and why.
pub(crate) mod stream;

use crate::args::{ExplainArgs, ExplainWhat, There};
use crate::cert::client_security;
use crate::failure::{Code, Failure};
use crate::hint;
use crate::output::{self, table};
use anyhow::anyhow;
use catchment::observe::SessionSnapshot;
use catchment::session::io::Address;
use catchment::source::UNPACED_PART_BYTES;
use catchment_doctor::explain::{
    Answer, Asking, ExplainError, Here, Offered, ProviderOffer, WhyNot,
};
use serde::Serialize;
use std::net::{IpAddr, ToSocketAddrs as _};

#[derive(Serialize)]
struct ExplainJson {
    host: String,
    local: Option<String>,
    interface: Option<String>,
    mtu_bytes: Option<u32>,
    path_mtu: Option<u32>,
    no_route: Option<String>,
    offers: Vec<OfferJson>,
    missing: Vec<WhyNot>,
    session: Option<SessionSnapshot>,
    proven_in_us: Option<f64>,
    failed: Vec<String>,
    error: Option<String>,
}

#[derive(Serialize)]
struct OfferJson {
    provider: String,
    device: Option<String>,
    gid: String,
    address: Option<String>,
    udp_port: Option<u16>,
    path_mtu: Option<u32>,
    paces: bool,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    if let Some(ExplainWhat::Stream(args)) = &args.what {
        return stream::run(args);
    }
    let host = args.host.as_ref().ok_or_else(|| {
        let error = anyhow!("neither HOST[:PORT] nor `stream NAME`: what is to be explained?");
        Failure::new(Code::Usage, error)
    })?;
    path(args, host)
}

fn path(args: &ExplainArgs, host: &There) -> Result<(), Failure> {
    let asking = asking(args)?;
    if let There::Collector(address) = host {
        hint::warn_insecure(address, args.security.insecure);
        if !hint::is_remote(address) {
            args.providers.check_fault_within_host()?;
        }
    }
    let (name, collector) = match host {
        There::Host(host) => (Some(host), None),
        There::Collector(address @ Address::Tcp { host, .. }) => (Some(host), Some(address)),
        There::Collector(address @ Address::Unix(_)) => (None, Some(address)),
    };
    let remote = name.map(|name| resolve(name)).transpose()?;
    let here = remote.map(|remote| asking.here(remote));
    let answer = collector.map(|address| asking.ask(address));
    if args.json {
        output::print_json(&json(host, here.as_ref(), answer.as_ref()))?;
    } else {
        output::print(&text(host, here.as_ref(), answer.as_ref()))?;
    }
    verdict(here.as_ref(), answer)
}

fn asking(args: &ExplainArgs) -> Result<Asking, Failure> {
    Ok(Asking {
        providers: args.providers.secured(&args.security)?,
        security: client_security(&args.security)?,
        limit: Some(args.wait),
    })
}

fn resolve(host: &str) -> Result<IpAddr, Failure> {
    if let Ok(ip) = host.parse() {
        return Ok(ip);
    }
    let found = (host, 0).to_socket_addrs().map_err(|error| {
        let error = anyhow!("cannot find the address of {host}: {error}");
        Failure::new(Code::Unreachable, error).hint("give an address, or fix DNS or /etc/hosts")
    })?;
    let ip = found.map(|address| address.ip()).next();
    ip.ok_or_else(|| Failure::new(Code::Unreachable, anyhow!("{host} has no address")))
}

fn verdict(
    here: Option<&Here>,
    answer: Option<Result<Answer, ExplainError>>,
) -> Result<(), Failure> {
    let error = match (answer, here) {
        (Some(Err(error)), _) => error.into(),
        (None, Some(Here { route: Err(why), .. })) => anyhow!("{why}"),
        (None, Some(here)) if here.offers.is_empty() => anyhow!("this side can use no provider"),
        (Some(Ok(_)), _) | (None, _) => return Ok(()),
    };
    Err(Failure::new(Code::Unreachable, error))
}

fn is_packets(offer: &ProviderOffer) -> bool {
    offer.net.is_some()
}

/// An offer in words: `mlx5_0, 10.0.0.2, UDP port 4791, path MTU 4096`.
fn offer_text(Offered { offer, paces }: &Offered) -> String {
    let mut parts: Vec<String> = offer.device.iter().cloned().collect();
    if is_packets(offer) {
        parts.push(offer.gid.ip().to_string());
    }
    if let Some(net) = offer.net {
        parts.push(format!("UDP port {}", net.udp_port));
        parts.push(format!("path MTU {}", net.path_mtu));
    }
    if parts.is_empty() {
        parts.push("same host, network namespace and user only".to_owned());
    }
    if !paces {
        let part_kib = UNPACED_PART_BYTES >> 10;
        let how = "queue pairs keep no rate: what is granted goes in parts of";
        parts.push(format!("{how} {part_kib} KiB"));
    }
    parts.join(", ")
}

fn text(
    host: &There,
    here: Option<&Here>,
    answer: Option<&Result<Answer, ExplainError>>,
) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(here) = here {
        lines.push(("route", route_text(here)));
        for offer in &here.offers {
            lines.push((offer.offer.name.as_str(), offer_text(offer)));
        }
        for why in &here.missing {
            lines.push((why.provider.as_str(), format!("not here: {}", why.reason)));
        }
    }
    match answer {
        None => {
            let more = "give the port of a collector there to learn what it would use".to_owned();
            lines.push(("", more));
        }
        Some(Ok(answer)) => {
            for failed in &answer.failed {
                lines.push(("tried", failed.clone()));
            }
            lines.push(("path", answer.session.to_string()));
            lines.push(("why", answer.session.reason.clone()));
            lines.push(("proof", proof_text(answer)));
        }
        Some(Err(ExplainError::Refused { failed, .. })) => {
            lines.extend(failed.iter().map(|failed| ("tried", failed.clone())));
        }
        Some(Err(_)) => {}
    }
    if let There::Collector(address) = host {
        lines.insert(0, ("collector", address.to_string()));
    }
    table::pairs(&lines)
}

fn route_text(here: &Here) -> String {
    match &here.route {
        Err(why) => format!("none: {why}"),
        Ok(route) => {
            let on = route.interface.as_ref();
            format!(
                "from {}{} to {}, MTU {} (RoCE path MTU {})",
                route.local,
                on.map_or(String::new(), |name| format!(" on {name}")),
                route.remote,
                route.mtu_bytes,
                route.path_mtu
            )
        }
    }
}

fn proof_text(answer: &Answer) -> String {
    match answer.session.path_mtu {
        Some(path_mtu) => format!(
            "packets of {path_mtu} bytes pass both ways (found out in {:.1?})",
            answer.proven_in
        ),
        None => "the collector's memory can be mapped".to_owned(),
    }
}

fn json(
    host: &There,
    here: Option<&Here>,
    answer: Option<&Result<Answer, ExplainError>>,
) -> ExplainJson {
    let route = here.and_then(|here| here.route.as_ref().ok());
    let no_route = here.and_then(|here| here.route.as_ref().err());
    let offer = |Offered { offer, paces }: &Offered| OfferJson {
        provider: offer.name.clone(),
        device: offer.device.clone(),
        gid: if is_packets(offer) { offer.gid.to_string() } else { offer.gid.redacted() },
        address: is_packets(offer).then(|| offer.gid.ip().to_string()),
        udp_port: offer.net.map(|net| net.udp_port),
        path_mtu: offer.net.map(|net| net.path_mtu),
        paces: *paces,
    };
    let found = answer.and_then(|answer| answer.as_ref().ok());
    let error = answer.and_then(|answer| answer.as_ref().err());
    let failed = match (found, error) {
        (Some(answer), _) => answer.failed.clone(),
        (None, Some(ExplainError::Refused { failed, .. })) => failed.clone(),
        (None, _) => Vec::new(),
    };
    ExplainJson {
        host: match host {
            There::Host(host) => host.clone(),
            There::Collector(address) => address.to_string(),
        },
        local: route.map(|route| route.local.to_string()),
        interface: route.and_then(|route| route.interface.clone()),
        mtu_bytes: route.map(|route| route.mtu_bytes),
        path_mtu: route.map(|route| route.path_mtu),
        no_route: no_route.cloned(),
        offers: here.map_or(Vec::new(), |h| h.offers.iter().map(offer).collect()),
        missing: here.map_or(Vec::new(), |here| here.missing.clone()),
        session: found.map(|answer| answer.session.clone()),
        proven_in_us: found.map(|answer| answer.proven_in.as_secs_f64() * 1e6),
        failed,
        error: error.map(ToString::to_string),
    }
}
