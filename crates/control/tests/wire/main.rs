//! The wire format of admission: what is written is read again, and nothing else.
mod corpus;
mod ends;
mod going_on;
mod hostile;
mod paper;
mod rates;
mod samples;
mod seals;
mod shared;
mod silent;
mod strangers;
mod takeover;
mod vectors;
