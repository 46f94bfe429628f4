//! The clock of rings and reports: dates that only go forward.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The date when a process first asked for it, and the clock that counts from there.
#[derive(Clone, Copy, Debug)]
struct Began {
    unix: Duration,
    at: Instant,
}

impl Began {
    fn now() -> Began {
        Began { unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), at: Instant::now() }
    }

    /// Nanoseconds since 1970-01-01 at `now`.
    fn unix_ns(self, now: Instant) -> u64 {
        let date = self.unix.saturating_add(now.saturating_duration_since(self.at));
        u64::try_from(date.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds since 1970-01-01, by the date that the host had when this process first asked and the time since then: a
/// host whose date is set during a run makes no instruction longer, and no entry older than the one before it.
pub fn now_ns() -> u64 {
    static BEGAN: OnceLock<Began> = OnceLock::new();
    BEGAN.get_or_init(Began::now).unix_ns(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_that_of_the_beginning_and_the_time_since() {
        let began = Began { unix: Duration::from_secs(1_000), at: Instant::now() };
        let after = |nanos| began.unix_ns(began.at + Duration::from_nanos(nanos));
        assert_eq!([after(0), after(7)], [1_000_000_000_000, 1_000_000_000_007]);
        let before_it = Began { at: began.at + Duration::from_secs(1), ..began };
        assert_eq!(before_it.unix_ns(began.at), 1_000_000_000_000);
    }

    #[test]
    fn a_later_date_is_no_earlier_one() {
        let dates: Vec<u64> = (0..1_000).map(|_| now_ns()).collect();
        assert!(dates.is_sorted() && dates[0] > 1_700_000_000_000_000_000, "{:?}", dates.first());
    }
}
