//! The built command: started, and what it said. Not every test uses all of it.
#![allow(dead_code)]

use std::process::{Command, Output};

/// Runs `pleach` to its end.
pub fn pleach(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pleach")).args(arguments).output().expect("the command starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
