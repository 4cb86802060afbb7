//! DRUM against what is known of it: an oracle, another solver, closed forms, any input at all.
mod any_input;
mod choosing;
mod closed_forms;
mod conic;
mod family;
mod hosts;
mod independent;
mod oracle;
mod rounds;
mod threads;
mod working;
