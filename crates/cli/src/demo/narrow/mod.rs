//! `catchment demo --controller`: cameras that share a narrow link, first as they like, then with a transmission
//! controller.
//!
//! Every camera is a process in a network namespace of its own; a router carries all of them to the collector through one
//! bottleneck, a token bucket of the kernel with a short drop-tail queue. Where there may be no namespaces, a relay of this
//! process is the bottleneck. The first camera is urgent.
mod frames;
mod phase;
mod place;
mod report;

use crate::args::DemoArgs;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::say;
use anyhow::{Context as _, anyhow};
use phase::Phase;

/// What the link carries, payload.
const CAPACITY_BPS: u64 = 100_000_000;
/// A path MTU of 4,096, with its headers.
const INTERFACE_MTU: u32 = 4200;
/// Bytes on the wire for 100 of payload, Ethernet's headers, sessions and requests for leave included.
const WIRE_PERCENT: u64 = 105;
const NIC_BPS: u64 = 1_000_000_000;
/// 40 ms of the link.
const QUEUE_KIB: u64 = 512;
const BURST_BYTES: u64 = 16 << 10;
/// Cameras, the first of which is urgent.
const CAMERAS: u8 = 12;

/// Runs it, in a user namespace of its own where this process may create no network namespaces, or with a relay where it
/// may have no user namespace either.
pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let has_privilege = catchment_netns::has_privilege();
    let why_none =
        (!args.relay && !has_privilege).then(catchment_netns::why_no_user_namespace).flatten();
    if let Some(why) = &why_none {
        say!("no network namespaces here ({why}): a relay of this process is the narrow link");
    }
    let has_relay = args.relay || why_none.is_some();
    if !has_relay && !has_privilege {
        let again = catchment_netns::again_with_privilege();
        let again = again.context("a narrow link needs network namespaces").or_fail(Code::Local);
        return again.and_then(|code| if code == 0 { Ok(()) } else { Err(Failure::Silent(code)) });
    }
    let cameras = match args.devices {
        None => CAMERAS,
        Some(devices) => {
            u8::try_from(devices).ok().filter(|devices| (2..=64).contains(devices)).ok_or_else(
                || Failure::new(Code::Usage, anyhow!("2 to 64 cameras share the narrow link")),
            )?
        }
    };
    let link = place::narrow_link(cameras, has_relay);
    let link = link.context("cannot make the narrow link").or_fail(Code::Local)?;
    say!(
        "{cameras} cameras share a link of {} Mbit/s to a collector; cam00 is urgent. {} s as they like, {} s with a \
         transmission controller",
        CAPACITY_BPS / 1_000_000,
        args.seconds.as_secs_f64(),
        args.seconds.as_secs_f64()
    );
    let phase = |with_controller| Phase { args, link: &link, cameras, with_controller };
    let without = phase(false).run()?;
    let with = phase(true).run()?;
    let summary = report::summary(args, (link.name(), cameras), without, with);
    report::print(args, &summary)?;
    report::check(&summary)
}
