//! The exit codes in the help pages.

/// Exit codes of all commands but `prove` and `diff`.
pub const EXIT_CODES: &str = "Exit codes:
  0    done
  1    the work failed
  2    invalid input: arguments, run file, text or checkpoint
  130  ended by Ctrl-C; 143 by SIGTERM, 138 by SIGUSR1 (128 + signal number)";

/// Exit codes of `prove`.
pub const PROVE_EXIT_CODES: &str = "Exit codes:
  0    the two runs are within their bound
  1    they are not, or a run failed, or --strict and a value has no bound
  2    invalid input: arguments, run files or text
  130  ended by Ctrl-C; 143 by SIGTERM (128 + signal number)";
