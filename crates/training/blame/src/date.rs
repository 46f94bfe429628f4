//! Dates and times in UTC, without a library of dates.

/// `2026-11-25 02:31:07 UTC`, for nanoseconds since 1970-01-01.
pub fn utc(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let of_day = seconds % 86_400;
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Year, month and day of the day N after 1970-01-01.
fn civil(days: u64) -> (u64, usize, u64) {
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
    (year, month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn nanoseconds_are_dates() {
        let cases = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_573_867, "2026-11-25 02:31:07 UTC"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(utc(seconds * 1_000_000_000 + 999), expected);
        }
    }
}
