//! A chat template, compiled: the language of jinja2 as transformers sets it up.

use std::collections::BTreeMap;

use config::ChatDate;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::generation_tags::{self, ANSWER_BEGINS, ANSWER_ENDS, MARKER};
use super::template_files::TemplateFiles;
use super::{dates, python_json};

/// Steps of a template for any conversation, and for each byte of one. A step takes at most some 64 bytes.
const STEPS: u64 = 1 << 20;
const STEPS_PER_BYTE: u64 = 16;
/// Steps for the longest conversation: bounds its memory.
const MOST_STEPS: u64 = 1 << 24;
/// Bytes of a conversation as text.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// Names of the compiled templates.
const PLAIN: &str = "chat_template";
const WITH_TOOLS: &str = "tool_use";

/// The end of the text that a template is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The last message.
    Message,
    /// The beginning of an answer.
    GenerationPrompt,
}

/// A template, compiled.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    special_tokens: Vec<(&'static str, String)>,
    marks_answers: bool,
    marks_answers_with_tools: bool,
}

impl Template {
    /// Compiles the template of `files`. `date` answers its `strftime_now`.
    ///
    /// # Errors
    /// The place of a syntax error.
    pub(super) fn new(files: TemplateFiles, date: Option<ChatDate>) -> Result<Template, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| error.to_string())?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", python_json::filter);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter(MARKER, marked);
        environment.add_test("iterable", is_iterable);
        environment.add_function("strftime_now", move |format: String| -> Result<String, Error> {
            let refused = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
            let remedy = "the template asks for the time; give data.chat a date, as in date = \"2026-01-31\"";
            dates::formatted(date.ok_or_else(|| refused(remedy.into()))?, &format).map_err(refused)
        });
        let mut add = |name: &'static str, source: &str| -> Result<bool, String> {
            generation_tags::check_jumps(source)?;
            let (source, marks_answers) = generation_tags::as_filters(&lines_of_python(source));
            check_lines(&source)?;
            environment.add_template_owned(name, source).map_err(|error| error.to_string())?;
            Ok(marks_answers)
        };
        let marks_answers = add(PLAIN, &files.source)?;
        let marks_answers_with_tools = match &files.with_tools {
            Some(source) => add(WITH_TOOLS, source)?,
            None => add(WITH_TOOLS, &files.source)?,
        };
        let special_tokens = files.special_tokens;
        Ok(Template { environment, special_tokens, marks_answers, marks_answers_with_tools })
    }

    /// Whether the template marks the answers of conversations with `tools` itself, by `{% generation %}`.
    pub(super) fn marks_answers(&self, tools: Option<&Value>) -> bool {
        if tools.is_some() { self.marks_answers_with_tools } else { self.marks_answers }
    }

    /// The text of `messages`, from a record of `bytes` bytes.
    ///
    /// # Errors
    /// The template's refusal, or its error with the line; more text or steps than a conversation may take.
    pub(super) fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        ending: Ending,
        bytes: usize,
    ) -> Result<String, String> {
        let mut environment = self.environment.clone();
        let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(bytes as u64)).min(MOST_STEPS);
        environment.set_fuel(Some(steps));
        let name = if tools.is_some() { WITH_TOOLS } else { PLAIN };
        let tokens = self.special_tokens.iter().map(|(name, token)| (*name, Value::from(token.as_str())));
        let none = Value::from(());
        let values = [
            ("messages", Value::from(messages.to_vec())),
            ("tools", tools.cloned().unwrap_or_else(|| none.clone())),
            ("documents", none),
            ("add_generation_prompt", Value::from(ending == Ending::GenerationPrompt)),
        ];
        let context = Value::from(tokens.chain(values).collect::<BTreeMap<&str, Value>>());
        let template = environment.get_template(name).map_err(|error| error.to_string())?;
        let text = template.render(context).map_err(|error| match error.kind() == ErrorKind::OutOfFuel {
            true => format!("the template takes more than {steps} steps"),
            false => format!("the template says: {error}"),
        })?;
        if text.len() > MOST_BYTES {
            return Err(format!("the template makes {} bytes of it; at most {MOST_BYTES} are read", text.len()));
        }
        Ok(text)
    }
}

/// Characters of a line that the compiler counts in an error.
const MOST_COLUMNS: usize = 65_534;

/// Refuses a template in which the place of an error could not be given.
fn check_lines(source: &str) -> Result<(), String> {
    let is_long = |line: &str| line.chars().count() > MOST_COLUMNS;
    match source.lines().position(is_long) {
        Some(line) => Err(format!("line {} has more than {MOST_COLUMNS} characters", line + 1)),
        None => Ok(()),
    }
}

/// A refusal by the template.
fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The content of a block `{% generation %}` between two marks.
fn marked(content: String) -> String {
    format!("{ANSWER_BEGINS}{content}{ANSWER_ENDS}")
}

/// Whether Python iterates over a value: not over none.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && (value.as_str().is_some() || value.try_iter().is_ok())
}

/// A template with the ends of lines that jinja2 reads.
fn lines_of_python(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}
