//! The hosts of ranks as text: a picture, and the groups that cross hosts.

use std::path::Path;

use cluster::Cluster;
use config::figures::{bytes, counted};
use launcher::{Host, RankPlacement, launch};
use mesh::{Axis, AxisSet, Mesh, PlacementOrder, Rank};
use run::failure::Failure;
use run::memory::host::{HostMemory, HostProcess, counted_processes};
use run::process_group::host_file::read_hosts;
use run::process_group::place::variable_of_launch;
use train::Setup;

/// Hosts that are drawn; of more, the first.
const DRAWN: usize = 16;
/// Processes of a host that are drawn.
const DRAWN_PROCESSES: usize = 16;

/// Ranks on hosts, with the mesh that they come from.
#[derive(Debug)]
pub struct RankHosts {
    mesh: Mesh,
    placement: RankPlacement,
    /// Numbers of ranks, processes and hosts, in a line.
    title: String,
    arenas: Arenas,
}

/// Where the arenas of ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arenas {
    /// In the memory of the host.
    OnHosts,
    /// On an accelerator of each rank.
    OnAccelerators,
}

impl RankHosts {
    /// The hosts of `file`, or of the launcher, filled in `order`; `None` where neither names any.
    ///
    /// # Errors
    /// A file that does not list hosts; processes that do not divide the ranks.
    pub fn known(mesh: &Mesh, order: PlacementOrder, file: Option<&Path>) -> Result<Option<RankHosts>, Failure> {
        let (hosts, source) = match file {
            Some(path) => (read_hosts(path, 1)?, "--hosts"),
            None => {
                let launch = launch(&variable_of_launch);
                let launch = launch.map_err(|error| Failure::Input(error.to_string()))?;
                let Some((launcher, hosts)) = launch.and_then(|launch| Some((launch.launcher, launch.hosts?))) else {
                    return Ok(None);
                };
                (hosts, launcher.name())
            }
        };
        RankHosts::new((mesh, order), &hosts, source, String::new()).map(Some)
    }

    /// The nodes of a cluster, each rank with an accelerator of its own.
    ///
    /// # Errors
    /// None that is known: one rank for each process divides all.
    pub fn on_cluster(mesh: &Mesh, order: PlacementOrder, name: &str, cluster: &Cluster) -> Result<RankHosts, Failure> {
        let (world, of_node) = (mesh.world_size(), cluster.node.accelerators.max(1));
        let node =
            |number: usize| Host { name: format!("node{number}"), processes: of_node.min(world - number * of_node) };
        let hosts: Vec<Host> = (0..world.div_ceil(of_node)).map(node).collect();
        let accelerator = &cluster.accelerator;
        let memory = bytes(accelerator.memory_bytes() as u64);
        let about = format!(", {of_node} x {} with {memory} each", accelerator.name);
        let hosts = RankHosts::new((mesh, order), &hosts, &format!("--cluster {name}"), about)?;
        Ok(RankHosts { arenas: Arenas::OnAccelerators, ..hosts })
    }

    fn new(
        (mesh, order): (&Mesh, PlacementOrder),
        hosts: &[Host],
        source: &str,
        about: String,
    ) -> Result<RankHosts, Failure> {
        let placement =
            RankPlacement::new(mesh, hosts, order).map_err(|error| Failure::Input(format!("{source}: {error}")))?;
        let title = format!(
            "hosts   {} in {} on {} of {source}{about}",
            counted(mesh.world_size() as u64, "rank"),
            counted_processes(placement.processes()),
            counted(hosts.len() as u64, "host"),
        );
        Ok(RankHosts { mesh: *mesh, placement, title, arenas: Arenas::OnHosts })
    }

    /// Each host with the ranks of each of its processes.
    pub fn processes(&self) -> Vec<(String, Vec<Vec<usize>>)> {
        let numbers = |process: usize| self.placement.ranks_of(process).iter().map(|rank| rank.0).collect();
        let mut next = 0;
        let mut all = vec![];
        for host in self.placement.hosts() {
            all.push((host.name.clone(), (next..next + host.processes).map(numbers).collect()));
            next += host.processes;
        }
        all
    }

    /// The ranks of each host, in the order of its processes.
    pub fn ranks(&self) -> Vec<(String, Vec<Rank>)> {
        let all = self.processes().into_iter();
        all.map(|(host, processes)| (host, processes.concat().into_iter().map(Rank).collect())).collect()
    }

    /// The memory of the run of `setup` on each host, which takes checkpoints every `memory_every` steps; nothing where
    /// ranks have accelerators.
    ///
    /// # Errors
    /// None that is known: every rank is placed once.
    pub fn memory(&self, setup: &Setup, memory_every: u32) -> Result<Vec<HostMemory>, Failure> {
        match self.arenas {
            Arenas::OnAccelerators => Ok(vec![]),
            Arenas::OnHosts => {
                let process = |number: usize| HostProcess {
                    host: self.placement.hosts()[self.placement.host_of_process(number)].name.clone(),
                    ranks: self.placement.ranks_of(number).to_vec(),
                };
                let processes: Vec<HostProcess> = (0..self.placement.processes()).map(process).collect();
                HostMemory::of_hosts(setup, &processes, memory_every)
            }
        }
    }

    /// A line for each host with the ranks of each process, then the groups that cross hosts.
    pub fn drawn(&self) -> String {
        let hosts = self.processes();
        let width = hosts.iter().take(DRAWN).map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let digits = self.mesh.world_size().saturating_sub(1).to_string().len();
        let mut text = format!("{}\n", self.title);
        for (name, processes) in hosts.iter().take(DRAWN) {
            let ranks = |ranks: &Vec<usize>| -> String {
                ranks.iter().map(|rank| format!(" {rank:>digits$}")).collect::<String>() + " |"
            };
            let shown: String = processes.iter().take(DRAWN_PROCESSES).map(ranks).collect();
            let more = match processes.len().saturating_sub(DRAWN_PROCESSES) {
                0 => String::new(),
                more => format!(" and {more} more processes"),
            };
            text += &format!("  {name:<width$}  |{shown}{more}\n");
        }
        if hosts.len() > DRAWN {
            text += &format!("  and {} more hosts\n", hosts.len() - DRAWN);
        }
        text + &self.crossings() + &self.warning()
    }

    /// The host and the process of a rank, in a line.
    pub fn place(&self, rank: Rank) -> String {
        let host = &self.placement.hosts()[self.placement.host_of(rank)];
        format!("  is in process {} on host {}\n", self.placement.process_of(rank), host.name)
    }

    /// How many groups of each kind cross hosts.
    fn crossings(&self) -> String {
        let kinds = [
            ("tp", AxisSet::of(Axis::Tp)),
            ("cp", AxisSet::of(Axis::Cp)),
            ("pp", AxisSet::of(Axis::Pp)),
            ("ep", AxisSet::of(Axis::Ep)),
            ("dp", AxisSet::DATA.with(Axis::Ep)),
        ];
        let kinds = kinds.into_iter().filter(|(_, axes)| self.mesh.size(*axes) > 1);
        let (mut staying, mut parts) = (vec![], vec![]);
        for (name, axes) in kinds {
            let all = self.mesh.groups(axes).len();
            match self.placement.crossing(&self.mesh, axes).len() {
                0 => staying.push(name),
                crossing => parts.push(format!("{crossing} of {all} {name} groups cross hosts")),
            }
        }
        if !staying.is_empty() {
            parts.insert(0, format!("{} groups stay on a host", staying.join(" and ")));
        }
        if parts.is_empty() { String::new() } else { format!("  {}\n", parts.join("; ")) }
    }

    /// A warning where a tensor-parallel group crosses hosts.
    fn warning(&self) -> String {
        let crossing = self.placement.crossing(&self.mesh, Axis::Tp);
        let Some(first) = crossing.first() else { return String::new() };
        let members: Vec<String> = first.members.iter().map(|rank| rank.0.to_string()).collect();
        let hosts: Vec<&str> = first.hosts.iter().map(|host| self.placement.hosts()[*host].name.as_str()).collect();
        format!(
            "  warning: tensor-parallel ranks {} are on {}, and sum activations inside every layer over the network; {}\n",
            members.join(", "),
            hosts.join(", "),
            self.remedy()
        )
    }

    /// A way to keep each tensor-parallel group on a host.
    fn remedy(&self) -> String {
        let by_default = RankPlacement::new(&self.mesh, self.placement.hosts(), PlacementOrder::default());
        if by_default.is_ok_and(|placement| placement.crossing(&self.mesh, Axis::Tp).is_empty()) {
            return "leave out run.placement, whose default keeps them on a host".into();
        }
        // A group of neighbours stays on a host where its size divides the ranks of every host.
        let ranks = (0..self.placement.hosts().len()).map(|host| self.ranks_of_host(host));
        match ranks.fold(0, mesh::greatest_common_divisor) {
            0 | 1 => "use parallelism.tp = 1, or hosts with equally many slots".into(),
            most => format!("use parallelism.tp = {most}, or a divisor of it, which divides the ranks of each host"),
        }
    }

    fn ranks_of_host(&self, host: usize) -> usize {
        self.mesh.ranks().filter(|rank| self.placement.host_of(*rank) == host).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::named;
    use launcher::parse_host_list;
    use mesh::AxisSizes;

    fn hosts(list: &str, dp: usize, tp: usize, pp: usize) -> RankHosts {
        let mesh = Mesh::new(AxisSizes::dp_tp_pp(dp, tp, pp)).expect("a mesh");
        let hosts = parse_host_list(list, 1).expect("hosts");
        RankHosts::new((&mesh, PlacementOrder::default()), &hosts, "--hosts", String::new()).expect("placed")
    }

    #[test]
    fn ranks_are_drawn_on_their_hosts() {
        assert_eq!(
            hosts("a slots=2\nnode-b slots=2", 2, 2, 2).drawn(),
            "hosts   8 ranks in 4 processes on 2 hosts of --hosts\n  \
               a       | 0 1 | 4 5 |\n  \
               node-b  | 2 3 | 6 7 |\n  \
               tp and pp groups stay on a host; 4 of 4 dp groups cross hosts\n"
        );
        assert_eq!(hosts("a\nb", 2, 2, 2).place(Rank(5)), "  is in process 0 on host a\n");
    }

    #[test]
    fn a_tensor_parallel_group_across_hosts_is_a_warning() {
        assert_eq!(
            hosts("a slots=2\nb slots=2", 1, 4, 1).drawn(),
            "hosts   4 ranks in 4 processes on 2 hosts of --hosts\n  \
               a  | 0 | 1 |\n  \
               b  | 2 | 3 |\n  \
               1 of 1 tp groups cross hosts\n  \
               warning: tensor-parallel ranks 0, 1, 2, 3 are on a, b, and sum activations inside every layer over the network; \
             use parallelism.tp = 2, or a divisor of it, which divides the ranks of each host\n"
        );
    }

    #[test]
    fn the_warning_names_the_setting_that_spreads_the_group() {
        let remedy = |list: &str, tp: usize, order: PlacementOrder| {
            let mesh = Mesh::new(AxisSizes::dp_tp_pp(4 / tp, tp, 1)).expect("a mesh");
            let hosts = parse_host_list(list, 1).expect("hosts");
            let placed = RankHosts::new((&mesh, order), &hosts, "--hosts", String::new()).expect("placed");
            placed.warning().split("; ").last().unwrap_or_default().to_string()
        };
        let placement = "leave out run.placement, whose default keeps them on a host\n";
        assert_eq!(remedy("a slots=2\nb slots=2", 2, PlacementOrder::DpTpPp), placement);
        let uneven = "use parallelism.tp = 1, or hosts with equally many slots\n";
        assert_eq!(remedy("a slots=3\nb slots=1", 2, PlacementOrder::default()), uneven);
    }

    #[test]
    fn a_cluster_has_a_rank_for_each_accelerator() {
        let mesh = Mesh::new(AxisSizes::dp_tp_pp(3, 4, 1)).expect("a mesh");
        let profile = Cluster::from_toml(named("h100-80g-dgx").expect("a profile")).expect("legal");
        let hosts = RankHosts::on_cluster(&mesh, PlacementOrder::default(), "h100-80g-dgx", &profile).expect("placed");
        assert_eq!(
            hosts.drawn(),
            "hosts   12 ranks in 12 processes on 2 hosts of --cluster h100-80g-dgx, 8 x H100-SXM5-80GB with 85.2 GB each\n  \
               node0  |  0 |  1 |  2 |  3 |  4 |  5 |  6 |  7 |\n  \
               node1  |  8 |  9 | 10 | 11 |\n  \
               tp groups stay on a host; 4 of 4 dp groups cross hosts\n"
        );
    }
}
