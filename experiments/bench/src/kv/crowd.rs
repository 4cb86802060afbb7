//! Many clients of one store between two network namespaces: Figure 13 of the DRUM paper, as far as one machine goes (E5.13).
use super::ends::Path;
use super::row::{Mode, Row, Spot};
use super::{Options, in_place};
use crate::agent::Network;
use crate::goal::{Goal, Limit};
use crate::hop::Hop;
use crate::pair;
use crate::stats::decimals;
use anyhow::{Context as _, Result, ensure};
use catchment_kv::Sided;
use catchment_kv::load::{Load, Mix};
use catchment_netns::VethPair;

const CLIENTS: u32 = 40;
const INTERFACE_MTU: u32 = 9000;
const VALUE_BYTES: usize = 1024;
/// Who is compared, in the order in which the paper has them, the slowest first.
const RIVALS: [(Mode, Path); 3] =
    [(Mode::Raw, Path::Roce), (Mode::Share, Path::Agent), (Mode::Drum, Path::Agent)];
/// Fresh processes of each, in turn; the median is kept.
const RUNS: usize = 5;

/// Measures the mix of the paper that reads most; returns rows in the order of [`RIVALS`], and what they say.
pub(super) fn measure(options: &Options) -> Result<(Vec<Row>, Vec<Goal<Spot>>)> {
    let veth = VethPair::new(INTERFACE_MTU)?;
    let network = Network(Some(Hop::from(&veth)));
    let load = Load {
        mix: Mix::Reads(95),
        keys: options.keys_of(VALUE_BYTES as u64),
        value_bytes: VALUE_BYTES,
    };
    let options = Options { clients: CLIENTS, ..options.clone() };
    let mut found = RIVALS.map(|_| Vec::new());
    for run in 0..RUNS {
        for at in pair::turns(run, RIVALS.len()) {
            let (mode, path) = RIVALS[at];
            let place = (mode, path, Sided::One);
            let row = in_place(&options, ("paper-95-5", load), place, network);
            let row = row.with_context(|| format!("{mode:?}"))?;
            ensure!(row.linearizable == Some(true), "no order explains a run: {row:?}");
            found[at].push(row);
        }
    }
    let rows = found.map(|mut rows| {
        rows.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        rows.swap_remove(RUNS / 2)
    });
    let goals = goals(&rows);
    Ok((rows.into(), goals))
}

/// What was registered: DRUM at least SHARE, SHARE at least RAW.
fn goals([raw, share, drum]: &[Row; 3]) -> Vec<Goal<Spot>> {
    let goal = |name, above: &Row, below: &Row| {
        let ratio = decimals(above.ops_per_s / below.ops_per_s, 4);
        Goal::new(name, above.spot(), ratio, Limit::AtLeast(1.0))
    };
    vec![
        goal("40 clients: operations under DRUM by SHARE's", drum, share),
        goal("40 clients: operations under SHARE by RAW's", share, raw),
    ]
}
