//! The pace at which a server must answer.

use std::time::Duration;

/// The least pace of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A connection that does not open, or on which nothing moves, for this long ends.
    pub silence: Duration,
    /// A body is measured over this time.
    pub window: Duration,
    /// Bytes per second of a body.
    pub least_rate: u64,
}

impl Pace {
    /// Of stores and web servers. Mobile lines of the slowest kind have 4 kB/s; below 1 KiB/s a manifest of 1 MB takes
    /// 16 minutes, and a server that sends so little is not one that another attempt may not replace. The window is
    /// longer than a silence, so that one pause that is shorter does not end a body whose line is sound.
    pub const OF_SERVERS: Pace =
        Pace { silence: Duration::from_secs(20), window: Duration::from_secs(30), least_rate: 1024 };

    /// Of the services of a machine, which are near.
    pub const OF_MACHINE: Pace =
        Pace { silence: Duration::from_secs(1), window: Duration::from_secs(2), least_rate: 1024 };

    /// Whether `bytes` in `time` are fast enough.
    pub fn suffices(self, bytes: u64, time: Duration) -> bool {
        bytes as f64 >= self.least_rate as f64 * time.as_secs_f64()
    }
}

/// The bytes of a body in the window that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    pace: Pace,
    bytes: u64,
    waited: Duration,
}

/// A body that is too slow.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{bytes} bytes arrived in {seconds:.0} s, and the least rate is {least_rate} bytes per second")]
pub struct TooSlow {
    pub bytes: u64,
    pub seconds: f64,
    pub least_rate: u64,
}

impl Meter {
    /// Of a body of which nothing has arrived.
    pub fn new(pace: Pace) -> Meter {
        Meter { pace, bytes: 0, waited: Duration::ZERO }
    }

    /// Counts `bytes` for which the reader waited so long; the time in which they are written elsewhere does not count.
    ///
    /// # Errors
    /// A window with too few bytes.
    pub fn add(&mut self, bytes: u64, waited: Duration) -> Result<(), TooSlow> {
        self.bytes += bytes;
        self.waited += waited;
        if self.waited < self.pace.window {
            return Ok(());
        }
        let (bytes, time) = (self.bytes, self.waited);
        *self = Meter::new(self.pace);
        match self.pace.suffices(bytes, time) {
            true => Ok(()),
            false => Err(TooSlow { bytes, seconds: time.as_secs_f64(), least_rate: self.pace.least_rate }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_in_five_seconds_is_too_slow_and_a_pause_is_not() {
        let second = Duration::from_secs(1);
        let mut meter = Meter::new(Pace::OF_SERVERS);
        let slow: Vec<_> = (0..6).map(|_| meter.add(1, 5 * second)).collect();
        assert!(slow[..5].iter().all(Result::is_ok), "{slow:?}");
        let error = slow[5].expect_err("too slow").to_string();
        assert_eq!(error, "6 bytes arrived in 30 s, and the least rate is 1024 bytes per second");
        // A window in which most of the time nothing came, and then all of it.
        let mut meter = Meter::new(Pace::OF_SERVERS);
        assert_eq!(meter.add(1, 19 * second), Ok(()));
        assert_eq!(meter.add(30 * 1024, 11 * second), Ok(()));
        // Each window counts by itself: the bytes of a fast one do not count for a slow one.
        assert_eq!(meter.add(1 << 30, second), Ok(()));
        assert_eq!(meter.add(0, 29 * second), Ok(()));
        assert!(meter.add(30 * 1024 - 1, 30 * second).is_err());
    }
}
