//! Requests to stores that wait for an answer: a line after a few seconds shows that the command continues.

use std::sync::Arc;

use stores::{OnUnanswered, Unanswered};

use crate::messages::stderr::tell;

/// The key that changes how long requests are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// `run.store_seconds`.
    StoreSeconds,
    /// None.
    Fixed,
}

/// Prints a line on the standard error for each request that it hears of.
pub fn on_screen(deadline: Deadline) -> OnUnanswered {
    Arc::new(move |unanswered| tell(&line(unanswered, deadline)))
}

/// An upload that failed and is tried again: its address, the cause, the attempt and the seconds left. Nothing during
/// the first attempt.
pub fn failing(unanswered: &Unanswered<'_>) -> Option<String> {
    let Unanswered { address, reason, attempt, left } = unanswered;
    reason.map(|reason| format!("{address}: {reason}; attempt {attempt}, {} s left", left.as_secs()))
}

fn line(unanswered: &Unanswered<'_>, deadline: Deadline) -> String {
    let Unanswered { address, reason, attempt, left } = unanswered;
    let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
    let key = match deadline {
        Deadline::StoreSeconds => ", which run.store_seconds changes",
        Deadline::Fixed => "",
    };
    format!("{address} has no answer yet{reason}; attempt {attempt}, {} s left{key}\n", left.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_line_names_the_address_the_attempt_and_the_key() {
        let left = Duration::from_secs(594);
        let first = Unanswered { address: "s3://bucket/a", reason: None, attempt: 1, left };
        let third = Unanswered { reason: Some("connection refused"), attempt: 3, ..first };
        assert_eq!(failing(&first), None);
        assert_eq!(failing(&third).as_deref(), Some("s3://bucket/a: connection refused; attempt 3, 594 s left"));
        assert_eq!(line(&first, Deadline::Fixed), "s3://bucket/a has no answer yet; attempt 1, 594 s left\n");
        assert_eq!(
            line(&third, Deadline::StoreSeconds),
            "s3://bucket/a has no answer yet: connection refused; attempt 3, 594 s left, which run.store_seconds changes\n"
        );
    }
}
