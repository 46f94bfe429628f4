//! Where the answers are in the text of a conversation.
//!
//! A template that marks them by `{% generation %}` decides. Otherwise an answer is a message of the role `assistant`,
//! and its text is all that the template writes from the generation prompt before it to the next message: of message
//! `i`, the text of the messages up to `i` without that of the messages before `i` with a generation prompt.

use std::ops::Range;

use super::answer_marks::{ANSWER_BEGINS, ANSWER_ENDS};
use super::conversation::{Conversation, role};
use super::template::{Budget, Ending, Template};

/// The role whose messages are answers.
const ASSISTANT: &str = "assistant";

/// The text of `conversation`, and the bytes of its answers.
///
/// # Errors
/// The template's refusal, and a template that writes earlier messages otherwise where more follow.
pub(super) fn rendered(
    template: &Template,
    conversation: &Conversation,
) -> Result<(String, Vec<Range<usize>>), String> {
    let Conversation { messages, tools, first_learned, bytes } = conversation;
    let budget = Budget::of(*bytes);
    let render = |count: usize, ending: Ending| template.render(&messages[..count], tools.as_ref(), ending, &budget);
    let whole = render(messages.len(), Ending::Message)?;
    if template.marks_answers(tools.as_ref()) {
        let (text, mut answers) = without_marks(&whole)?;
        if *first_learned > 0 {
            let (prompt, _) = without_marks(&render(*first_learned, Ending::Message)?)?;
            begins_with(&text, &prompt, *first_learned)?;
            answers.retain(|answer| answer.start >= prompt.len());
        }
        return Ok((text, answers));
    }
    let mut answers: Vec<Range<usize>> = vec![];
    for (number, message) in messages.iter().enumerate().skip(*first_learned) {
        if role(message).as_deref() != Some(ASSISTANT) {
            continue;
        }
        let before = render(number, Ending::GenerationPrompt)?;
        let own;
        let through = if number + 1 == messages.len() {
            &whole
        } else {
            own = render(number + 1, Ending::Message)?;
            &own
        };
        begins_with(through, &before, number)?;
        begins_with(&whole, through, number + 1)?;
        let start = answers.last().map_or(before.len(), |last| before.len().max(last.end));
        answers.push(start..through.len().max(start));
    }
    answers.retain(|answer| !answer.is_empty());
    Ok((whole, answers))
}

/// The text of the first `count` messages is the beginning of the text of more.
fn begins_with(text: &str, beginning: &str, count: usize) -> Result<(), String> {
    if text.starts_with(beginning) {
        return Ok(());
    }
    Err(format!(
        "the template writes the first {count} messages otherwise where more follow, so the place of an answer is not \
         known; mark answers in the template by {{% generation %}}"
    ))
}

/// The text without marks, and the bytes that were between them.
fn without_marks(marked: &str) -> Result<(String, Vec<Range<usize>>), String> {
    let (mut text, mut answers, mut begins) = (String::with_capacity(marked.len()), vec![], None);
    for part in marked.split_inclusive([ANSWER_BEGINS, ANSWER_ENDS]) {
        let content = part.trim_end_matches([ANSWER_BEGINS, ANSWER_ENDS]);
        text.push_str(content);
        match (part[content.len()..].chars().next(), begins) {
            (None, _) => {}
            (Some(ANSWER_BEGINS), None) => begins = Some(text.len()),
            (Some(_), Some(start)) if part.ends_with(ANSWER_ENDS) => {
                answers.push(start..text.len());
                begins = None;
            }
            (Some(_), _) => return Err("the template has a block generation within another".into()),
        }
    }
    if begins.is_some() {
        return Err("the template cuts a block generation off".into());
    }
    answers.retain(|answer| !answer.is_empty());
    Ok((text, answers))
}
