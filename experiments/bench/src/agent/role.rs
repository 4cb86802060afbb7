//! What each of the processes of a measurement does.
use super::ends::{READY, Role};
use super::seat::Found;
use super::{crowd, routing};
use crate::{host, output, rate, sys};
use anyhow::Result;
use catchment_agent::Agent;
use catchment_agent::peer::PeerSecurity;
use catchment_agent::policy::Policy;
use catchment_netns::Namespace;
use catchment_perf::Control;
use catchment_session::io::{ClientSecurity, ServerSecurity};
use std::net::{Ipv4Addr, TcpStream};

/// Runs one of the processes.
pub(crate) fn role(order: &Role) -> Result<()> {
    match order {
        Role::Agent { policy, core } => {
            sys::settle(*core)?;
            // Where both ends are of this measurement, nobody else is in their namespaces.
            let security = PeerSecurity {
                client: ClientSecurity { tls: None, insecure: true },
                server: ServerSecurity { tls: None, insecure: true },
            };
            let agent = Agent::start_secured(Policy::parse(policy)?, security)?;
            let local = agent.local().map(|local| format!(" {local}"));
            output::line(&format!("{READY}{}", local.unwrap_or_default()))?;
            std::io::stdin().lines().for_each(drop);
            Ok(())
        }
        Role::Target(seat) => {
            sys::settle(host::cores().saturating_sub(1).min(2))?;
            rate::serve_at(seat.open()?, seat.address.unwrap_or(Ipv4Addr::LOCALHOST.into()))
        }
        Role::In { netns, role: order } => {
            Namespace::open(netns)?.enter()?;
            role(order)
        }
        Role::Application { seat, target, work } => {
            sys::settle(host::SOURCE_CORE)?;
            let mut control = Control::over_tcp(TcpStream::connect(target)?)?;
            let work = work.iter().map(|work| seat.measure(&mut control, work));
            output::json(&work.collect::<Result<Vec<Found>>>()?)
        }
        Role::Crowd { here, there } => crowd::role(here, there),
        Role::Exchange { here, there, apps, requests } => {
            routing::role((here, there), *apps, *requests)
        }
    }
}
