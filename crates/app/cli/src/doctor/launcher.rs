//! Who started this process, for the report.

use std::fmt;

use launcher::{Environment, Launch, LaunchError, launch};
use serde::{Serialize, Serializer};

/// The launcher of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// None.
    Alone,
    /// One of several processes, or of one.
    By(Launch),
    /// Variables that cannot be used.
    Unclear(LaunchError),
}

impl Started {
    /// As the variables say.
    pub fn of(environment: Environment<'_>) -> Started {
        match launch(environment) {
            Ok(None) => Started::Alone,
            Ok(Some(launch)) => Started::By(launch),
            Err(error) => Started::Unclear(error),
        }
    }
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Started::Alone => f.write_str("none"),
            Started::By(launch) => match &launch.rendezvous {
                None => write!(f, "{launch}"),
                Some(address) => write!(f, "{launch}; process 0 listens at {address}"),
            },
            Started::Unclear(error) => write!(f, "{error}"),
        }
    }
}

#[derive(Serialize)]
struct Record {
    name: &'static str,
    process: usize,
    processes: usize,
    rendezvous: Option<String>,
}

#[derive(Serialize)]
struct Problem {
    problem: String,
}

impl Serialize for Started {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Started::Alone => serializer.serialize_none(),
            Started::By(Launch { launcher, process, processes, rendezvous, .. }) => {
                let rendezvous = rendezvous.as_ref().map(ToString::to_string);
                Record { name: launcher.name(), process: *process, processes: *processes, rendezvous }
                    .serialize(serializer)
            }
            Started::Unclear(error) => Problem { problem: error.to_string() }.serialize(serializer),
        }
    }
}
