//! Keys: one for each direction and epoch, all from the root that both ends have.
use ring::hmac;

/// Bytes of the root, which both ends export from their TLS session.
pub const ROOT_BYTES: usize = 32;
/// Bytes of a code in a datagram.
pub(super) const CODE_BYTES: usize = 16;
const LABEL: &[u8] = b"catchment admission 1";

/// The way that a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the source.
    ToController,
    /// From the controller.
    ToSource,
}

/// What all keys of a session are made from, when they are needed: a key takes five times as much memory.
#[derive(Clone)]
pub(super) struct Root(pub(super) [u8; ROOT_BYTES]);

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Root")
    }
}

impl Root {
    pub(super) fn key(&self, direction: Direction, epoch: u8) -> Key {
        let direction = match direction {
            Direction::ToController => 1,
            Direction::ToSource => 2,
        };
        let root = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut context = hmac::Context::with_key(&root);
        context.update(LABEL);
        context.update(&[direction, epoch]);
        Key(hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref()))
    }
}

/// The key of an epoch.
#[derive(Clone)]
pub(super) struct Key(hmac::Key);

impl Key {
    /// Returns the code of a header and its records.
    pub(super) fn code(&self, header: &[u8], records: &[u8]) -> [u8; CODE_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(header);
        context.update(records);
        let mut code = [0; CODE_BYTES];
        code.copy_from_slice(&context.sign().as_ref()[..CODE_BYTES]);
        code
    }
}
