//! What is measured, by perftest's names.
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// RDMA WRITE with immediate data, which takes a posted receive.
    WriteImm,
    /// SEND into posted receives.
    Send,
}

impl Operation {
    /// Returns whether a request takes a receive of the peer.
    pub fn takes_receive(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send)
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Bytes a second.
    Bandwidth,
    /// Time of one request.
    Latency,
}

/// A measurement, by the name that perftest gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{}", self.name())]
pub struct Test {
    /// What a request does.
    pub operation: Operation,
    /// What is asked for.
    pub figure: Figure,
}

impl Test {
    /// All there are.
    pub const ALL: [(&'static str, Self); 8] = [
        ("write_bw", Self::new(Operation::Write, Figure::Bandwidth)),
        ("write_lat", Self::new(Operation::Write, Figure::Latency)),
        ("read_bw", Self::new(Operation::Read, Figure::Bandwidth)),
        ("read_lat", Self::new(Operation::Read, Figure::Latency)),
        ("write_imm_bw", Self::new(Operation::WriteImm, Figure::Bandwidth)),
        ("write_imm_lat", Self::new(Operation::WriteImm, Figure::Latency)),
        ("send_bw", Self::new(Operation::Send, Figure::Bandwidth)),
        ("send_lat", Self::new(Operation::Send, Figure::Latency)),
    ];

    /// Names a test.
    pub const fn new(operation: Operation, figure: Figure) -> Self {
        Self { operation, figure }
    }

    /// Returns its name: `write_bw` and so on.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, test)| *test == self).map_or("", |(name, _)| name)
    }
}

/// No test has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no test \"{seen}\"; there are: {}", names())]
pub struct TestParseError {
    seen: String,
}

fn names() -> String {
    Test::ALL.map(|(name, _)| name).join(", ")
}

impl FromStr for Test {
    type Err = TestParseError;

    fn from_str(text: &str) -> Result<Self, TestParseError> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found
            .map(|(_, test)| test)
            .ok_or_else(|| TestParseError { seen: text.chars().take(32).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_tests_and_back() {
        for (name, test) in Test::ALL {
            assert_eq!(name.parse(), Ok(test));
            assert_eq!(test.to_string(), name);
        }
        let wrong = "write_bww".parse::<Test>().unwrap_err().to_string();
        assert!(wrong.contains("write_bww") && wrong.contains("send_lat"), "{wrong}");
    }
}
