//! Which of several processes prints a failure, so that people read it once.

use std::time::Duration;

use run::failure::Failure;
use run::messages::stderr;
use run::process_group::place::own_number;

/// Time that a process other than 0 leaves to process 0, which may refuse the same input: a launcher then ends all
/// others.
const PRECEDENCE: Duration = Duration::from_secs(1);

/// Prints `failure`, unless process 0 does.
pub fn tell(failure: &Failure) {
    match failure {
        Failure::OfFirst(_) => return,
        Failure::Reported(cause) if matches!(**cause, Failure::OfFirst(_)) => return,
        Failure::Input(_) | Failure::Run(_) if own_number().is_ok_and(|number| number > 0) => {
            std::thread::sleep(PRECEDENCE);
        }
        Failure::Input(_)
        | Failure::Run(_)
        | Failure::Work(_)
        | Failure::Write(_)
        | Failure::Reported(_)
        | Failure::Process { .. }
        | Failure::RollBack { .. }
        | Failure::Interrupted { .. } => {}
    }
    stderr::tell(&format!("{}\n", stderr::shown(&failure.to_string())));
}
