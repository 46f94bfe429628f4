//! The architecture of compiled code.

use std::fmt;
use std::str::FromStr;

use gpu::Capability;

/// An architecture and the form of the code for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// PTX, which the driver compiles for the GPU: `compute_90a`.
    Ptx(String),
    /// A CUBIN for one architecture: `sm_90a`.
    Cubin(String),
}

/// A text that is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("target = {0:?} must be compute_N for PTX or sm_N for a CUBIN, N as in 80, 90a or 100f")]
pub struct TargetError(String);

impl Target {
    /// PTX for GPUs of `capability` and later.
    pub fn ptx(capability: Capability) -> Target {
        Target::Ptx(format!("{}{}", capability.major, capability.minor))
    }

    /// PTX with the instructions that only GPUs of exactly `capability` have, such as `wgmma` of 9.0.
    pub fn specific_ptx(capability: Capability) -> Target {
        Target::Ptx(format!("{}{}a", capability.major, capability.minor))
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let is_architecture = |name: &str| {
            let number = name.trim_end_matches(['a', 'f']);
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && matches!(number.len(), 2 | 3);
            is_number && name.len() - number.len() < 2
        };
        match (text.strip_prefix("compute_"), text.strip_prefix("sm_")) {
            (Some(name), _) if is_architecture(name) => Ok(Target::Ptx(name.into())),
            (_, Some(name)) if is_architecture(name) => Ok(Target::Cubin(name.into())),
            (Some(_) | None, _) => Err(TargetError(text.into())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ptx(name) => write!(f, "compute_{name}"),
            Target::Cubin(name) => write!(f, "sm_{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_printed() {
        for text in ["compute_80", "compute_90a", "sm_90a", "sm_100f", "sm_120"] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text.into()));
        }
        assert_eq!(Target::specific_ptx(Capability { major: 9, minor: 0 }).to_string(), "compute_90a");
        for text in ["90a", "compute_", "sm_9", "sm_90aa", "sm_90b", "lto_90", ""] {
            assert_eq!(text.parse::<Target>(), Err(TargetError(text.into())));
        }
    }
}
