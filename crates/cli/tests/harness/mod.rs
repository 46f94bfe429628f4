//! The built command: started, and what it said. Not every test uses all of it.
#![allow(dead_code)]

pub mod several;

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

/// What a command that succeeds prints.
pub fn prints(arguments: &[&str]) -> String {
    let output = pleach(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}
