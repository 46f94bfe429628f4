//! Messages about broken templates and about records that are not conversations.

use config::{ChatSpec, LongConversations, RewrittenAnswers};
use data::{Chat, Dataset};

use crate::tests::chat::{chat_of, spec_of, vectors};
use crate::tests::folder::Folder;

#[test]
fn records_that_are_no_conversations_are_named_with_their_line() {
    let folder = Folder::new("chat-records");
    let said = |text: &str| {
        folder.put("a.jsonl", text.as_bytes());
        let spec = spec_of(&folder.path("a.jsonl"), &vectors().join("templates/pairs.jinja"));
        let message = Dataset::open(&spec).expect_err("no conversations").to_string();
        let message = message.replace(&folder.path("").display().to_string(), "");
        message.split("; a conversation is").next().expect("text").to_string()
    };
    let table = [
        (
            "{\"text\": \"a\"}",
            "a.jsonl:1 has no field `messages` but `text`; name the one with the messages by `column`",
        ),
        ("{\"messages\": []}", "a.jsonl:1 has no messages"),
        ("{\"messages\": \"hello\"}", "a.jsonl:1 has `messages` that is not JSON: expected value at line 1 column 1"),
        ("{\"messages\": {\"role\": \"user\"}}", "a.jsonl:1 has a field `messages` that is not a list of messages"),
        ("{\"messages\": [{\"from\": \"human\", \"value\": \"a\"}]}", "a.jsonl:1 has messages[0] without a `role`"),
        (
            "\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}",
            "a.jsonl:2 has messages[0] with a `weight` other than 0 and 1; use one of them",
        ),
        (
            "{\"prompt\": \"a\", \"completion\": []}",
            "a.jsonl:1 has `prompt` and `completion` of which one is a string; use two strings or two lists",
        ),
        ("{\"prompt\": \"a\\ufdd0\", \"completion\": \"b\"}", "a.jsonl:1 has the noncharacter U+FDD0; take it out"),
        (
            "{\"prompt\": \"a\"}\n",
            "a.jsonl:1 has no field `messages` but `prompt`; name the one with the messages by `column`",
        ),
        ("{\"prompt\": 1, \"completion\": 2}", "a.jsonl:1 has a field `prompt` that is not a list of messages"),
        (
            "{\"prompt\": \"a\", \"completion\": \"b\", \"tools\": 3}",
            "a.jsonl:1 has a field `tools` that is not a list",
        ),
        (
            "{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}",
            "a.jsonl:1 cannot be written as text: the template says: roles must alternate user/assistant \
             (in chat_template:9)",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(said(text), expected, "{text}");
    }
    folder.put("b.txt", b"words");
    let spec = spec_of(&folder.path("b.txt"), &vectors().join("templates/pairs.jinja"));
    let message = Dataset::open(&spec).expect_err("text").to_string();
    assert!(
        message.ends_with("b.txt holds text, not conversations; with data.chat use JSON lines or a table"),
        "{message}"
    );
}

const RECORD: &str = "{\"prompt\": \"a\", \"completion\": \"b\"}";

/// The error of a template for one conversation.
fn refusal(folder: &Folder, template: &str) -> String {
    folder.put("one.jinja", template.as_bytes());
    let opened = chat_of(&folder.path("one.jinja"));
    let rendered = opened.and_then(|chat| chat.rendered("line 1".into(), RECORD, None));
    let message = rendered.expect_err(template).to_string();
    message.replace(&folder.path("").display().to_string(), "")
}

#[test]
fn templates_have_a_budget() {
    let folder = Folder::new("chat-budget");
    let steps = format!(
        "line 1 cannot be written as text: the template takes more than {} steps",
        (1 << 20) + 16 * RECORD.len()
    );
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let growing = "{% set ns = namespace(x='aaaa') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    let repeated = "{{ 'abcdefgh' * 90000000 }}";
    let dumped =
        "{% set ns = namespace(x='<') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x]|tojson %}{% endfor %}";
    let calling = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    for template in [endless, growing, dumped] {
        assert_eq!(refusal(&folder, template), steps, "{template}");
    }
    let long =
        "line 1 cannot be written as text: the template says: it makes more than 16777216 bytes (in chat_template:1)";
    assert_eq!(refusal(&folder, repeated), long);
    assert!(refusal(&folder, calling).contains("recursion"), "{}", refusal(&folder, calling));
}

#[test]
fn templates_that_cannot_be_used_are_named() {
    let folder = Folder::new("chat-templates");
    let table = [
        (
            "{% if %}",
            "the chat template of one.jinja cannot be used: syntax error: unexpected end of a block; expected an expression (in \
             chat_template:1)",
        ),
        (
            "{{ strftime_now('%Q') }}",
            "line 1 cannot be written as text: the template says: strftime_now has no %Q; use %Y, %m, %d, \
             %B, %b, %A or %a (in chat_template:1)",
        ),
        (
            "{{ messages | tojson(indent=2147483647) }}",
            "line 1 cannot be written as text: the template says: tojson: it makes more than 16777216 \
             bytes (in chat_template:1)",
        ),
        (
            "{{ messages[-1].content }}",
            "line 1 cannot be written as text: the template writes the first 1 messages otherwise where more follow, so the \
             place of an answer is not known; mark answers in the template by {% generation %}",
        ),
        (
            "{% generation %}a{% generation %}b{% endgeneration %}{% endgeneration %}",
            "line 1 cannot be written as text: the template has a block generation within another",
        ),
    ];
    for (template, expected) in table {
        assert_eq!(refusal(&folder, template), expected, "{template}");
    }
    let long = format!("a\n{}{{{{ none.x.y }}}}", "b".repeat(65_535));
    let said = "line 1 cannot be written as text: the template says: `a value.x` is undefined (in chat_template:2)";
    assert_eq!(refusal(&folder, &long), said);
    assert!(refusal(&folder, &format!("{{{{ {}", "(".repeat(65_531))).contains("syntax error"));
    let open = |template: &str, date| {
        let (long, rewritten) = (LongConversations::Refuse, RewrittenAnswers::Split);
        let spec = ChatSpec { template: folder.path(template), date, long, rewritten };
        Chat::open(&spec).and_then(|chat| chat.rendered("line 1".into(), "[{\"role\": \"user\"}]", None))
    };
    let message = |template: &str| open(template, None).expect_err(template).to_string();
    let message = |template: &str| message(template).replace(&folder.path("").display().to_string(), "");
    folder.put("now.jinja", b"{{ strftime_now('%Y') }}");
    assert_eq!(
        message("now.jinja"),
        "line 1 cannot be written as text: the template says: the template asks for the time; give data.chat \
         a date, as in date = \"2026-01-31\" (in chat_template:1)"
    );
    folder.put("bare/tokenizer_config.json", b"{}");
    assert_eq!(
        message("bare"),
        "bare holds no chat template: neither chat_template.jinja nor `chat_template` in tokenizer_config.json; name another \
         folder or a file *.jinja by template in data.chat"
    );
    // Of several templates that of conversations, and the file before the key.
    let several = br#"{"eos_token": {"content": "<e>"}, "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D{{ eos_token }}"}]}"#;
    folder.put("several/tokenizer_config.json", several);
    assert_eq!(open("several", None).expect("text")[0].document.text, "D<e>");
    folder.put("several/chat_template.jinja", b"F{{ eos_token }}\n");
    assert_eq!(open("several", None).expect("text")[0].document.text, "F<e>");
}

#[test]
fn jumps_stay_in_their_blocks() {
    let folder = Folder::new("chat-jumps");
    let whole =
        "{% for m in messages %}{% with a = 1 %}{% for b in [1] %}{% continue %}{% endfor %}{% endwith %}{% endfor %}";
    folder.put("one.jinja", whole.as_bytes());
    let opened = chat_of(&folder.path("one.jinja")).expect("a loop within the block");
    assert_eq!(opened.rendered("line 1".into(), RECORD, None).expect("no text")[0].document.text, "");
    // The turns of jinja2 that a jump ends do not count for `else`.
    folder.put(
        "one.jinja",
        b"{% for m in messages %}{% continue %}{% else %}x{% endfor %}{% for m in [1] %}{% else %}y{% endfor %}",
    );
    let opened = chat_of(&folder.path("one.jinja")).expect("a loop with else");
    assert_eq!(opened.rendered("line 1".into(), RECORD, None).expect("a text")[0].document.text, "x");
    for (block, tag) in
        [("generation", "generation"), ("with", "with a = 1"), ("filter", "filter upper"), ("set", "set a")]
    {
        for jump in ["continue", "break"] {
            let template =
                format!("{{% for m in messages %}}{{% {tag} %}}{{%- {jump} %}}{{% end{block} %}}{{% endfor %}}");
            let said = format!(
                "the chat template of one.jinja cannot be used: it has a {jump} in a block {block}, which must be in the \
                 loop whole (in chat_template:1)"
            );
            assert_eq!(refusal(&folder, &template), said, "{template}");
        }
    }
}
