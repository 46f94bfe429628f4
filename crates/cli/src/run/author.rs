//! Who wrote the run file that a folder or a store keeps: a code in its last line shows that this user did.

use std::path::{Path, PathBuf};

use config::{Author, KeptRunFile, RunConfig, Trusted};
use launcher::variable;
use secrets::{Purpose, Secret};

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

/// The author of `kept`. A code that cannot be compared shows nothing, and is no failure.
pub fn judge(kept: &KeptRunFile) -> Judged {
    let user = Judged { author: Author::User, reason: String::new() };
    let Some(code) = kept.code() else { return Judged::unknown("no code shows that you wrote it") };
    let confirms = |secret: &Secret| secret.confirms(RUN_FILE, &[kept.text().as_bytes()], &code);
    if of_launcher().is_some_and(|secret| confirms(&secret)) {
        return user;
    }
    match own_place().and_then(|path| Secret::from_file(&path).map_err(|error| error.to_string())) {
        Ok(secret) if confirms(&secret) => user,
        Ok(_) => Judged::unknown("its code is not yours, so someone else wrote it, or changed it"),
        Err(reason) => Judged::unknown(format!("its code cannot be compared: {reason}")),
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
    let own = own_place().and_then(|path| Secret::from_file_or_random(&path).map_err(|error| error.to_string()));
    let (secret, warning) = match own {
        Ok(secret) => (Some(secret), None),
        Err(reason) => {
            let remedy: Vec<String> = keys.iter().map(|key| format!("--set {key}=...")).collect();
            let keys = keys.join(", ");
            let warning = format!(
                "warning: {keys} will be left out when the run is resumed by hand, for nothing shows that you wrote it: {reason}; \
                 resume it with {}\n",
                remedy.join(" ")
            );
            (of_launcher(), Some(warning))
        }
    };
    let code = secret.map(|secret| secret.mac(RUN_FILE, &[run_file.text().as_bytes()]));
    let run_file = code.map_or(run_file.clone(), |code| run_file.with_code(code.bytes()));
    Confirmed { run_file, warning }
}

/// The file of the user's secret.
fn own_place() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.map(|home| home.join(Path::new(".pleach/secret"))).ok_or_else(|| "HOME is not the path of a folder".into())
}

/// The secret of all starts of one `pleach launch`, for users without one of their own.
fn of_launcher() -> Option<Secret> {
    Secret::from_hex(&std::env::var(variable::SECRET).ok()?)
}
