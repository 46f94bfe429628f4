//! The processes of one attempt: commands, variables, hosts.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use config::shown_words;
use launcher::{Address, Host, variable};
use rendezvous::Token;
use secrets::Secret;

use crate::failure::Failure;
use crate::launch::OWN_VARIABLES;
use crate::launch::agent::{AgentPlan, AgentProcess};
use crate::launch::spec::LaunchSpec;
use crate::launch::supervisor::Member;

/// First of the ports from which one is drawn on another host; below those that systems give to outgoing connections.
const FIRST_PORT: u16 = 20_000;
/// Number of these ports.
const PORTS: u16 = 10_000;

/// The way to other hosts.
#[derive(Clone, Debug)]
pub struct Shell {
    ssh: Vec<String>,
    remote_program: PathBuf,
}

impl Shell {
    /// The shell of `spec`; pleach has the path of this one on other hosts unless they say another.
    ///
    /// # Errors
    /// An empty program, and a path of this program that is not known.
    pub fn new(spec: &LaunchSpec) -> Result<Shell, Failure> {
        let ssh: Vec<String> = spec.ssh.split_whitespace().map(str::to_string).collect();
        if ssh.is_empty() {
            return Err(Failure::Input("--ssh is empty; use e.g. --ssh \"ssh -p 2222\"".into()));
        }
        let own = || std::env::current_exe().map_err(|error| unknown("the path of pleach", &error));
        let remote_program = spec.program.clone().map_or_else(own, Ok)?;
        Ok(Shell { ssh, remote_program })
    }

    /// A command that succeeds where pleach can be started on `host`; `None` for this one.
    pub fn question(&self, host: &Host) -> Option<Command> {
        (!is_local(&host.name)).then(|| self.command(&host.name, "--version"))
    }

    /// Starts pleach with `words` on `host`.
    fn command(&self, host: &str, words: &str) -> Command {
        let mut command = Command::new(&self.ssh[0]);
        command.args(&self.ssh[1..]).args([host, &self.words(words)]);
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        command
    }

    /// `words` of pleach as the shell of another host reads them.
    fn words(&self, words: &str) -> String {
        format!("exec {} {words}", quoted(&self.remote_program.display().to_string()))
    }
}

fn unknown(what: &str, error: &std::io::Error) -> Failure {
    Failure::Work(format!("{what} is not known: {error}"))
}

/// The words of pleach for the processes of another host.
const AGENT: &str = "launch-agent";

/// Everything that one attempt starts.
pub struct Job {
    hosts: Vec<Host>,
    rendezvous: Address,
    token: Token,
    /// The secret of all starts of this launcher.
    secret: Secret,
    command: Vec<String>,
    program: PathBuf,
    shell: Shell,
    directory: PathBuf,
}

impl Job {
    /// A job with a token of its own.
    ///
    /// # Errors
    /// Hosts that do not reach process 0; a system without random numbers, ports or a working folder.
    pub fn new(spec: &LaunchSpec, hosts: &[Host], command: Vec<String>, secret: &Secret) -> Result<Job, Failure> {
        let token = Token::random().map_err(|error| Failure::Work(error.to_string()))?;
        let rendezvous = match &spec.rendezvous {
            Some(address) => address.clone(),
            None => address(hosts, &token)?,
        };
        let program = std::env::current_exe().map_err(|error| unknown("the path of pleach", &error))?;
        Ok(Job {
            hosts: hosts.to_vec(),
            rendezvous,
            token,
            secret: secret.clone(),
            command,
            program,
            shell: Shell::new(spec)?,
            directory: std::env::current_dir().map_err(|error| unknown("the working folder", &error))?,
        })
    }

    /// Each host with the number of its first process.
    fn numbered(&self) -> impl Iterator<Item = (&Host, usize)> {
        let mut next = 0;
        self.hosts.iter().map(move |host| {
            let first = next;
            next += host.processes;
            (host, first)
        })
    }

    fn processes(&self) -> usize {
        self.hosts.iter().map(|host| host.processes).sum()
    }

    fn plan(&self, host: &Host, first: usize) -> AgentPlan {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        AgentPlan {
            token: self.token.to_hex(),
            secret: self.secret.to_hex(),
            rendezvous: self.rendezvous.to_string(),
            host: host.name.clone(),
            hosts: hosts.join(","),
            processes: self.processes(),
            own: AgentProcess { first, count: host.processes },
            directory: self.directory.clone(),
            command: self.command.clone(),
        }
    }

    /// The members of the job: a process each on this host, an agent for each other host.
    ///
    /// # Errors
    /// A plan that has no form in JSON: a path that is not UTF-8.
    pub fn members(&self) -> Result<Vec<Member>, Failure> {
        let mut members = vec![];
        for (host, first) in self.numbered() {
            let plan = self.plan(host, first);
            if is_local(&host.name) {
                members.extend(plan.members(&self.program));
                continue;
            }
            let command = self.shell.command(&host.name, AGENT);
            let plan = serde_json::to_string(&plan).map_err(|error| Failure::Input(error.to_string()))?;
            members.push(Member {
                name: format!("host {}", host.name),
                process: None,
                host: host.name.clone(),
                label: None,
                last_lines: None,
                command,
                plan: Some(plan),
            });
        }
        Ok(members)
    }

    /// The commands and variables as text, without the token and other secrets.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        let command: Vec<String> = shown_words(&self.command).iter().map(|word| quoted(word)).collect();
        for (host, first) in self.numbered() {
            if !is_local(&host.name) {
                let ssh: Vec<String> = self.shell.ssh.iter().map(|word| quoted(word)).collect();
                let remote = quoted(&self.shell.words(AGENT));
                text += &format!("{} {} {remote}\n", ssh.join(" "), host.name);
            }
            for (local, process) in (first..first + host.processes).enumerate() {
                text += &format!(
                    "  {}={process} {}={} {}={local} {}={} {}={} pleach {}\n",
                    variable::PROCESS,
                    variable::PROCESSES,
                    self.processes(),
                    variable::LOCAL_PROCESS,
                    variable::HOST,
                    host.name,
                    variable::RENDEZVOUS,
                    self.rendezvous,
                    command.join(" ")
                );
            }
        }
        text
    }
}

/// A free port of this machine; of another first host, one that is drawn from the token.
fn address(hosts: &[Host], token: &Token) -> Result<Address, Failure> {
    let first = &hosts[0].name;
    if hosts.iter().all(|host| is_local(&host.name)) {
        // The port is free once the listener is gone; process 0 reports it where another program was faster.
        let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = listener.map_err(|error| Failure::Work(format!("this machine has no free port: {error}")))?.port();
        return Ok(Address { host: "127.0.0.1".into(), port });
    }
    if first == "localhost" {
        return Err(Failure::Input(
            "--hosts: other hosts do not reach localhost, where process 0 is; list it by a name that they know, or use \
             --rendezvous HOST:PORT"
                .into(),
        ));
    }
    let drawn = u16::from_str_radix(&token.to_hex()[..4], 16).unwrap_or(0);
    let host = first.rsplit_once('@').map_or(first.as_str(), |(_, host)| host);
    Ok(Address { host: host.into(), port: FIRST_PORT + drawn % PORTS })
}

/// Whether a host is this one, so that its processes need no ssh.
fn is_local(host: &str) -> bool {
    host == "localhost" || rustix::system::uname().nodename().to_str().is_ok_and(|own| own == host)
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["train", "--set", "a=b c", "it's", ""];
        assert_eq!(words.map(quoted), ["train", "--set", "'a=b c'", "'it'\\''s'", "''"]);
    }
}
