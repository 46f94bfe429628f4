//! The processes of one host. On another host an agent starts them; its plan and its orders come by its input, so that
//! the token is on no command line, and the end of its input ends them.

use std::io::{BufRead, stdin};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

use launcher::variable;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::launch::OWN_VARIABLES;
use crate::launch::failure_report::{Watched, Without};
use crate::launch::guard::Guard;
use crate::launch::signals::Signals;
use crate::launch::spec::Language;
use crate::launch::supervisor::{AGENT_DONE, Member, Order, Outcome, supervise};

/// Everything that the processes of a host need. It has the token, so that it has no form for people.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPlan {
    /// The secret of the start.
    pub token: String,
    /// The secret of all starts of the launcher.
    pub secret: String,
    /// Where process 0 listens.
    pub rendezvous: String,
    /// The host as it is listed.
    pub host: String,
    pub hosts: String,
    /// Number of all processes.
    pub processes: usize,
    /// The processes of this host.
    pub own: AgentProcess,
    /// Their working folder.
    pub directory: PathBuf,
    /// The command of pleach.
    pub command: Vec<String>,
}

/// Consecutive processes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentProcess {
    /// Number of the first.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl AgentPlan {
    /// The processes, which run `program`.
    pub fn members(&self, program: &Path) -> Vec<Member> {
        let AgentPlan { token, secret, rendezvous, host, hosts, processes, own, directory, command: words } = self;
        let is_one_host = own.count == *processes;
        let member = |local: usize| {
            let process = own.first + local;
            let mut command = Command::new(program);
            command.args(words).current_dir(directory);
            for name in OWN_VARIABLES {
                command.env_remove(name);
            }
            let numbers = [
                (variable::PROCESS, process),
                (variable::PROCESSES, *processes),
                (variable::LOCAL_PROCESS, local),
                (variable::PARENT, std::process::id() as usize),
            ];
            command.envs(numbers.map(|(name, number)| (name, number.to_string())));
            command.env(variable::HOST, host).env(variable::RENDEZVOUS, rendezvous);
            command.env(variable::TOKEN, token).env(variable::SECRET, secret).env(variable::HOSTS, hosts);
            let label = if is_one_host { format!("[{process}] ") } else { format!("[{process} {host}] ") };
            Member {
                name: format!("process {process} (host {host})"),
                process: Some(process),
                host: host.clone(),
                label: (process > 0).then_some(label),
                last_lines: None,
                command,
                plan: None,
            }
        };
        (0..own.count).map(member).collect()
    }
}

/// `pleach launch-agent`: starts the processes of the plan in the first line of the input, and obeys the lines after
/// it. Its command is one of `language`.
///
/// # Errors
/// A plan that cannot be read; the first failure of a process.
pub fn serve(language: Language) -> Result<(), Failure> {
    let mut line = String::new();
    let read = stdin().lock().read_line(&mut line);
    let plan: Result<AgentPlan, String> = read
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
    let plan = plan.map_err(|error| {
        Failure::Input(format!("pleach launch-agent is started by pleach launch, with a plan on its input: {error}"))
    })?;
    let program =
        std::env::current_exe().map_err(|error| Failure::Work(format!("the path of pleach is not known: {error}")))?;
    if !plan.directory.is_dir() {
        return Err(Failure::Input(format!(
            "host {} has no folder {}; pleach, run files and data must have the same paths on all hosts",
            plan.host,
            plan.directory.display()
        )));
    }
    let (sender, orders) = channel();
    sync::start("orders", move || read_orders(&sender))?;
    let signals = Signals::listen()?;
    let guard = Guard::start(&program)?;
    let watched = Watched::begin(&plan.command, language, &plan.directory, &plan.host);
    let orders = || orders.try_recv().ok().or_else(|| signals.next());
    let supervised = supervise(plan.members(&program), Some(&guard), orders)?;
    watched.note(&supervised, Without::Nothing);
    match supervised.outcome {
        Outcome::Done => std::process::exit(AGENT_DONE.into()),
        Outcome::Stopped { code, message } | Outcome::Failed { code, message } => {
            Err(Failure::Process { code, message })
        }
    }
}

/// Passes on the lines of the input; its end means that the launcher is gone.
fn read_orders(orders: &Sender<Order>) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        let signal = line.strip_prefix("signal ").and_then(|number| number.parse().ok());
        if signal.is_some_and(|signal| orders.send(Order::Signal(signal)).is_err()) {
            return;
        }
    }
    // The supervisor may be done.
    let _ = orders.send(Order::End);
}
