//! Numbers as people read them.

/// Digits in groups of three: `1,192,960`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 document`, `1,024 documents`, `4 microbatches`.
pub fn counted(number: u64, thing: &str) -> String {
    let plural = match number {
        1 => "",
        _ if thing.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {thing}{plural}", grouped(number))
}

/// Bytes in units of a thousand, three digits: `1.23 MB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let mut number = bytes as f64;
    let mut unit = "B";
    for larger in units {
        // A number that rounds up to 1000 is written in the larger unit.
        if number < 999.5 {
            break;
        }
        (number, unit) = (number / 1000.0, larger);
    }
    match unit {
        "B" => format!("{bytes} B"),
        unit => format!("{} {unit}", three_digits(number)),
    }
}

/// A number with three digits, or all that it has before the point: `0.0868`, `19.5`, `2250`.
pub fn three_digits(number: f64) -> String {
    match number {
        0.9995..9.995 => format!("{number:.2}"),
        9.995..99.95 => format!("{number:.1}"),
        99.95.. => format!("{number:.0}"),
        number if number > 0.0 => format!("{number:.*}", (2.0 - number.log10().floor()) as usize),
        _ => "0".into(),
    }
}

/// Returns the same as [`bytes`], rounded up, so that the number is enough.
pub fn enough_bytes(needed: u64) -> String {
    let third_digit = 10u64.pow(needed.checked_ilog10().unwrap_or(0).saturating_sub(2));
    bytes(needed.div_ceil(third_digit).saturating_mul(third_digit))
}

/// Bytes that are needed and that there are. In full where three digits do not tell them apart.
pub fn apart(needed: u64, there: u64) -> [String; 2] {
    match bytes(needed) == bytes(there) && needed != there {
        true => [needed, there].map(|number| format!("{} bytes", grouped(number))),
        false => [needed, there].map(bytes),
    }
}

/// `1.23 s`, `45.6 ms`, `7.89 µs`.
pub fn seconds(ns: u64) -> String {
    let (value, unit) = match ns {
        ..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        1_000_000_000.. => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_look_different() {
        assert_eq!(apart(85_231_370_240, 85_198_045_184), ["85,231,370,240 bytes", "85,198,045,184 bytes"]);
        assert_eq!(apart(86_000_000_000, 85_198_045_184), ["86.0 GB", "85.2 GB"]);
        assert_eq!(apart(85_200_000_000, 85_200_000_000), ["85.2 GB", "85.2 GB"]);
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_192_960, "1,192,960")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn numbers_have_three_digits_wherever_the_point_is() {
        for (number, text) in
            [(0.0, "0"), (0.08683, "0.0868"), (0.5, "0.500"), (1.0, "1.00"), (19.5, "19.5"), (2250.4, "2250")]
        {
            assert_eq!(three_digits(number), text);
        }
    }

    #[test]
    fn enough_is_never_less() {
        for (needed, text) in [(0, "0 B"), (1000, "1.00 kB"), (414_200_000_000, "415 GB"), (9_991_000, "10.0 MB")] {
            assert_eq!(enough_bytes(needed), text);
        }
    }

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([0, 1, 1024].map(|number| counted(number, "token")), ["0 tokens", "1 token", "1,024 tokens"]);
        assert_eq!([1, 2].map(|number| counted(number, "microbatch")), ["1 microbatch", "2 microbatches"]);
    }

    #[test]
    fn bytes_have_three_digits() {
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994_999, "9.99 MB"),
            (9_995_000, "10.0 MB"),
            (123_456_789_000, "123 GB"),
            (999_600_000, "1.00 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }
}
