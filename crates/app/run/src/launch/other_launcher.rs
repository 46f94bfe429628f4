//! A command of another launcher, such as `mpiexec -n 8 pleach train RUN.toml`, as one process that is supervised.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use config::shown_words;
use launcher::variable;
use secrets::Secret;

use crate::failure::Failure;
use crate::launch::OWN_VARIABLES;
use crate::launch::lines::LastLines;
use crate::launch::restart::Restart;
use crate::launch::spec::{Language, LaunchSpec};
use crate::launch::supervisor::Member;
use crate::process_group::place::own_host;

/// Between the programs of one `mpiexec` or `srun`.
const NEXT_PROGRAM: &str = ":";

/// The command.
pub struct OtherLauncher {
    words: Vec<String>,
    language: Language,
}

impl OtherLauncher {
    /// The command of `spec`, if it begins with a program that is not pleach: one that is there, and not the name
    /// of a command of pleach.
    ///
    /// # Errors
    /// Options of `pleach launch` that are about processes which another program starts.
    pub fn of(spec: &LaunchSpec) -> Result<Option<OtherLauncher>, Failure> {
        let LaunchSpec { processes, hosts, rendezvous, program: remote, language, command, .. } = spec;
        let is_command = |word: &str| word.starts_with('-') || (language.has_command)(word);
        let Some(program) = command.first().filter(|word| !is_command(word) && is_program(word)) else {
            return Ok(None);
        };
        let given = [
            ("--nproc", *processes > 1),
            ("--hosts", hosts.is_some()),
            ("--rendezvous", rendezvous.is_some()),
            ("--program", remote.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Failure::Input(format!(
                "{option} is for processes that pleach starts, and {program} starts them itself; give it to {program}, or \
                 write a command of pleach after --"
            ))),
            None => Ok(Some(OtherLauncher { words: command.clone(), language: *language })),
        }
    }

    /// How it is started again: its command of pleach is. Other words stay as they are.
    ///
    /// # Errors
    /// See [`Restart::of`].
    pub fn restart(&self) -> Result<Restart, Failure> {
        let words = self.command_of_pleach();
        if words.is_empty() { Ok(Restart::Same) } else { Restart::of(&words, self.language) }
    }

    /// The words after the name of pleach, of the first program; none where a script hides them.
    pub fn command_of_pleach(&self) -> Vec<String> {
        let words = self.words.iter().skip_while(|word| !is_pleach(word)).skip(1);
        words.take_while(|word| *word != NEXT_PROGRAM).cloned().collect()
    }

    /// The words of the next start: the command of pleach, of each program, as `restart` says.
    pub fn again(&self, restart: &Restart) -> OtherLauncher {
        let mut words = vec![];
        let mut rest = self.words.iter().peekable();
        while let Some(word) = rest.next() {
            words.push(word.clone());
            if is_pleach(word) {
                let mut own = vec![];
                while let Some(word) = rest.next_if(|word| *word != NEXT_PROGRAM) {
                    own.push(word.clone());
                }
                words.extend(restart.command(&own));
            }
        }
        OtherLauncher { words, language: self.language }
    }

    /// Its words, for messages.
    pub fn shown(&self) -> String {
        shown_words(&self.words).join(" ")
    }

    /// It as a process that is supervised, whose last lines are kept. `secret` is that of all starts of this launcher.
    pub fn member(&self, last_lines: &LastLines, secret: &Secret) -> Member {
        let (program, arguments) = self.words.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let mut command = Command::new(program);
        command.args(arguments);
        for name in OWN_VARIABLES {
            // Address and token may be those that the user has chosen for that launcher.
            if !name.contains("RENDEZVOUS") && !name.contains("TOKEN") {
                command.env_remove(name);
            }
        }
        command.env(variable::SECRET, secret.to_hex());
        let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or(program).to_owned();
        Member {
            name,
            process: None,
            host: own_host(),
            label: None,
            last_lines: Some(last_lines.clone()),
            command,
            plan: None,
        }
    }
}

/// Whether `word` is the path of this program.
fn is_pleach(word: &str) -> bool {
    let own = std::env::current_exe().ok();
    let names = [Some(OsStr::new("pleach")), own.as_deref().and_then(Path::file_name)];
    Path::new(word).file_name().is_some_and(|name| names.contains(&Some(name)))
}

/// Whether a program of this name is on the path, or at this path.
fn is_program(word: &str) -> bool {
    if word.contains('/') {
        return Path::new(word).is_file();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(word).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::spec::Training;
    use crate::run_file::RunFile;
    use crate::spec::{Origin, TrainSpec};

    /// Knows `doctor`, and `train` with one option.
    const LANGUAGE: Language = Language { training, has_command: |word| word == "train" || word == "doctor" };

    fn training(words: &[String]) -> Result<Option<Training>, Failure> {
        let spec = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["doctor"] => return Ok(None),
            ["train", "--set", set] => {
                TrainSpec { run: RunFile { overrides: vec![set.into()], ..RunFile::default() }, ..TrainSpec::default() }
            }
            ["train", "--resume", run] => TrainSpec { origin: Origin::Checkpoint(run.into()), ..TrainSpec::default() },
            _ => return Err(Failure::Input(words.join(" "))),
        };
        Ok(Some(Training { spec, printing: vec![] }))
    }

    fn of(words: &[&str]) -> OtherLauncher {
        OtherLauncher { words: words.iter().map(ToString::to_string).collect(), language: LANGUAGE }
    }

    #[test]
    fn the_command_of_each_program_is_replaced() {
        let launcher = of(&["mpiexec", "-n", "2", "/bin/pleach", "train", "--set", "run.folder=a b"]);
        let restart = launcher.restart().expect("a run");
        assert!(matches!(&restart, Restart::Training { folder, .. } if folder == Path::new("a b")), "{restart:?}");
        let two = of(&["mpiexec", "-n", "1", "pleach", "doctor", ":", "-n", "1", "pleach", "doctor"]);
        assert!(matches!(two.restart(), Ok(Restart::Same)));
        assert_eq!(two.again(&Restart::Same).words, two.words);
        let resumed = of(&["srun", "pleach", "train", "--resume", "runs/a"]).restart().expect("a run");
        assert!(matches!(&resumed, Restart::Resuming { folder, .. } if folder == Path::new("runs/a")), "{resumed:?}");
        assert!(matches!(of(&["sh", "job.sh"]).restart(), Ok(Restart::Same)));
        assert!(of(&["mpiexec", "pleach", "trian"]).restart().is_err());
    }

    #[test]
    fn missing_programs_are_no_launchers() {
        assert!(is_program("sh") && is_program("/bin/sh") && !is_program("/bin") && !is_program("trian"));
        assert!(is_pleach("pleach") && is_pleach("/opt/pleach") && !is_pleach("pleach.toml"));
    }
}
