//! Messages between host and guest: JSON objects, one after the other.
use super::{Ended, Start};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    Start(Start),
    /// To the guest: send this signal to the program and all that it started.
    Signal(i32),
    Input(String),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(Ended),
}

impl Frame {
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&serde_json::to_vec(self)?)
    }

    /// Reads exactly one frame; none at the end of the connection.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut frames = serde_json::Deserializer::from_reader(from).into_iter();
        Ok(frames.next().transpose()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_as_they_went() {
        let frames = [
            Frame::Start(Start::like_here(["ip", "link"])),
            Frame::Signal(9),
            Frame::Input("words\n".to_owned()),
            Frame::Stdout(vec![0, 255, 10]),
            Frame::Stderr(Vec::new()),
            Frame::Ended(Ended::Signal(9)),
        ];
        let mut wire = Vec::new();
        for frame in &frames {
            frame.write(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        for frame in frames {
            assert_eq!(Frame::read(&mut rest).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for text in ["{\"Other\":0}", "{\"Stdout\":[256]}", "{\"Stdout\":[1", "{\"Start\":{}}", "{"]
        {
            assert!(Frame::read(&mut text.as_bytes()).is_err(), "{text}");
        }
    }
}
