//! How much more a file may hold than it has bytes.

use crate::error::Problem;

/// Counts what a file holds, and refuses one that holds far more than its bytes: a bomb.
#[derive(Clone, Debug)]
pub struct Growth {
    held_bytes: u64,
    limit_bytes: u64,
}

impl Growth {
    /// Bytes that a file may hold for each of its own. Text rarely becomes 30 times smaller.
    pub const FACTOR: u64 = 256;
    /// Bytes that any file may hold.
    pub const FREE_BYTES: u64 = 64 << 20;

    /// The limit of a file of `file_bytes`.
    pub fn of_file(file_bytes: u64) -> Growth {
        Growth {
            held_bytes: 0,
            limit_bytes: file_bytes.saturating_mul(Growth::FACTOR).saturating_add(Growth::FREE_BYTES),
        }
    }

    /// Counts `bytes` more.
    ///
    /// # Errors
    /// More than the limit.
    pub fn add(&mut self, bytes: u64) -> Result<(), Problem> {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        if self.held_bytes > self.limit_bytes {
            return Err(Problem::Growth { limit_bytes: self.limit_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_from_the_beginning() {
        let mut growth = Growth::of_file(1000);
        assert_eq!(growth.add(Growth::FREE_BYTES), Ok(()));
        assert_eq!(growth.add(256_000), Ok(()));
        let refused = growth.add(1).expect_err("too much").to_string();
        assert!(refused.starts_with("it holds more than 67364864 bytes, 256 for each of its own"), "{refused}");
    }
}
