//! The hosts of ranks: of those of a world, and of the members of one group.

use std::collections::BTreeMap;

use mesh::Group;

/// The host of each rank of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMap {
    /// By rank; ranks past the end are on host 0.
    host_of: Vec<usize>,
}

impl HostMap {
    /// All ranks on one host.
    pub fn one_host() -> HostMap {
        HostMap::default()
    }

    /// Ranks with equal names are on one host; `names` are by rank.
    pub fn by_name<N: Ord>(names: &[N]) -> HostMap {
        let mut first_of = BTreeMap::new();
        let host_of = |(rank, name)| *first_of.entry(name).or_insert(rank);
        HostMap { host_of: names.iter().enumerate().map(host_of).collect() }
    }

    /// The number of the host of each of the first `world_size` ranks: equal for ranks of one host.
    pub fn numbers(&self, world_size: usize) -> impl Iterator<Item = usize> {
        (0..world_size).map(|rank| self.host_of.get(rank).copied().unwrap_or(0))
    }

    /// The hosts of the members of `group`.
    pub fn of_group(&self, group: &Group) -> GroupHosts {
        let host_of = |rank: usize| self.host_of.get(rank).copied().unwrap_or(0);
        GroupHosts::new(group.members().iter().map(|member| host_of(member.0)))
    }
}

/// The hosts of the members of one group, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHosts {
    /// The positions of the members on each host, ascending; hosts in the order of their first members.
    on_host: Vec<Vec<usize>>,
    /// By position.
    places: Vec<Place>,
}

/// Where a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Index of its host.
    host: usize,
    /// Its place among the members of the group there.
    place: usize,
}

impl GroupHosts {
    /// Members on the hosts of these numbers, by position.
    fn new(host_of: impl Iterator<Item = usize>) -> GroupHosts {
        let (mut index_of, mut on_host, mut places): (BTreeMap<usize, usize>, Vec<Vec<usize>>, Vec<Place>) =
            (BTreeMap::new(), vec![], vec![]);
        for (position, number) in host_of.enumerate() {
            let host = *index_of.entry(number).or_insert(on_host.len());
            if host == on_host.len() {
                on_host.push(vec![]);
            }
            places.push(Place { host, place: on_host[host].len() });
            on_host[host].push(position);
        }
        GroupHosts { on_host, places }
    }

    /// A group of `members` on one host.
    pub fn one_host(members: usize) -> GroupHosts {
        GroupHosts::new(std::iter::repeat_n(0, members))
    }

    /// A group with these numbers of members on its hosts, which follow each other.
    pub fn filled(members_of_hosts: &[usize]) -> GroupHosts {
        GroupHosts::new(
            members_of_hosts.iter().enumerate().flat_map(|(host, members)| std::iter::repeat_n(host, *members)),
        )
    }

    /// The number of members.
    pub fn members(&self) -> usize {
        self.places.len()
    }

    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        self.on_host.len()
    }

    /// Whether some member has another on its host, and another on another host.
    pub fn is_hierarchical(&self) -> bool {
        self.hosts() > 1 && self.members() > self.hosts()
    }

    /// Whether two members are on one host.
    pub fn share_host(&self, one: usize, other: usize) -> bool {
        self.places[one].host == self.places[other].host
    }

    /// The positions of all members on the host of `position`, ascending.
    pub fn on_host_of(&self, position: usize) -> &[usize] {
        &self.on_host[self.places[position].host]
    }

    /// The members on other hosts to which `position` sends what all of them get: one on each, at the same place there
    /// as `position` on its own, counted round where that host has fewer.
    pub fn relays_of(&self, position: usize) -> impl Iterator<Item = usize> {
        let Place { host: own, place } = self.places[position];
        let others = self.on_host.iter().enumerate().filter(move |(host, _)| *host != own);
        others.map(move |(_, members)| members[place % members.len()])
    }

    /// The member on the host of `position` that gets what `source` sends there: `source` itself on its own host.
    pub fn relay_for(&self, source: usize, position: usize) -> usize {
        if self.share_host(source, position) {
            return source;
        }
        let members = self.on_host_of(position);
        members[self.places[source].place % members.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_sends_to_its_place_on_every_other_host() {
        let hosts = GroupHosts::new([7, 7, 3, 7, 3].into_iter());
        assert_eq!((hosts.members(), hosts.hosts()), (5, 2));
        assert_eq!(hosts.on_host_of(1), [0, 1, 3]);
        let relays = |position| hosts.relays_of(position).collect::<Vec<_>>();
        assert_eq!([relays(0), relays(1), relays(3)], [[2], [4], [2]], "counted round");
        assert_eq!([relays(2), relays(4)], [[0], [1]]);
        for (source, position) in (0..5).flat_map(|source| (0..5).map(move |position| (source, position))) {
            let relay = hosts.relay_for(source, position);
            assert!(hosts.share_host(relay, position));
            assert!(relay == source || relays(source).contains(&relay));
        }
    }

    #[test]
    fn a_group_is_hierarchical_on_several_hosts_of_several_members() {
        let is_hierarchical = |members: &[usize]| GroupHosts::filled(members).is_hierarchical();
        assert!(is_hierarchical(&[2, 2]) && is_hierarchical(&[3, 1]));
        assert!(!is_hierarchical(&[4]) && !is_hierarchical(&[1, 1, 1]) && !is_hierarchical(&[1]));
        assert_eq!(GroupHosts::one_host(3), GroupHosts::filled(&[3]));
    }

    #[test]
    fn ranks_of_equal_names_are_on_one_host() {
        let map = HostMap::by_name(&["b", "a", "b", "c"]);
        assert_eq!(map.numbers(5).collect::<Vec<_>>(), [0, 1, 0, 3, 0]);
        assert_eq!(HostMap::one_host().numbers(2).collect::<Vec<_>>(), [0, 0]);
    }
}
