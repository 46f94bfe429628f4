//! Templates that write earlier answers in another way, messages that are not learned, and templates of tools.

use config::{ChatSpec, LongConversations, RewrittenAnswers};
use data::{Chat, Rendered};

use crate::tests::folder::Folder;

/// Drops the thoughts of all answers but the last, as that of Qwen 3 does.
const FORGETTING: &str = "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' and not loop.last %}\
                          {{ m.content.split('</t>')[-1] }}{% else %}{{ m.content }}{% endif %}</>{% endfor %}\
                          {% if add_generation_prompt %}<a>{% endif %}";

fn rendered(folder: &Folder, rewritten: RewrittenAnswers, record: &str) -> Result<Vec<Rendered>, String> {
    let (template, date, long) = (folder.path(""), None, LongConversations::Refuse);
    let chat = Chat::open(&ChatSpec { template, date, long, rewritten }).expect("a template");
    chat.rendered("line 1".into(), record, None).map_err(|error| error.to_string())
}

/// The texts, with what is learned in brackets.
fn shown(texts: &[Rendered]) -> Vec<String> {
    let show = |Rendered { document, answers }: &Rendered| {
        let mut text = document.text.clone();
        for answer in answers.iter().rev() {
            text.insert(answer.end, ']');
            text.insert(answer.start, '[');
        }
        text
    };
    texts.iter().map(show).collect()
}

fn talk(messages: &[(&str, &str)]) -> String {
    let message = |(role, content): &(&str, &str)| serde_json::json!({ "role": role, "content": content });
    serde_json::json!({ "messages": messages.iter().map(message).collect::<Vec<_>>() }).to_string()
}

#[test]
fn each_rewritten_answer_is_learned_as_the_model_writes_it() {
    let folder = Folder::new("chat-rewritten");
    folder.put("chat_template.jinja", FORGETTING.as_bytes());
    let record = talk(&[("user", "1"), ("assistant", "x</t>a"), ("user", "2"), ("assistant", "y</t>b")]);
    let texts = rendered(&folder, RewrittenAnswers::Split, &record).expect("texts");
    assert_eq!(shown(&texts), ["<u>1</><a>[x</t>a</>]", "<u>1</><a>a</><u>2</><a>[y</t>b</>]"]);
    let said = rendered(&folder, RewrittenAnswers::Refuse, &record).expect_err("rewritten");
    assert!(said.contains("the template writes the first 3 messages otherwise where more follow"), "{said}");
    // Answers without thoughts are not rewritten: one text has all.
    let plain = talk(&[("user", "1"), ("assistant", "a"), ("user", "2"), ("assistant", "b"), ("user", "3")]);
    for way in [RewrittenAnswers::Split, RewrittenAnswers::Refuse] {
        let texts = rendered(&folder, way, &plain).expect("texts");
        assert_eq!(shown(&texts), ["<u>1</><a>[a</>]<u>2</><a>[b</>]<u>3</>"]);
    }
}

#[test]
fn an_answer_begins_where_it_differs_from_the_generation_prompt() {
    let folder = Folder::new("chat-thinking");
    let template = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}</>{% endfor %}\
                    {% if add_generation_prompt %}<a><think>{% endif %}";
    folder.put("chat_template.jinja", template.as_bytes());
    let record = talk(&[("user", "1"), ("assistant", "yes")]);
    let texts = rendered(&folder, RewrittenAnswers::Split, &record).expect("texts");
    assert_eq!(shown(&texts), ["<u>1</><a>[yes</>]"]);
}

#[test]
fn messages_with_weight_0_or_train_false_are_not_learned() {
    let folder = Folder::new("chat-weights");
    let plain = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}</>{% endfor %}\
                 {% if add_generation_prompt %}<a>{% endif %}";
    let marked = "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
                  {% endgeneration %}</>{% else %}{{ m.content }}</>{% endif %}{% endfor %}";
    let record = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"train\": false}, {\"role\": \
                  \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"c\", \"weight\": 1}, {\"role\": \
                  \"assistant\", \"content\": \"d\", \"weight\": 0.0}]}";
    for (template, expected) in [(plain, "<a>a</><u>b</><a>[c</>]<a>d</>"), (marked, "<a>a</><u>b</><a>[c]</><a>d</>")]
    {
        folder.put("chat_template.jinja", template.as_bytes());
        let texts = rendered(&folder, RewrittenAnswers::Split, record).expect("texts");
        assert_eq!(shown(&texts), [expected]);
    }
    let wrong = "[{\"role\": \"assistant\", \"content\": \"a\", \"train\": \"no\"}]";
    let said = rendered(&folder, RewrittenAnswers::Split, wrong).expect_err("train");
    assert!(
        said.starts_with("line 1 has messages[0] with `train` that is not true or false; use one of them"),
        "{said}"
    );
}

#[test]
fn conversations_with_tools_have_the_template_of_tools() {
    let folder = Folder::new("chat-tools");
    folder.put("chat_template.jinja", b"{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
    folder.put(
        "additional_chat_templates/tool_use.jinja",
        b"{{ tools|length }} tools{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    folder.put("special_tokens_map.json", b"{\"eos_token\": {\"content\": \"</s>\"}}");
    let text =
        |record: &str| rendered(&folder, RewrittenAnswers::Split, record).expect("a text")[0].document.text.clone();
    assert_eq!(text("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"), "a</s>");
    assert_eq!(text("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}"), "1 toolsa");
}
