//! Long conversations, whose beginning is written twice for each answer: all of these texts have one budget.

use super::counting::{all_taken, most_held};
use super::{Folder, opened};

/// Messages that ask and answer in turns.
fn conversation(messages: usize) -> String {
    let role = |number| if number % 2 == 0 { "user" } else { "assistant" };
    let message = |number| format!("{{\"role\": \"{}\", \"content\": \"message {number}\"}}", role(number));
    format!("{{\"messages\": [{}]}}", (0..messages).map(message).collect::<Vec<_>>().join(", "))
}

const PLAIN: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";

#[test]
fn a_long_conversation_has_one_budget() {
    let folder = Folder::new("long");
    let refusal = |template: &str, messages| {
        folder.put("one.jinja", template.as_bytes());
        let chat = opened(&folder).expect("a template");
        chat.rendered("line 1".into(), &conversation(messages), None).map_err(|error| error.to_string())
    };
    let all = refusal(PLAIN, 1000).expect("a text");
    assert_eq!((all[0].document.text.lines().count(), all[0].answers.len()), (1000, 500));
    let over = "line 1 cannot be written as text: its texts up to each answer take more than 67108864 steps; fewer \
                messages take fewer, and so does a template that marks answers by {% generation %}";
    // Each text alone is within its own budget.
    let slow = "{% for i in range(100000) %}{% endfor %}";
    for (template, messages) in [(slow, 4096), (&*format!("{slow}{PLAIN}"), 1000), (PLAIN, 4096)] {
        assert_eq!(refusal(template, messages).map(|_| ()), Err(over.to_string()));
    }
    // It is written once, where the template marks answers.
    let marked = "{% for message in messages %}{% generation %}{{ message.content }}{% endgeneration %}{% endfor %}";
    assert_eq!(refusal(marked, 4096).expect("a text")[0].answers.len(), 4096);
}

#[test]
fn texts_of_a_conversation_share_special_tokens() {
    let folder = Folder::new("tokens");
    let (token, messages) = (1 << 20, 200);
    folder.put("tokenizer_config.json", format!("{{\"bos_token\": \"{}\"}}", "a".repeat(token)).as_bytes());
    folder.put("one.jinja", PLAIN.as_bytes());
    let chat = opened(&folder).expect("a template");
    let (result, bytes) = all_taken(|| chat.rendered("line 1".into(), &conversation(messages), None));
    assert_eq!(result.expect("a text")[0].answers.len(), messages / 2);
    assert!(bytes < messages * token / 4, "{bytes} bytes");
}

#[test]
fn values_of_a_conversation_are_bounded() {
    let folder = Folder::new("values");
    folder.put("one.jinja", b"{{ 1 }}");
    let chat = opened(&folder).expect("a template");
    let read = |count: usize| {
        let content = "[],".repeat(count);
        let record = format!("{{\"messages\": [{{\"role\": \"user\", \"content\": [{content}0]}}]}}");
        most_held(|| chat.rendered("line 1".into(), &record, None).map_err(|error| error.to_string()))
    };
    // A list has a bracket and a comma.
    let (result, held) = read((1 << 20) - 10);
    assert!(result.is_ok() && held < 1 << 28, "{held} bytes");
    let (result, held) = read(1 << 20);
    let message = result.map(|_| ()).expect_err("too many");
    assert!(
        message.starts_with("line 1 has more than 2097152 values; a conversation is an object such as"),
        "{message}"
    );
    assert!(held < 1 << 20, "{held} bytes");
}
