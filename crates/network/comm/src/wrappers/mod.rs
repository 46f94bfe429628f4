//! Transports around a transport: counting, faults, and links of a fixed rate.

/// The methods of [`crate::Transport`] that a transport around `self.inner` leaves to that one.
macro_rules! forward_to_inner {
    () => {
        fn rank(&self) -> mesh::Rank {
            self.inner.rank()
        }

        fn world_size(&self) -> usize {
            self.inner.world_size()
        }

        fn is_complete(&self, send: $crate::SendHandle) -> bool {
            self.inner.is_complete(send)
        }

        fn abort(&self, cause: $crate::AbortCause) {
            self.inner.abort(cause);
        }

        fn failure(&self) -> Option<$crate::AbortCause> {
            self.inner.failure()
        }

        fn timeouts(&self) -> $crate::Timeouts {
            self.inner.timeouts()
        }

        fn end_first_step(&self) {
            self.inner.end_first_step();
        }
    };
}

pub mod counting;
pub mod faults;
pub mod paced;
