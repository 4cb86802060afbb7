//! The transmission controller: rules one by one, and what holds for all inputs.
mod explain;
mod harness;
mod order;
mod priority;
mod properties;
mod refusals;
mod saturated;
mod shares;
mod unheard;
mod windows;
mod working;
