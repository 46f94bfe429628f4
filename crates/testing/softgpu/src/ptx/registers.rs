//! Names of registers and labels, each valid in its braces.

use std::collections::HashMap;

use super::lexer::{Located, Token};
use super::{Label, Register, Width};

/// The names that are valid at a place of a function.
#[derive(Debug, Default)]
pub struct Scopes {
    frames: Vec<Frame>,
    counts: [usize; 3],
    labels: usize,
}

#[derive(Debug, Default)]
struct Frame {
    registers: HashMap<String, Register>,
    labels: HashMap<String, Label>,
}

/// The place of a width among counts.
fn place(width: Width) -> usize {
    match width {
        Width::Predicate => 0,
        Width::Small => 1,
        Width::Wide => 2,
    }
}

impl Scopes {
    /// Opens braces; `inside` are the tokens from after the opening one.
    pub fn open(&mut self, inside: &[Located]) {
        let mut frame = Frame::default();
        for name in labels_of(inside) {
            frame.labels.insert(name, Label(self.labels));
            self.labels += 1;
        }
        self.frames.push(frame);
    }

    /// Closes the innermost braces.
    pub fn close(&mut self) {
        self.frames.pop();
    }

    /// Declares a register in the innermost braces.
    pub fn declare(&mut self, name: String, width: Width) {
        let count = &mut self.counts[place(width)];
        let register = Register { width, index: *count };
        *count += 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.registers.insert(name, register);
        }
    }

    /// The register of a name.
    pub fn register(&self, name: &str) -> Option<Register> {
        self.frames.iter().rev().find_map(|frame| frame.registers.get(name)).copied()
    }

    /// The label of a name.
    pub fn label(&self, name: &str) -> Option<Label> {
        self.frames.iter().rev().find_map(|frame| frame.labels.get(name)).copied()
    }

    /// Registers of each width: predicates, small, wide.
    pub fn counts(&self) -> [usize; 3] {
        self.counts
    }

    /// How many labels there are.
    pub fn labels(&self) -> usize {
        self.labels
    }
}

/// Labels in the outermost of the braces whose inside begins here.
fn labels_of(inside: &[Located]) -> Vec<String> {
    let mut depth = 1;
    let mut labels = Vec::new();
    let mut at_start = true;
    for pair in inside.windows(2) {
        match (&pair[0].token, &pair[1].token) {
            (Token::Sign('{'), _) => depth += 1,
            (Token::Sign('}'), _) => depth -= 1,
            (Token::Word(name), Token::Sign(':')) if depth == 1 && at_start => labels.push(name.clone()),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        // `.loc` and its numbers have no end but that of the line.
        let ends_directive = pair[0].line != pair[1].line && matches!(pair[0].token, Token::Integer(_));
        at_start = ends_directive || matches!(pair[0].token, Token::Sign('{' | '}' | ';' | ':'));
    }
    labels
}
