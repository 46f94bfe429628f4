//! Versions of crates and requirements, in the forms that advisories use.

use std::fmt;

/// `major.minor.patch`; a version before a release is less than it, and builds of one release are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    numbers: [u64; 3],
    /// Whether it is the release; otherwise it comes before.
    is_release: bool,
}

impl Version {
    /// Reads a version; parts that are missing are 0.
    ///
    /// # Errors
    /// Parts that are not numbers.
    pub fn parse(text: &str) -> Result<Version, String> {
        let text = text.trim();
        let without_build = text.split('+').next().unwrap_or_default();
        let (numbers, before) = without_build.split_once('-').map_or((without_build, None), |(n, p)| (n, Some(p)));
        let mut parts = [0; 3];
        if numbers.split('.').count() > parts.len() {
            return Err(format!("a version has three numbers; got {text}"));
        }
        for (part, number) in parts.iter_mut().zip(numbers.split('.')) {
            *part = number.parse().map_err(|_| format!("a version has three numbers; got {text}"))?;
        }
        Ok(Version { numbers: parts, is_release: before.is_none() })
    }

    /// The first version that need not be compatible with this one.
    fn next_breaking(&self) -> Version {
        let numbers = match self.numbers {
            [0, 0, patch] => [0, 0, patch + 1],
            [0, minor, _] => [0, minor + 1, 0],
            [major, ..] => [major + 1, 0, 0],
        };
        Version { numbers, is_release: true }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if self.is_release { Ok(()) } else { f.write_str("-pre") }
    }
}

/// Comparisons that a version must fulfil together: `>= 0.7.4, < 0.8.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement(Vec<Comparison>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Comparison {
    Least(Version),
    More(Version),
    Most(Version),
    Less(Version),
    Equal(Version),
    Compatible(Version),
}

impl Requirement {
    /// Reads comparisons with commas between them.
    ///
    /// # Errors
    /// Text that is not a comparison with a version.
    pub fn parse(text: &str) -> Result<Requirement, String> {
        text.split(',').map(|part| comparison(part.trim())).collect::<Result<_, String>>().map(Requirement)
    }

    /// Whether `version` fulfils all.
    pub fn contains(&self, version: &Version) -> bool {
        self.0.iter().all(|comparison| match comparison {
            Comparison::Least(bound) => version >= bound,
            Comparison::More(bound) => version > bound,
            Comparison::Most(bound) => version <= bound,
            Comparison::Less(bound) => version < bound,
            Comparison::Equal(bound) => version == bound,
            Comparison::Compatible(bound) => version >= bound && *version < bound.next_breaking(),
        })
    }
}

fn comparison(text: &str) -> Result<Comparison, String> {
    type Kind = fn(Version) -> Comparison;
    let kinds: [(&str, Kind); 6] = [
        (">=", Comparison::Least),
        ("<=", Comparison::Most),
        (">", Comparison::More),
        ("<", Comparison::Less),
        ("=", Comparison::Equal),
        ("^", Comparison::Compatible),
    ];
    let found = kinds.iter().find_map(|(sign, kind)| text.strip_prefix(sign).map(|rest| (rest, kind)));
    match found {
        Some((rest, kind)) => Version::parse(rest).map(kind),
        None => Version::parse(text).map(Comparison::Compatible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(requirement: &str, version: &str) -> bool {
        Requirement::parse(requirement).expect("a requirement").contains(&Version::parse(version).expect("a version"))
    }

    #[test]
    fn requirements_are_those_of_cargo() {
        for (requirement, inside, outside) in [
            (">= 0.7.4, < 0.8.0", "0.7.9", "0.8.0"),
            (">= 1.0.103", "1.0.104", "1.0.99"),
            ("^ 0.3.1", "0.3.9", "0.4.0"),
            ("^0.0.3", "0.0.3", "0.0.4"),
            ("1.2", "1.9.0", "2.0.0"),
            ("= 2.0.0", "2.0.0", "2.0.1"),
            ("> 1.0.0", "1.0.1", "1.0.0"),
            ("<= 3.1.0", "3.1.0", "3.1.1"),
            (">= 1.0.0", "1.0.0+build.7", "1.0.0-rc.1"),
        ] {
            assert!(holds(requirement, inside), "{requirement} has {inside}");
            assert!(!holds(requirement, outside), "{requirement} does not have {outside}");
        }
        assert!(Requirement::parse(">= x").is_err() && Version::parse("1.2.3.4").is_err());
    }
}
