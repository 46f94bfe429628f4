//! A chat template, ready to be rendered within a budget.

use std::cell::Cell;

use config::ChatDate;

use super::jinja::{Fault, Meter, Program, Value};
use super::template_files::TemplateFiles;

/// Steps of a template for any conversation, and for each byte of one. A step takes at most 64 bytes.
const STEPS: u64 = 1 << 20;
const STEPS_PER_BYTE: u64 = 16;
/// Steps for the longest conversation: bounds its memory.
const MOST_STEPS: u64 = 12 << 20;
/// Steps of all texts of a conversation, which is rendered once for each of its answers: bounds its time.
const MOST_STEPS_OF_ALL: u64 = 1 << 26;
/// Most letters of a template's message that are shown.
const MOST_MESSAGE: usize = 2000;

/// The end of the text that a template is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The last message.
    Message,
    /// The beginning of an answer.
    GenerationPrompt,
}

/// A template, parsed.
#[derive(Debug)]
pub(super) struct Template {
    plain: Program,
    /// The program for conversations with tools, where it is another one.
    with_tools: Option<Program>,
    /// By name. Texts share them.
    special_tokens: Vec<(&'static str, Value)>,
    date: Option<ChatDate>,
}

/// The steps that are left for the texts of one conversation.
#[derive(Debug)]
pub(super) struct Budget {
    /// Steps of one text.
    steps: u64,
    left: Cell<u64>,
}

impl Budget {
    /// The budget of a conversation whose record has `bytes` bytes.
    pub(super) fn of(bytes: usize) -> Budget {
        let steps = STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(bytes as u64)).min(MOST_STEPS);
        Budget { steps, left: Cell::new(MOST_STEPS_OF_ALL) }
    }
}

impl Template {
    /// Parses the template of `files`. `date` answers its `strftime_now`.
    ///
    /// # Errors
    /// The place of a syntax error.
    pub(super) fn new(files: TemplateFiles, date: Option<ChatDate>) -> Result<Template, String> {
        let parse = |source: &str, name| Program::parse(source).map_err(|error| said(error, name));
        let with_tools = files.with_tools.map(|source| parse(&source, WITH_TOOLS)).transpose()?;
        let plain = parse(&files.source, PLAIN)?;
        let special_tokens = files.special_tokens.iter().map(|(name, token)| (*name, Value::text(token))).collect();
        Ok(Template { plain, with_tools, special_tokens, date })
    }

    /// The program for conversations with or without `tools`, and its name.
    fn program(&self, tools: Option<&Value>) -> (&Program, &'static str) {
        match (&self.with_tools, tools) {
            (Some(program), Some(_)) => (program, WITH_TOOLS),
            (Some(_), None) | (None, _) => (&self.plain, PLAIN),
        }
    }

    /// Whether the template marks the answers of conversations with `tools` itself, by `{% generation %}`.
    pub(super) fn marks_answers(&self, tools: Option<&Value>) -> bool {
        self.program(tools).0.marks_answers()
    }

    /// The text of `messages`.
    ///
    /// # Errors
    /// The template's refusal, or its error with the line; more text or steps than a conversation may take.
    pub(super) fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        ending: Ending,
        budget: &Budget,
    ) -> Result<String, String> {
        let (program, name) = self.program(tools);
        let says = |error| said(error, name);
        let values = [
            ("messages", Value::list(messages.to_vec()).map_err(says)?),
            ("tools", tools.cloned().unwrap_or(Value::None)),
            ("documents", Value::None),
            ("add_generation_prompt", Value::Bool(ending == Ending::GenerationPrompt)),
        ];
        let values: Vec<(&str, Value)> = self.special_tokens.iter().cloned().chain(values).collect();
        let steps = budget.steps.min(budget.left.get());
        let meter = Meter::new(steps);
        let text = program.render(&values, self.date, &meter);
        budget.left.set(budget.left.get() - (steps - meter.steps()));
        text.map_err(|error| match error {
            Fault::Steps if steps < budget.steps => {
                format!(
                    "its texts up to each answer take more than {MOST_STEPS_OF_ALL} steps; fewer messages take fewer, \
                     and so does a template that marks answers by {{% generation %}}"
                )
            }
            Fault::Steps => format!("the template takes more than {steps} steps"),
            Fault::Says { .. } => format!("the template says: {}", says(error)),
        })
    }
}

/// Names of the programs in messages.
const PLAIN: &str = "chat_template";
const WITH_TOOLS: &str = "tool_use";

/// A fault of the program `name` as text.
fn said(fault: Fault, name: &str) -> String {
    let (text, line) = match fault {
        Fault::Says { text, line } => (text, line),
        Fault::Steps => ("it has no steps left".into(), None),
    };
    let text = match text.char_indices().nth(MOST_MESSAGE) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    };
    match line {
        Some(line) => format!("{text} (in {name}:{line})"),
        None => text,
    }
}
