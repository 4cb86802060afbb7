//! What is asked of a controller that runs, beside its status: to go on showing it, and to change a link.
use super::{rate, status, text, with_event};
use crate::args::{ControlCapacityArgs, ControlTopArgs};
use crate::cert::client_security;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use catchment::session::registration::ASK_LIMIT;
use catchment_controller::admin::{self, AskError};
use serde_json::json;

/// Shows how a controller stands, each second.
pub(super) fn top(args: &ControlTopArgs) -> Result<(), Failure> {
    let look = || status(&args.controller, &args.security).map(with_event);
    output::top::show(args.json, look, text)
}

/// Says what a link carries from now on.
pub(super) fn set_capacity(args: &ControlCapacityArgs) -> Result<(), Failure> {
    let security = client_security(&args.security)?;
    let name: String = args.link.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let path = format!("/links/{name}");
    let json = json!({"capacity": format!("{}bit", args.capacity)});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = admin::set(&args.admin, &security, &path, &json, ASK_LIMIT);
    let changed = runtime.or_fail(Code::Failed)?.block_on(asked).map_err(|error| {
        let hint = "`catchment control --admin unix:PATH` lets its user change settings there";
        match &error {
            AskError::Refused { .. } => Failure::new(Code::Failed, error),
            AskError::Connect(_) | AskError::Http { .. } | _ => {
                Failure::new(Code::Unreachable, error).hint(hint)
            }
        }
    })?;
    if args.json {
        return output::print_json(&changed);
    }
    let bps = |member: &str| rate(changed[member].as_u64().unwrap_or(0));
    say!("link {} carries {}, before {}", args.link, bps("capacity_bps"), bps("before_bps"));
    Ok(())
}
