//! Warns of a `run.on_loss` that has no effect: nobody would notice that a host is lost.

use config::OnLoss;
use launcher::variable;

/// Who asks after a failure which hosts still answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWatch {
    /// `pleach launch --hosts`, which may start the run this many times again.
    Launch { restarts: u32 },
    /// `pleach launch` of processes on its own host.
    OneHost,
    /// No `pleach launch` started the processes of the run.
    Nobody,
}

impl HostWatch {
    /// Of this process of a run: `pleach launch` warns by itself.
    fn of_process() -> Option<HostWatch> {
        std::env::var_os(variable::PARENT).is_none().then_some(HostWatch::Nobody)
    }
}

/// A warning, where `pleach launch` does not start the processes of a run that has `on_loss`.
pub fn warning_of_process(on_loss: OnLoss) -> Option<String> {
    warning(on_loss, HostWatch::of_process()?)
}

/// A warning, where `on_loss` is set and has no effect.
pub fn warning(on_loss: OnLoss, watch: HostWatch) -> Option<String> {
    let choice = match on_loss {
        OnLoss::Stop => return None,
        OnLoss::Wait => "wait",
        OnLoss::Replan => "replan",
    };
    let reason = match watch {
        HostWatch::Launch { restarts: 0 } => "without --restarts",
        HostWatch::Launch { restarts: _ } => return None,
        HostWatch::OneHost => "without --hosts",
        HostWatch::Nobody => "here, because no `pleach launch` started this process",
    };
    Some(format!(
        "warning: run.on_loss = \"{choice}\" has no effect {reason}; to continue after the loss of a host, start the run \
         with `pleach launch --hosts FILE --restarts N -- train ...`\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_but_one_with_hosts_and_restarts_is_warned_about() {
        let watches = [
            HostWatch::Launch { restarts: 0 },
            HostWatch::Launch { restarts: 1 },
            HostWatch::OneHost,
            HostWatch::Nobody,
        ];
        let warned = |on_loss| watches.map(|watch| warning(on_loss, watch).is_some());
        assert_eq!(warned(OnLoss::Stop), [false; 4]);
        assert_eq!(warned(OnLoss::Wait), [true, false, true, true]);
        assert_eq!(warned(OnLoss::Replan), [true, false, true, true]);
        assert_eq!(
            warning(OnLoss::Replan, HostWatch::OneHost).as_deref(),
            Some(
                "warning: run.on_loss = \"replan\" has no effect without --hosts; to continue after the loss of a host, start the \
                 run with `pleach launch --hosts FILE --restarts N -- train ...`\n"
            )
        );
    }
}
