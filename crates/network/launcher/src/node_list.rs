//! Slurm's short forms: `node[01-03,7]` for names, `2(x3),1` for tasks of each node.

/// More nodes than a machine has; a mistyped range must not fill the memory.
const MAX_NODES: usize = 1 << 16;
/// The most bytes of a name: DNS has 253.
const MAX_NAME_BYTES: usize = 255;
/// The most brackets in a name; each one that is expanded takes a part of the stack.
const MAX_BRACKETS: usize = 8;

/// A list that cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} must be a list such as node[01-03,7]: {reason}")]
pub struct NodeListError {
    /// The list.
    pub text: String,
    /// The part that is wrong.
    pub reason: &'static str,
}

/// The names of a node list, in its order.
///
/// # Errors
/// Brackets that do not match, ranges that are not ascending numbers, more than 65,536 nodes, names of more than 255
/// bytes or 8 brackets, no node.
pub fn expand_node_list(text: &str) -> Result<Vec<String>, NodeListError> {
    let refused = |reason| NodeListError { text: text.into(), reason };
    let mut names = vec![];
    for part in split_outside_brackets(text).map_err(refused)? {
        if part.matches('[').count() > MAX_BRACKETS {
            return Err(refused("a name has more than 8 brackets"));
        }
        expand(part, &mut names).map_err(refused)?;
    }
    if names.is_empty() { Err(refused("it names no node")) } else { Ok(names) }
}

/// The tasks of each node of `2(x3),1`: 2, 2, 2, 1.
///
/// # Errors
/// The errors of [`expand_node_list`].
pub fn expand_tasks_per_node(text: &str) -> Result<Vec<usize>, NodeListError> {
    let refused = |reason| NodeListError { text: text.into(), reason };
    let mut tasks = vec![];
    for part in text.split(',') {
        let (count, repeats) = match part.split_once("(x") {
            None => (part, Some(1)),
            Some((count, rest)) => (count, rest.strip_suffix(')').and_then(|number| number.parse().ok())),
        };
        let (Ok(count), Some(repeats)) = (count.trim().parse::<usize>(), repeats) else {
            return Err(refused("tasks of each node are numbers such as 2(x3),1"));
        };
        if tasks.len().saturating_add(repeats) > MAX_NODES {
            return Err(refused("it has more than 65536 nodes"));
        }
        tasks.extend(std::iter::repeat_n(count, repeats));
    }
    Ok(tasks)
}

/// The parts between commas, of which those within brackets do not count.
fn split_outside_brackets(text: &str) -> Result<Vec<&str>, &'static str> {
    let (mut parts, mut start, mut is_inside) = (vec![], 0, false);
    for (at, character) in text.char_indices() {
        match (character, is_inside) {
            ('[', false) => is_inside = true,
            (']', true) => is_inside = false,
            ('[', true) | (']', false) => return Err("its brackets do not match"),
            (',', false) => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("its brackets do not match");
    }
    parts.push(&text[start..]);
    Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect())
}

/// The names of `prefix[ranges]suffix`; the suffix may have brackets itself.
fn expand(part: &str, names: &mut Vec<String>) -> Result<(), &'static str> {
    let Some((prefix, rest)) = part.split_once('[') else {
        if part.len() > MAX_NAME_BYTES {
            return Err("a name has more than 255 bytes");
        }
        names.push(part.into());
        return if names.len() > MAX_NODES { Err("it has more than 65536 nodes") } else { Ok(()) };
    };
    let (ranges, suffix) = rest.split_once(']').ok_or("its brackets do not match")?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |digits: &str| -> Option<usize> {
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            return Err("a range is a number or two numbers with - between them");
        };
        if from > to {
            return Err("a range ascends");
        }
        if to - from >= MAX_NODES || names.len() > MAX_NODES {
            return Err("it has more than 65536 nodes");
        }
        // Leading zeros are part of the name.
        let width = first.len();
        for number in from..=to {
            expand(&format!("{prefix}{number:0width$}{suffix}"), names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_in_their_order() {
        let cases: [(&str, &[&str]); 6] = [
            ("n1", &["n1"]),
            ("n[1-3]", &["n1", "n2", "n3"]),
            ("node[08-11,2]", &["node08", "node09", "node10", "node11", "node2"]),
            ("a,b[1,3]c,d", &["a", "b1c", "b3c", "d"]),
            ("r[1-2]n[0-1]", &["r1n0", "r1n1", "r2n0", "r2n1"]),
            ("gpu-a100-[007].example.org", &["gpu-a100-007.example.org"]),
        ];
        for (text, expected) in cases {
            assert_eq!(expand_node_list(text).expect("a list"), expected, "{text}");
        }
        assert_eq!(expand_tasks_per_node("2(x3),1"), Ok(vec![2, 2, 2, 1]));
        assert_eq!(expand_tasks_per_node("4"), Ok(vec![4]));
    }

    #[test]
    fn other_lists_are_refused() {
        let cases = [
            ("", "it names no node"),
            ("n[1-2", "its brackets do not match"),
            ("n1]", "its brackets do not match"),
            ("n[3-1]", "a range ascends"),
            ("n[a-b]", "a range is a number or two numbers with - between them"),
            ("n[0-9999999]", "it has more than 65536 nodes"),
            ("n[0-999][0-999]", "it has more than 65536 nodes"),
        ];
        for (text, reason) in cases {
            assert_eq!(expand_node_list(text).expect_err(text).reason, reason, "{text}");
        }
        let reason = |text: &str| expand_node_list(text).expect_err("refused").reason;
        assert_eq!(reason(&format!("{}[0-65535]", "n".repeat(67_000))), "a name has more than 255 bytes");
        assert_eq!(reason(&"[1]".repeat(100_000)), "a name has more than 8 brackets");
        assert_eq!(expand_node_list(&"[1]".repeat(8)), Ok(vec!["1".repeat(8)]));
        for text in ["", "2(x", "2(x99999999)", "x"] {
            assert!(expand_tasks_per_node(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[-a-z0-9\\[\\],()x ]{0,40}") {
            let _ = (expand_node_list(&text), expand_tasks_per_node(&text));
        }
    }
}
