//! Too many connections of which nothing is known.

use std::collections::BTreeMap;

/// The connection that goes where there are too many, of those in the order of their age, each with its host: the
/// oldest of the host that has most of them. So a host that opens many connections keeps only its own processes out.
pub fn first_to_go<C: Copy, H: Copy + Ord>(connections: impl Iterator<Item = (C, H)> + Clone) -> Option<C> {
    let mut hosts: BTreeMap<H, usize> = BTreeMap::new();
    connections.clone().for_each(|(_, host)| *hosts.entry(host).or_default() += 1);
    let (most, _) = hosts.into_iter().max_by_key(|(_, count)| *count)?;
    connections.into_iter().find(|(_, host)| *host == most).map(|(connection, _)| connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_host_with_most_goes() {
        let of = |hosts: &[char]| first_to_go(hosts.iter().copied().enumerate());
        assert_eq!(of(&['a', 'b', 'c', 'b']), Some(1));
        assert_eq!(of(&['a', 'b', 'a', 'b', 'a']), Some(0));
        assert_eq!(of(&[]), None);
    }
}
