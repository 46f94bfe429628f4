//! Dates without a library of dates.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today in UTC, as `2026-11-23`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// The date N days after 1970-01-01.
fn date(days: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_are_dates() {
        let cases = [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_454, "2026-01-01"),
            (20_780, "2026-11-23"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ];
        for (days, expected) in cases {
            assert_eq!(date(days), expected);
        }
    }
}
