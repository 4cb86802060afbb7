//! Access rights of memory regions and queue pairs.
use bitflags::bitflags;

bitflags! {
    /// Rights on a memory region (IBTA 10.6.3; `ibv_reg_mr(3)`).
    ///
    /// Local reading is always allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Receives and READ responses may land here.
        const LOCAL_WRITE = 1;
        /// A peer may WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may READ.
        const REMOTE_READ = 1 << 2;
        /// A peer may compare-and-swap and fetch-and-add.
        const REMOTE_ATOMIC = 1 << 3;
        /// A peer may revoke the region's rkey, by SEND with invalidate
        /// (`Caps::remote_invalidate`). Local use of the region continues.
        const REMOTE_INVALIDATE = 1 << 19;
        /// The device may place writes in any order (`IBV_ACCESS_RELAXED_ORDERING`).
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// The rights that let a peer reach the region's bytes.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);

    /// Returns whether a peer may reach the region at all.
    pub fn is_remote(self) -> bool {
        self.intersects(Self::REMOTE)
    }
}
