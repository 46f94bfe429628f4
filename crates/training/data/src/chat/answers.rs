//! Where the answers are in the text of a conversation.
//!
//! A template that marks them by `{% generation %}` decides. Otherwise an answer is a message of the role `assistant`,
//! and its text is all that the template writes from the generation prompt before it to the next message: of message
//! `i`, the text of the messages up to `i` without that of the messages before `i` with a generation prompt. Where the
//! template writes an answer otherwise than its generation prompt says, the answer begins where the two differ.
//!
//! Many templates write an answer otherwise once more messages follow, such as without its thoughts. Such a
//! conversation is several texts: each ends with an answer as the model has to write it, and only that is learned.

use std::ops::Range;

use config::RewrittenAnswers;

use super::answer_marks::{ANSWER_BEGINS, ANSWER_ENDS};
use super::conversation::{Conversation, is_answer};
use super::template::{Budget, Ending, Template};

/// A text, and the bytes of its answers.
pub(super) type Sample = (String, Vec<Range<usize>>);

/// The texts of `conversation`: one, or several where the template writes earlier answers otherwise and `rewritten`
/// splits them.
///
/// # Errors
/// The template's refusal, and answers whose place is not known.
pub(super) fn rendered(
    template: &Template,
    conversation: &Conversation,
    rewritten: RewrittenAnswers,
) -> Result<Vec<Sample>, String> {
    let texts = Texts { template, conversation, budget: Budget::of(conversation.bytes) };
    if template.marks_answers(conversation.tools.as_ref()) { texts.marked() } else { texts.found(rewritten) }
}

/// The texts of the beginnings of a conversation.
struct Texts<'a> {
    template: &'a Template,
    conversation: &'a Conversation,
    budget: Budget,
}

impl Texts<'_> {
    /// The text of the first `count` messages.
    fn of(&self, count: usize, ending: Ending) -> Result<String, String> {
        let Conversation { messages, tools, .. } = self.conversation;
        self.template.render(&messages[..count], tools.as_ref(), ending, &self.budget)
    }

    /// The whole text, with the answers that the template marks and that are to be learned.
    fn marked(&self) -> Result<Vec<Sample>, String> {
        let Conversation { messages, first_learned, .. } = self.conversation;
        let (text, mut answers) = without_marks(&self.of(messages.len(), Ending::Message)?)?;
        let end_of = |count: usize| {
            let (beginning, _) = without_marks(&self.of(count, Ending::Message)?)?;
            begins_with(&text, &beginning, count).map(|()| beginning.len())
        };
        if *first_learned > 0 {
            let start = end_of(*first_learned)?;
            answers.retain(|answer| answer.start >= start);
        }
        for number in (*first_learned..messages.len()).filter(|number| !self.conversation.is_learned[*number]) {
            let start = if number == 0 { 0 } else { end_of(number)? };
            let own = start..end_of(number + 1)?;
            answers.retain(|answer| !own.contains(&answer.start));
        }
        Ok(vec![(text, answers)])
    }

    /// The texts with the answers that are found in them.
    fn found(&self, rewritten: RewrittenAnswers) -> Result<Vec<Sample>, String> {
        let Conversation { messages, first_learned, is_learned, .. } = self.conversation;
        let whole = self.of(messages.len(), Ending::Message)?;
        let mut samples: Vec<Sample> = vec![];
        let learned = |number: &usize| is_learned[*number] && is_answer(&messages[*number]);
        for number in (*first_learned..messages.len()).filter(learned) {
            let is_last = number + 1 == messages.len();
            let through = if is_last { whole.clone() } else { self.of(number + 1, Ending::Message)? };
            let start = self.start_of_answer(number, &through)?;
            match samples.last_mut().filter(|(text, _)| through.starts_with(text.as_str())) {
                Some((text, answers)) => {
                    let start = answers.last().map_or(start, |last| start.max(last.end));
                    answers.push(start..through.len().max(start));
                    *text = through;
                }
                None => {
                    let answer = start..through.len().max(start);
                    samples.push((through, Vec::from([answer])));
                }
            }
        }
        match samples.last_mut() {
            None => samples.push((whole, vec![])),
            // Messages after the last answer stay where they change nothing.
            Some((text, _)) if whole.starts_with(text.as_str()) => *text = whole,
            Some(_) if rewritten == RewrittenAnswers::Split => {}
            Some((text, _)) => begins_with(&whole, text, messages.len() - 1)?,
        }
        if let (RewrittenAnswers::Refuse, [(text, _), (other, _), ..]) = (rewritten, samples.as_slice()) {
            let count = messages.iter().rposition(is_answer).unwrap_or_default();
            begins_with(other, text, count)?;
        }
        samples.iter_mut().for_each(|(_, answers)| answers.retain(|answer| !answer.is_empty()));
        Ok(samples)
    }

    /// Where the answer `number` begins in `through`, the text that ends with it.
    fn start_of_answer(&self, number: usize, through: &str) -> Result<usize, String> {
        let before = match self.of(number, Ending::GenerationPrompt) {
            Ok(before) => before,
            // Many templates refuse a conversation without messages: the whole text is of the answer.
            Err(_) if number == 0 => String::new(),
            Err(error) => return Err(error),
        };
        if through.starts_with(&before) {
            return Ok(before.len());
        }
        let differs = before.char_indices().zip(through.chars()).find(|((_, one), other)| one != other);
        let common = differs.map_or(before.len().min(through.len()), |((at, _), _)| at);
        let messages = if number == 0 { String::new() } else { self.of(number, Ending::Message)? };
        if common >= messages.len() && through.starts_with(&messages) {
            return Ok(common);
        }
        begins_with(through, &before, number).map(|()| before.len())
    }
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
