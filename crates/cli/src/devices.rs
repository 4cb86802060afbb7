//! `catchment devices`: what a session could use.
use crate::args::DevicesArgs;
use crate::failure::Failure;
use crate::output::table::Table;
use crate::output::{self};
use catchment_doctor::devices::{Device, devices};

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let all = devices(&args.devices.roce(), &args.devices.ibverbs());
    if args.json {
        return all.iter().try_for_each(output::print_json);
    }
    let heading = [
        "provider", "device", "state", "interface", "MTU", "path MTU", "speed", "addresses", "note",
    ];
    let mut table = Table::new(&heading, heading.len());
    for device in &all {
        table.row(row(device));
    }
    output::print(&table.text())
}

fn row(device: &Device) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let number = |n: Option<u32>| or_dash(n.map(|n| n.to_string()));
    let addresses = device.addresses.join(" ");
    vec![
        device.provider.to_owned(),
        device.name.clone(),
        device.state.clone(),
        or_dash(device.interface.clone()),
        number(device.mtu_bytes),
        number(device.path_mtu),
        or_dash(device.speed.clone()),
        or_dash((!addresses.is_empty()).then_some(addresses)),
        device.note.clone(),
    ]
}
