//! Numbers of a page, as short as a drawing permits.

/// Significant digits of drawn values: a thousandth of a pixel on any screen.
const DIGITS: usize = 6;

/// JSON of a value with six significant digits; a value that is not a number is `null`, an infinity a string.
pub(crate) fn short(value: f64) -> String {
    if value.is_nan() {
        return "null".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "\"Infinity\"".into() } else { "\"-Infinity\"".into() };
    }
    let rounded: f64 = format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value);
    let (plain, scientific) = (format!("{rounded}"), format!("{rounded:e}"));
    if plain.len() <= scientific.len() { plain } else { scientific }
}

/// JSON of an array of such values.
pub(crate) fn array(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<String> = values.map(short).collect();
    format!("[{}]", values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_json() {
        let cases = [
            (0.0, "0"),
            (4.077_312_49, "4.07731"),
            (-2048.0, "-2048"),
            (1.5e-4, "1.5e-4"),
            (1.5e9, "1.5e9"),
            (f64::NAN, "null"),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
            assert!(serde_json::from_str::<serde_json::Value>(&short(value)).is_ok());
        }
        assert_eq!(array([1.0, f64::NAN].into_iter()), "[1,null]");
    }
}
