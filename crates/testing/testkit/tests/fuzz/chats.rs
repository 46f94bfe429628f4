//! Chat templates, which are programs of other people, and the conversations that they make a text of.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use config::{ChatDate, ChatSpec, LongConversations, RewrittenAnswers};
use data::{Chat, DataError, Rendered};

use crate::corrupted::Corrupted;
use crate::watched::{INPUTS, Read, Scratch, Target};
use crate::{files_in, no_seal};

/// Templates and conversations that transformers has rendered.
const FOLDER: &str = "crates/training/data/src/tests/chat";
/// The most bytes of a conversation as text (`docs/limits.md`).
const MOST_BYTES: usize = 16 << 20;

fn chat_at(template: &Path) -> Result<Chat, DataError> {
    let date = ChatDate::parse("2026-01-31");
    Chat::open(&ChatSpec {
        template: template.to_path_buf(),
        date,
        long: LongConversations::Refuse,
        rewritten: RewrittenAnswers::Split,
    })
}

/// A folder with the special tokens that templates name.
fn folder_of_a_model(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    for tokens in files_in(FOLDER, "json").into_iter().filter(|file| file.starts_with(b"{\"bos_token")) {
        scratch.file("tokenizer_config.json", &tokens);
    }
    scratch
}

/// Answers are places of the text, in its order.
fn check(rendered: &Rendered) {
    let text = &rendered.document.text;
    assert!(text.len() <= MOST_BYTES, "{} bytes", text.len());
    let mut before = 0;
    for answer in &rendered.answers {
        assert!(before <= answer.start && answer.start <= answer.end, "{:?}", rendered.answers);
        assert!(text.get(answer.clone()).is_some(), "{answer:?} of {} bytes", text.len());
        before = answer.end;
    }
}

/// Every conversation under a template that is nearly sound, in the sandbox and within its budget.
#[test]
fn templates() {
    let scratch = folder_of_a_model("chat_templates");
    let conversations = files_in(FOLDER, "jsonl").concat();
    let conversations = String::from_utf8(conversations).unwrap();
    let read = |bytes: &[u8]| {
        let Ok(chat) = chat_at(&scratch.file("chat_template.jinja", bytes)) else { return Read::Refused };
        let texts = conversations.lines().map(|line| chat.rendered("a line".into(), line, None));
        // A conversation may be refused; it may not end the process.
        texts.filter_map(Result::ok).flatten().for_each(|rendered| check(&rendered));
        Read::Accepted
    };
    let seeds = files_in(&format!("{FOLDER}/templates"), "jinja");
    let target = Target { name: "chat_templates", seeds, seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

/// A template in the description of a tokenizer, in place of a file of its own.
#[test]
fn templates_in_json() {
    let scratch = Scratch::new("chat_templates_in_json");
    let templates = files_in(&format!("{FOLDER}/templates"), "jinja");
    let templates: Vec<_> = templates.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let one =
        serde_json::json!({ "bos_token": "<s>", "eos_token": { "content": "</s>" }, "chat_template": templates[0] });
    let list = serde_json::json!({
        "unk_token": null,
        "chat_template": [
            { "name": "default", "template": templates[1] },
            { "name": "tool_use", "template": templates[2] },
        ],
    });
    let read = |bytes: &[u8]| {
        scratch.file("tokenizer_config.json", bytes);
        let Ok(chat) = chat_at(scratch.path()) else { return Read::Refused };
        for line in [TALK, TALK_WITH_TOOLS] {
            let _ = chat.rendered("a line".into(), line, None).inspect(|texts| texts.iter().for_each(check));
        }
        Read::Accepted
    };
    let seeds = [one, list].map(|json| json.to_string().into_bytes()).to_vec();
    let target = Target { name: "chat_templates_in_json", seeds, seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}

const TALK: &str =
    r#"{"messages": [{"role": "user", "content": "Two and two?"}, {"role": "assistant", "content": "Four."}]}"#;
const TALK_WITH_TOOLS: &str = r#"{"messages": [{"role": "user", "content": "Oslo?"}, {"role": "assistant", "content": "It rains."}], "tools": [{"type": "function", "function": {"name": "weather"}}]}"#;

/// JSON lines that are nearly conversations, under each template.
#[test]
fn conversations() {
    let scratch = folder_of_a_model("conversations");
    let templates = files_in(&format!("{FOLDER}/templates"), "jinja");
    let chats: Vec<Chat> =
        templates.iter().map(|bytes| chat_at(&scratch.file("chat_template.jinja", bytes)).unwrap()).collect();
    // A template that panics is not used again.
    let chats = AssertUnwindSafe(chats);
    let read = |bytes: &[u8]| {
        let (path, chats) = (scratch.file("a.jsonl", bytes), &chats);
        let all = chats.iter().map(|chat| chat.read(&path, None));
        let accepted = all.flatten().inspect(|texts| texts.iter().for_each(check)).count();
        if accepted > 0 { Read::Accepted } else { Read::Refused }
    };
    // One conversation to a file: a fault in one line refuses the others with it.
    let lines = files_in(FOLDER, "jsonl").concat();
    let seeds: Vec<Vec<u8>> = lines.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let target = Target { name: "conversations", seeds: seeds[..6].to_vec(), seal: no_seal, read: &read };
    target.run(|tried| {
        bolero::check!().with_type::<Corrupted>().with_iterations(INPUTS).for_each(|corrupted| tried(corrupted))
    });
}
