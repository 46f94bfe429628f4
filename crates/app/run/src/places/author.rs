//! Who wrote the run file that a folder or a store keeps: a code in its last line shows that this user did.

use std::path::PathBuf;

use config::{Author, KeptRunFile, RunConfig, Trusted};
use launcher::variable;
use secrets::{Purpose, Secret};

use crate::failure::Failure;

/// Codes of run files, whole: a code of one run confirms no value of another.
const RUN_FILE: Purpose = Purpose::new("run file");

/// The author of a run file that was kept.
#[derive(Clone, Debug)]
pub struct Judged {
    pub author: Author,
    /// Why it may not be the user.
    reason: String,
}

impl Judged {
    fn unknown(reason: impl Into<String>) -> Judged {
        Judged { author: Author::Unknown, reason: reason.into() }
    }

    /// A line for each of the keys that are left out of the run file `name`, with the remedy. Values are not shown:
    /// they may have secrets.
    pub fn lines(&self, name: &str, left_out: &[String]) -> Vec<String> {
        let line =
            |key: &String| format!("{key} of {name} is left out: {}; to have it, use --set {key}=...\n", self.reason);
        left_out.iter().map(line).collect()
    }
}

/// The author of `kept`. Where a code cannot be compared, the author is unknown; that is not a failure.
pub fn judge(kept: &KeptRunFile) -> Judged {
    let Some(code) = kept.code() else { return Judged::unknown("no code shows that you wrote it") };
    let secrets = [given(), at_home().and_then(|path| Secret::from_file(&path).map_err(|error| error.to_string()))];
    let confirms = |secret: &Secret| secret.confirms(RUN_FILE, &[kept.text().as_bytes()], &code);
    if secrets.iter().flatten().any(confirms) {
        return Judged { author: Author::User, reason: String::new() };
    }
    match secrets {
        [Err(_), Err(reason)] => Judged::unknown(format!("its code cannot be compared: {reason}")),
        [Ok(_), _] | [_, Ok(_)] => Judged::unknown("its code is not yours, so someone else wrote it, or changed it"),
    }
}

/// The text of a key that acts in the run file `name`, where this user wrote that; a line about it for `left_out`
/// otherwise.
pub fn own_text(kept: &KeptRunFile, (name, key): (&str, &str), left_out: &mut Vec<String>) -> Option<Trusted<String>> {
    let judged = judge(kept);
    let own = kept.acting_text(key, judged.author);
    if own.is_none() && kept.claimed(key).is_some() {
        left_out.extend(judged.lines(name, &[key.into()]));
    }
    own
}

/// A run file to keep.
#[derive(Clone, Debug)]
pub struct Confirmed {
    pub run_file: KeptRunFile,
    /// Why it has no code by which a later command of this user knows it, where it has keys that act.
    pub warning: Option<String>,
}

/// The run file of `config` with this user's code, where it has keys that act.
pub fn confirmed(config: &RunConfig) -> Confirmed {
    let run_file = KeptRunFile::of(config);
    let keys = run_file.acting_keys();
    if keys.is_empty() {
        return Confirmed { run_file, warning: None };
    }
    let secret = match own() {
        Ok(secret) => secret,
        Err(reason) => {
            let remedy: Vec<String> = keys.iter().map(|key| format!("--set {key}=...")).collect();
            let (keys, remedy) = (keys.join(", "), remedy.join(" "));
            let warning = format!(
                "warning: a resumption will leave out {keys}, for no code can show that you wrote the run file: {reason}; resume \
                 with {remedy}\n"
            );
            return Confirmed { run_file, warning: Some(warning) };
        }
    };
    let code = secret.mac(RUN_FILE, &[run_file.text().as_bytes()]);
    Confirmed { run_file: run_file.with_code(code.bytes()), warning: None }
}

/// The secret that a launcher gives all of its processes in all starts: that of the user, or else one of its own, by
/// which a restart knows the run files of the starts before it.
///
/// # Errors
/// A system without random numbers.
pub fn of_all_starts() -> Result<Secret, Failure> {
    own().or_else(|_| Secret::random()).map_err(|error| Failure::Work(error.to_string()))
}

/// The user's secret: that of the environment, or that of the home folder, which the first who asks makes.
fn own() -> Result<Secret, String> {
    let made = |path: PathBuf| Secret::from_file_or_random(&path).map_err(|error| error.to_string());
    given().or_else(|_| at_home().and_then(made))
}

/// The secret in the environment.
fn given() -> Result<Secret, String> {
    let name = variable::SECRET;
    let digits = std::env::var(name).map_err(|_| format!("{name} is not set"))?;
    Secret::from_hex(&digits).ok_or_else(|| format!("{name} must be 64 hexadecimal digits"))
}

/// The file of the secret in the home folder.
fn at_home() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.map(|home| home.join(".pleach/secret")).ok_or_else(|| "HOME is not the path of a folder".into())
}
