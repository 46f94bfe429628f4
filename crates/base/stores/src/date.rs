//! Times of the protocol: stamps of signatures, and the times at which objects changed.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: i64 = 86_400;
/// Names of months in headers of HTTP.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// `20260101`.
    pub date: String,
    /// `20260101T000000Z`.
    pub time: String,
}

impl Stamp {
    /// At this moment, by the clock of the machine.
    pub fn now() -> Stamp {
        Stamp::at(now_ms() / 1000)
    }

    /// At `seconds` since 1970.
    pub fn at(seconds: i64) -> Stamp {
        let (year, month, day) = date_of(seconds.div_euclid(DAY_SECONDS));
        let of_day = seconds.rem_euclid(DAY_SECONDS);
        let date = format!("{year:04}{month:02}{day:02}");
        let time = format!("{date}T{:02}{:02}{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60);
        Stamp { date, time }
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Milliseconds since 1970 at `2026-01-01T00:00:00.000Z`, with or without a fraction.
pub fn of_listing(text: &str) -> Option<i64> {
    let (date, time) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let first_three: String = fraction.chars().chain("00".chars()).take(3).collect();
    if date.next().is_some() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(seconds_of(year, month, day, time)? * 1000 + number(&first_three)?)
}

/// Milliseconds since 1970 at `Thu, 01 Jan 2026 00:00:00 GMT`.
pub fn of_header(text: &str) -> Option<i64> {
    let (_, rest) = text.split_once(',')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [day, month, year, time, "GMT" | "UTC" | "+0000"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    Some(seconds_of(number(year)?, month, number(day)?, time)? * 1000)
}

fn number(digits: &str) -> Option<i64> {
    let is_short = (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_short)
}

/// Seconds since 1970 at `time`, `HH:MM:SS`, of a day.
fn seconds_of(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let mut time = time.split(':').map(number);
    let (hours, minutes, seconds) = (time.next()??, time.next()??, time.next()??);
    let is_sound = time.next().is_none() && hours < 24 && minutes < 60 && seconds <= 60;
    let days = days_to(year, month, day);
    let is_date = (1..=12).contains(&month) && date_of(days) == (year, month, day);
    (is_sound && is_date).then(|| days * DAY_SECONDS + hours * 3600 + minutes * 60 + seconds)
}

/// The date of a day, counted from 1970-01-01. In a year that begins in March the leap day is the last one, so that the
/// days before a month are (153 m + 2) / 5.
fn date_of(days: i64) -> (i64, i64, i64) {
    let since_march_0 = days + 719_468;
    let (era, of_era) = (since_march_0.div_euclid(146_097), since_march_0.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`date_of`].
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_calendars() {
        // From `date --utc --date=@SECONDS`.
        for (seconds, time) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_767_225_599, "20251231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(Stamp::at(seconds).time, time);
            assert_eq!(Stamp::at(seconds).date, time[..8]);
        }
    }

    #[test]
    fn times_of_objects_are_read_in_both_forms() {
        assert_eq!(of_listing("2026-01-01T00:00:00.000Z"), Some(1_767_225_600_000));
        assert_eq!(of_listing("2026-01-01T00:00:00Z"), Some(1_767_225_600_000));
        assert_eq!(of_listing("2000-02-29T23:59:59.1Z"), Some(951_868_799_100));
        assert_eq!(of_header("Thu, 01 Jan 2026 00:00:00 GMT"), Some(1_767_225_600_000));
        assert_eq!(of_header("Fri, 24 May 2013 12:30:05 +0000"), Some(1_369_398_605_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-01-01",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00.-1Z",
            "2026-01-01T00:00:00+01:00",
            "99999-01-01T00:00:00Z",
        ] {
            assert_eq!(of_listing(text), None, "{text}");
        }
        for text in ["", "Thu, 01 Jan 2026 00:00:00 CET", "01 Jan 2026 00:00:00 GMT", "Thu, 31 Feb 2026 00:00:00 GMT"] {
            assert_eq!(of_header(text), None, "{text}");
        }
    }
}
