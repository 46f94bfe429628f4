//! PTX as text: tokens, declarations, statements.

mod lexer;
mod live;
mod parser;
mod registers;
mod reuse;
mod statements;
mod syntax;
mod types;
mod variables;

pub use parser::parse;
pub use reuse::merge_registers;
pub use syntax::{
    Base, Function, Guard, Immediate, Initial, Label, Line, Module, Operand, Register, Space, Special, Statement,
    Symbol, Variable,
};
pub use types::{Scalar, Width};

use thiserror::Error;

/// A line of PTX that this GPU does not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("PTX line {line}: {text}")]
pub struct PtxError {
    /// Line counted from 1.
    pub line: u32,
    /// The reason.
    pub text: String,
}

impl PtxError {
    /// `text` about `line`.
    pub fn new(line: u32, text: impl Into<String>) -> PtxError {
        PtxError { line, text: text.into() }
    }
}
