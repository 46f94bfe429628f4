//! The date that a template may ask for, as `strftime` writes it.

use config::ChatDate;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// `date`, at midnight, in the format of Python's `strftime` in the locale C.
///
/// # Errors
/// A directive that templates do not use.
pub(super) fn formatted(date: ChatDate, format: &str) -> Result<String, String> {
    let (month, day) = (MONTHS[usize::from(date.month - 1)], DAYS[usize::from(date.weekday())]);
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => text.push_str(&format!("{:04}", date.year)),
            Some('y') => text.push_str(&format!("{:02}", date.year % 100)),
            Some('m') => text.push_str(&format!("{:02}", date.month)),
            Some('d') => text.push_str(&format!("{:02}", date.day)),
            Some('e') => text.push_str(&format!("{:2}", date.day)),
            Some('j') => text.push_str(&format!("{:03}", date.day_of_year())),
            Some('B') => text.push_str(month),
            Some('b' | 'h') => text.push_str(&month[..3]),
            Some('A') => text.push_str(day),
            Some('a') => text.push_str(&day[..3]),
            Some('F') => text.push_str(&date.to_string()),
            Some('H' | 'M' | 'S') => text.push_str("00"),
            Some('%') => text.push('%'),
            Some(other) => return Err(format!("strftime_now has no %{other}; use %Y, %m, %d, %B, %b, %A or %a")),
            None => return Err("strftime_now ends with a %".into()),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_python() {
        let date = |text| ChatDate::parse(text).expect("a date");
        let format = "%Y-%m-%d %e %j %B %b %A %a %y %H:%M:%S %%";
        // datetime(2026, 11, 6).strftime(format), and of a leap day.
        let texts = [
            ("2026-11-06", "2026-11-06  6 310 November Nov Friday Fri 26 00:00:00 %"),
            ("2000-02-29", "2000-02-29 29 060 February Feb Tuesday Tue 00 00:00:00 %"),
            ("0001-01-01", "0001-01-01  1 001 January Jan Monday Mon 01 00:00:00 %"),
        ];
        for (day, text) in texts {
            assert_eq!(formatted(date(day), format).as_deref(), Ok(text));
        }
        assert_eq!(
            formatted(date("2026-11-06"), "%Q"),
            Err("strftime_now has no %Q; use %Y, %m, %d, %B, %b, %A or %a".into())
        );
        for wrong in ["2026-02-29", "2026-13-01", "2026-00-10", "2026-1-1", "0000-01-01", "2026-01-01-01", "today"] {
            assert_eq!(ChatDate::parse(wrong), None, "{wrong}");
        }
    }
}
