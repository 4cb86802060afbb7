//! Mechanisms by name, as plans have them, whatever their type.
use super::mechanism::{Shape, Visit};
use super::plan::BlockPlan;
use super::run::{Active, Passive};
use super::status_byte::{CopyMode, StatusByte};
use crate::PerfError;
use crate::span::Measured;
use std::fmt;

/// A mechanism without its sizes.
pub trait BlockMechanism: Sync {
    /// Returns its name, as plans and tables have it.
    fn name(&self) -> &'static str;

    /// Returns whether blocks are filled in the peer's memory, which needs
    /// [`Caps::direct`](catchment_verbs::Caps::direct).
    fn fills_in_place(&self) -> bool {
        false
    }

    /// Makes it with these sizes and measures it: [`Visit::visit`] of `side`.
    ///
    /// # Errors
    /// Those of [`Active::visit`](Visit::visit).
    fn measure(&self, shape: Shape, side: Active<'_>) -> Result<Measured, PerfError>;

    /// Makes it with these sizes and does the passive side's part: [`Visit::visit`] of `side`.
    ///
    /// # Errors
    /// Those of [`Passive::visit`](Visit::visit).
    fn serve(&self, shape: Shape, side: Passive<'_>) -> Result<(), PerfError>;
}

impl fmt::Debug for dyn BlockMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The product's mechanism, copying and in place.
pub static STATUS_BYTE: &[&'static dyn BlockMechanism] = &[&CopyMode::Copy, &CopyMode::InPlace];

impl BlockMechanism for CopyMode {
    fn name(&self) -> &'static str {
        match self {
            Self::Copy => "sb",
            Self::InPlace => "sb-in-place",
        }
    }

    fn fills_in_place(&self) -> bool {
        *self == Self::InPlace
    }

    fn measure(&self, shape: Shape, side: Active<'_>) -> Result<Measured, PerfError> {
        side.visit(StatusByte::new(shape, *self))
    }

    fn serve(&self, shape: Shape, side: Passive<'_>) -> Result<(), PerfError> {
        side.visit(StatusByte::new(shape, *self))
    }
}

/// Returns the mechanism that a plan names, if the plan can be carried out.
///
/// # Errors
/// [`PerfError::Plan`] with what cannot be, or with the names of those there are.
pub fn find_mechanism(
    plan: &BlockPlan,
    mechanisms: &[&'static dyn BlockMechanism],
) -> Result<&'static dyn BlockMechanism, PerfError> {
    plan.check()?;
    mechanisms.iter().find(|one| one.name() == plan.mechanism).copied().ok_or_else(|| {
        let names: Vec<&str> = mechanisms.iter().map(|one| one.name()).collect();
        let seen: String = plan.mechanism.chars().take(32).collect();
        let names = names.join(", ");
        PerfError::Plan(format!("there is no mechanism {seen:?} here; there are: {names}"))
    })
}
