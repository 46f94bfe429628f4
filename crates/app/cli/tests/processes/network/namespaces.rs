//! Hosts of a test: network namespaces, each with one interface, on a switch of their own.
//!
//! All commands are those of iproute2. Namespaces of a test that was killed are removed by the next one.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where iproute2 keeps namespaces.
const FOLDER: &str = "/var/run/netns";
/// Begins the name of each namespace; the number of the test's process follows.
const PREFIX: &str = "pleach-";

/// Some hosts that reach each other, and one outside of the run.
pub struct Network {
    prefix: String,
    /// Hosts of the run.
    hosts: usize,
}

impl Network {
    /// A network for a run on `hosts` hosts.
    pub fn of(hosts: usize) -> Network {
        // Tests run at the same time, each in namespaces of its own.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("{PREFIX}{}-{}-", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        remove_orphans();
        let network = Network { prefix, hosts };
        let switch = network.switch();
        ip(&["netns", "add", &switch]);
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"]);
        ip(&["-n", &switch, "link", "set", "switch", "up"]);
        for host in 0..=hosts {
            let (name, port) = (network.namespace(host), port(host));
            ip(&["netns", "add", &name]);
            ip(&["-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &name]);
            ip(&["-n", &switch, "link", "set", &port, "master", "switch", "up"]);
            ip(&["-n", &name, "address", "add", &format!("{}/24", network.address(host)), "dev", "eth0"]);
            ip(&["-n", &name, "link", "set", "lo", "up"]);
            ip(&["-n", &name, "link", "set", "eth0", "up"]);
        }
        network
    }

    /// Number of hosts of the run.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// The host outside of the run.
    pub fn outsider(&self) -> usize {
        self.hosts
    }

    /// The address of a host.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, u8::try_from(host + 1).expect("few hosts"))
    }

    /// `port` of a host.
    pub fn socket(&self, host: usize, port: u16) -> SocketAddr {
        (self.address(host), port).into()
    }

    /// `program` on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host), program]);
        command
    }

    /// Does `work` on a host: sockets that it opens are the host's.
    pub fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(Path::new(FOLDER).join(self.namespace(host))).expect("a namespace");
        let thread = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("its network");
            work()
        };
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Limits each direction of each host's link to `megabits` a second.
    pub fn set_rate(&self, megabits: f64) {
        let rate = format!("{megabits}mbit");
        // A burst of 1 ms, and at least two of the largest segments that a veth passes; a queue of 50 ms.
        let burst = format!("{}", ((megabits * 125.0) as u64).max(2 * 65_536));
        let tbf = ["root", "tbf", "rate", &rate, "burst", &burst, "latency", "50ms"];
        for host in 0..=self.hosts {
            tc(&[&["-n", &self.switch(), "qdisc", "replace", "dev", &port(host)], &tbf[..]].concat());
            tc(&[&["-n", &self.namespace(host), "qdisc", "replace", "dev", "eth0"], &tbf[..]].concat());
        }
    }

    /// Drops a random `percent` of the packets that a host sends and receives.
    pub fn set_loss(&self, host: usize, percent: f64) {
        let (switch, port) = (self.switch(), port(host));
        tc(&["-n", &switch, "qdisc", "add", "dev", &port, "clsact"]);
        // Load a random number; below the bound return 2, which drops the packet, else -1, which lets it pass.
        let bound = (percent / 100.0 * f64::from(u32::MAX)) as u32;
        let program = format!("4,32 0 0 4294963256,53 1 0 {bound},6 0 0 2,6 0 0 4294967295");
        for way in ["ingress", "egress"] {
            tc(&["-n", &switch, "filter", "add", "dev", &port, way, "bpf", "da", "bytecode", &program]);
        }
    }

    /// Bytes on the wire and dropped packets of what a host has sent since [`Network::set_rate`].
    pub fn sent(&self, host: usize) -> (u64, u64) {
        let text = tc(&["-n", &self.namespace(host), "-s", "qdisc", "show", "dev", "eth0"]);
        let number_after = |key: &str| {
            let rest = text.split(key).nth(1).unwrap_or_else(|| panic!("no {key}: {text}"));
            rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok())
        };
        (number_after("Sent").expect("bytes"), number_after("(dropped").expect("packets"))
    }

    /// Packets that [`Network::set_loss`] has dropped.
    pub fn lost(&self, host: usize) -> u64 {
        let text = tc(&["-n", &self.switch(), "-s", "qdisc", "show", "dev", &port(host), "clsact"]);
        let dropped = text.split("(dropped ").nth(1).and_then(|rest| rest.split(',').next());
        dropped.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no number of dropped packets: {text}"))
    }

    /// Cuts the link of a host.
    pub fn cut(&self, host: usize) {
        ip(&["-n", &self.switch(), "link", "set", &port(host), "down"]);
    }

    /// Joins it again.
    pub fn join(&self, host: usize) {
        ip(&["-n", &self.switch(), "link", "set", &port(host), "up"]);
    }

    /// A line for a shell that runs its second argument on the host at the address of its first, as `ssh` does.
    pub fn shell(&self) -> String {
        let case = |host: usize| format!("{}) name={} ;; ", self.address(host), self.namespace(host));
        let cases: String = (0..self.hosts).map(case).collect();
        format!("case $1 in {cases}esac; exec ip netns exec $name sh -c \"$2\"")
    }

    fn switch(&self) -> String {
        format!("{}s", self.prefix)
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}{host}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in (0..=self.hosts).map(|host| self.namespace(host)).chain([self.switch()]) {
            let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}

/// The port of the switch to which a host is connected.
fn port(host: usize) -> String {
    format!("host{host}")
}

/// The standard output of a command that must succeed.
fn succeeds(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} of iproute2: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}, which root may use: {error}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ip(arguments: &[&str]) -> String {
    succeeds("ip", arguments)
}

fn tc(arguments: &[&str]) -> String {
    succeeds("tc", arguments)
}

/// Removes the namespaces of tests whose process is gone.
fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir(FOLDER) else { return };
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let test = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if test.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}
