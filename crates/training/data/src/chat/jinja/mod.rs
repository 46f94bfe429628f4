//! The language of chat templates: jinja2 as transformers sets it up, without access to anything but values.
//!
//! A template comes with a model, so it may be hostile. [`Meter`] pays for all of its work. The parser bounds how deep
//! a program nests, values how deep they do, and the renderer how deep it calls itself. So a template ends, with a text
//! or with a refusal that is the same on every machine.

mod arguments;
mod ast;
mod attributes;
mod brace_format;
mod calls;
mod compare;
mod dict;
mod evaluate;
mod expressions;
mod filters;
mod format_spec;
mod functions;
mod json;
mod lexer;
mod meter;
mod methods;
mod numbers;
mod operations;
mod parser;
mod percent_format;
mod renderer;
mod strings;
mod text_methods;
mod value;
mod writer;

use config::ChatDate;

use ast::Name;
pub(super) use dict::Dict;
pub(super) use meter::{Fault, Meter};
use parser::{Parsed, parse};
use renderer::Renderer;
pub(super) use value::Value;

/// A template that is ready to be rendered.
#[derive(Debug)]
pub(super) struct Program {
    parsed: Parsed,
}

impl Program {
    /// The program of `source`.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub(super) fn parse(source: &str) -> Result<Program, Fault> {
        Ok(Program { parsed: parse(source)? })
    }

    /// Whether it marks answers, by `{% generation %}`.
    pub(super) fn marks_answers(&self) -> bool {
        self.parsed.marks_answers
    }

    /// The text of the program with the names `values`, which `meter` pays for. `date` answers its `strftime_now`.
    ///
    /// # Errors
    /// Its refusal, its error, or its steps.
    pub(super) fn render(
        &self,
        values: &[(&str, Value)],
        date: Option<ChatDate>,
        meter: &Meter,
    ) -> Result<String, Fault> {
        let functions = value::FUNCTIONS.map(|(name, function)| (name, Value::Function(function)));
        let known = functions.iter().chain(values);
        let known = known.filter_map(|(name, value)| Some((self.name(name)?, value.clone()))).collect();
        let mut renderer = Renderer::new(meter, date, &self.parsed.names, known);
        renderer.loop_name = self.name("loop");
        renderer.caller_name = self.name("caller");
        renderer.captured(|renderer| renderer.block(&self.parsed.body).map(|_| ()))
    }

    /// The number of a name that the program uses.
    fn name(&self, name: &str) -> Option<Name> {
        self.parsed.numbers.get(name).copied()
    }
}
