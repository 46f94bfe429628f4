//! `pleach completions`: what completes commands and options in a shell, and the names that options take.

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use run::failure::Failure;
use run::presets;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::screen::output::print;

/// Completes the word at the cursor, which Readline may have split at `=` and `:`.
const BASH: &str = r#"
_pleach_names() {
    local line="${COMP_LINE:0:COMP_POINT}" names name kept=""
    local word="${line##*[[:space:]]}"
    local before="${line%"$word"}"
    before="${before%"${before##*[![:space:]]}"}"
    before="${before##*[[:space:]]}"
    case "$before,$word" in
        --set,* | *,--set=*) names="SETTINGS" word="${word#--set=}" ;;
        --cluster,* | *,--cluster=*) names="CLUSTERS" word="${word#--cluster=}" ;;
        --software,* | *,--software=*) names="TRAINERS PRESETS" word="${word#--software=}" ;;
        *,pre*) names="PRESETS" ;;
        *) _pleach "$@"; return ;;
    esac
    [[ $COMP_WORDBREAKS == *:* && $word == *:* ]] && kept="${word%"${word##*:}"}"
    [[ $COMP_WORDBREAKS == *=* && $word == *=* ]] && kept="${word%"${word##*=}"}"
    COMPREPLY=()
    for name in $(compgen -W "$names" -- "$word"); do
        [[ $name == "$kept" ]] || COMPREPLY+=("${name#"$kept"}")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -F _pleach_names -o bashdefault -o default pleach
"#;

/// Functions that [`zsh`] names where they complete.
const ZSH: &str = r#"
_pleach_settings() { local names=(SETTINGS); compadd -S '' -- $names }
_pleach_clusters() { local names=(CLUSTERS); compadd -- $names; _files }
_pleach_trainers() { local names=(TRAINERS); compadd -- $names; _files }
_pleach_runs() { local names=(PRESETS); compadd -- $names; _files }
"#;

/// Adds names to the script that completes commands and options.
type WithNames = fn(&str) -> String;

/// Prints the shell's script.
///
/// # Errors
/// Output that cannot be written.
pub fn completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "pleach", &mut script);
    let script = String::from_utf8_lossy(&script);
    // Elvish and PowerShell complete commands and options.
    let ways: [(Shell, WithNames); 3] = [(Shell::Bash, bash), (Shell::Zsh, zsh), (Shell::Fish, fish)];
    let way = ways.iter().find(|(shell, _)| *shell == arguments.shell);
    print(&way.map_or_else(|| script.to_string(), |(_, with_names)| with_names(&script)))
}

/// Every key of a run file with `=`, and with each of the names that its value may have.
fn settings() -> String {
    let names = config::known_names();
    let settings = config::known_keys().into_iter().flat_map(|key| {
        let values = names.get(&key).into_iter().flatten().map(|name| format!("{key}={name}")).collect::<Vec<_>>();
        [format!("{key}=")].into_iter().chain(values)
    });
    settings.collect::<Vec<_>>().join(" ")
}

fn named(script: &str) -> String {
    let presets: Vec<String> = presets::names().collect();
    let clusters: Vec<&str> = cluster::names().collect();
    script
        .replace("SETTINGS", &settings())
        .replace("CLUSTERS", &clusters.join(" "))
        .replace("TRAINERS", &cluster::Software::names().collect::<Vec<_>>().join(" "))
        .replace("PRESETS", &presets.join(" "))
}

/// The script, then a function that completes names and calls it for all else.
fn bash(script: &str) -> String {
    format!("{script}{}", named(BASH))
}

/// The script with functions of its own where an argument is a setting, a cluster or a run.
fn zsh(script: &str) -> String {
    let lines = script.lines().map(|line| {
        let line = if line.contains("--set=[") {
            line.replace(":_default'", ":_pleach_settings'")
        } else if line.contains("--cluster=[") {
            line.replace(":_default'", ":_pleach_clusters'")
        } else if line.contains("--software=[") {
            line.replace(":_default'", ":_pleach_trainers'")
        } else if line.starts_with("':") && line.contains("Run file") {
            line.replace(":_files'", ":_pleach_runs'")
        } else {
            line.to_string()
        };
        line + "\n"
    });
    lines.collect::<String>().replacen('\n', &named(ZSH), 1)
}

/// The script, and further words for the options and files of the subcommands that take them.
fn fish(script: &str) -> String {
    let pleach = Arguments::command();
    let with = |taken: fn(&Arg) -> bool| {
        let commands = pleach.get_subcommands().filter(|command| command.get_arguments().any(taken));
        commands.map(Command::get_name).collect::<Vec<_>>().join(" ")
    };
    let run = with(|argument| argument.is_positional() && ["file", "first"].contains(&argument.get_id().as_str()));
    let setting = with(|argument| argument.get_long() == Some("set"));
    let placed = with(|argument| argument.get_long() == Some("cluster"));
    let compared = with(|argument| argument.get_long() == Some("software"));
    let words = named(&format!(
        "complete -c pleach -n \"__fish_seen_subcommand_from {setting}\" -l set -x -a \"SETTINGS\"\n\
         complete -c pleach -n \"__fish_seen_subcommand_from {placed}\" -l cluster -r -a \"CLUSTERS\"\n\
         complete -c pleach -n \"__fish_seen_subcommand_from {compared}\" -l software -r -a \"TRAINERS\"\n\
         complete -c pleach -n \"__fish_seen_subcommand_from {run}\" -a \"PRESETS\"\n"
    ));
    format!("{script}{words}")
}
