//! What a capacity turns out to be, beside what it is stated as: how far it falls, and how it climbs again. Links of the
//! admission controller and hosts that send do the same.

/// Between two steps upwards.
pub(crate) const CLIMB_NS: u64 = 100_000_000;
/// Of the stated capacity, a step: 5 % a second.
const CLIMB_PARTS: u64 = 200;
/// Of what was measured, in percent: what waits becomes less.
const KEPT_PERCENT: u64 = 98;

/// Returns what works of a capacity of which so much was measured: `least` at least, and never more than is stated.
pub(crate) fn lowered(measured: u64, least: u64, stated: u64) -> u64 {
    part(measured, KEPT_PERCENT, 100).max(least).min(stated)
}

/// Returns what works of a capacity a step later.
pub(crate) fn climbed(working: u64, stated: u64) -> u64 {
    working.saturating_add((stated / CLIMB_PARTS).max(1)).min(stated)
}

/// Returns `amount` times `of` divided by `whole`.
pub(crate) fn part(amount: u64, of: u64, whole: u64) -> u64 {
    let part = u128::from(amount) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
