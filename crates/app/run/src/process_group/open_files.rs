//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the largest value that this user may set. A process has a connection to each other process, and
/// many systems allow 1,024 files unless a program asks for more.
pub fn allow_all_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Without it, a connection too many fails with a message of its own.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_largest_that_may_be_set() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum }).expect("a lower limit");
        allow_all_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
