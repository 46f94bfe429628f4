//! Text, JSON lines, folders of them, token files and pairs.

use crate::hostile::case::{Case, Content, case};
use crate::hostile::fixtures::{Fixture, SMALL};
use crate::hostile::verdict::hold;

/// Frames of zstd whose blocks are one byte each, 128 KiB times.
fn zstd_bomb(blocks: usize, window: u8) -> Vec<u8> {
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
    (0..blocks).for_each(|_| bytes.extend([0x02, 0x00, 0x10, b'a']));
    bytes.extend([0x03, 0x00, 0x10, b'a']);
    bytes
}

/// A table that pyarrow wrote.
fn table(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/formats/src/tests/tables/");
    std::fs::read(format!("{folder}{name}")).expect("a table")
}

#[test]
fn packed_text_and_tables_are_read_within_limits_or_refused() {
    let parquet = table("zstd-pages-1.parquet");
    let cut = |bytes: &[u8], less: usize| bytes[..bytes.len() - less].to_vec();
    let mut lying = parquet.clone();
    let length = lying.len() - 8;
    lying[length..length + 4].copy_from_slice(&[0xff; 4]);
    hold(vec![
        text("a table", "a.txt", parquet.clone()).writes("o.tokens").done("54 documents"),
        text("a table of Arrow", "a", table("views-lz4.arrow")).writes("o.tokens").done("54 documents"),
        text("gzip of two members", "a", table("lines.txt.gz")).writes("o.tokens").done("1 document"),
        text("zstd that grows a little", "a.txt", zstd_bomb(100, 0x58)).writes("o.tokens").done("13,238,272 tokens"),
        text("zstd that grows without an end", "a.txt", zstd_bomb(20_000, 0x58)).refused("it holds more than 87"),
        text("zstd with a window of 2 TiB", "a.txt", zstd_bomb(1, 0xf8)).refused("the window of a frame has"),
        text("zstd of JSON lines without an end", "a.jsonl.zst", zstd_bomb(800, 0x58))
            .refused("a.jsonl.zst:1 has more"),
        text("a table that is cut off", "a.parquet", cut(&parquet, 50)).refused("which ends with `PAR1`"),
        text("a table whose description has 4 GiB", "a.parquet", lying).refused("its description has 4294967295 bytes"),
        text("Arrow that is cut off", "a", cut(&table("stream.arrows"), 900)).refused("the file ends within a message"),
        text("tokens of JSON lines, and a table of text", "a", Content::Folder)
            .with("a/1.jsonl", "{\"input_ids\": [1]}")
            .with("a/2.parquet", parquet.clone())
            .writes("o.tokens")
            .done("55 documents"),
        text("a column that is missing", "a", parquet).and("--column").and("content").refused("there is no column"),
        text("tokens under a name of text", "a.txt", Content::from(b"PLEACHTK\x01\0\0\0".to_vec()))
            .refused("a.txt holds tokens; give it a name that ends with .tokens"),
        case("a pattern that nothing matches", "data tokenize {}/*.csv --out {}/o.tokens")
            .with("a.txt", "text")
            .refused("*.csv matches no file"),
        text("a folder with links out of it", "a", Content::Folder)
            .with("b", Content::Folder)
            .with("b/secret.txt", "secret")
            .with("a/c", Content::Link("../b".into()))
            .with("a/d.txt", Content::Link("../b/secret.txt".into()))
            .with("a/t.txt", "text")
            .writes("o.tokens")
            .done("1 document, 4 tokens"),
    ]);
}

/// `data tokenize` of `{}/NAME`.
fn text(name: &str, file: &str, content: impl Into<Content>) -> Case {
    case(name, &format!("data tokenize {{}}/{file} --out {{}}/o.tokens")).with(file, content)
}

#[test]
fn what_is_no_text_is_refused() {
    hold(vec![
        text("sound", "a.txt", "some words").writes("o.tokens").done("1 document, 10 tokens"),
        text("empty", "a.txt", "").refused("a.txt holds no text"),
        text("byte order mark alone", "a.txt", "\u{feff}").refused("a.txt holds no text"),
        text("zero bytes", "a.txt", vec![0; 100]).writes("o.tokens").done("100 tokens"),
        text("lines that end in CR LF", "a.txt", "a\r\nb\r\n").writes("o.tokens").done("6 tokens"),
        text("UTF-16", "a.txt", b"\xff\xfea\0b\0".to_vec()).refused("a.txt is not UTF-8 at byte 0"),
        text("Latin-1", "a.txt", b"caf\xe9".to_vec()).refused("a.txt is not UTF-8 at byte 3"),
        text("a character that is cut off", "a.txt", b"abc\xe2\x82".to_vec()).refused("a.txt is not UTF-8 at byte 3"),
        text("gzip", "a.txt", b"\x1f\x8b\x08\xff".to_vec())
            .refused("a.txt, gzip stream 1, near byte 4: the file ends within compressed data"),
        text("zstd", "a.txt", b"\x28\xb5\x2f\xfd\xff".to_vec()).refused("a.txt, zstd stream 1, near byte 0: "),
        text("xz", "a.txt", b"\xfd7zXZ\0\xff".to_vec()).refused("compressed by xz"),
        text("bzip2", "a.txt", b"BZh9\xff".to_vec()).refused("compressed by bzip2"),
        text("zip", "a.txt", b"PK\x03\x04\xff".to_vec()).refused("an archive of zip"),
        text("parquet", "a.txt", b"PAR1\xff".to_vec()).refused("a table of parquet"),
        text("a folder without text", "a", Content::Folder).refused("holds no text"),
        text("a folder in a link to itself", "a", Content::Folder)
            .with("a/b", Content::Link("../a".into()))
            .refused("holds no text"),
        text("a folder with a pipe and a device", "a", Content::Folder)
            .with("a/p.txt", Content::Pipe)
            .with("a/z.txt", Content::Link("/dev/zero".into()))
            .with("a/t.txt", "text")
            .writes("o.tokens")
            .done("1 document, 4 tokens"),
        text("JSON lines: an empty line", "a.jsonl", "\n\n{\"text\": \"ab\"}\n\n").writes("o.tokens").done("2 tokens"),
        text("JSON lines: a list", "a.jsonl", "[1]\n").refused("a.jsonl:1"),
        text("JSON lines: no text", "a.jsonl", "{\"a\": 1}\n").refused("a.jsonl:1"),
        text("JSON lines: a text of numbers", "a.jsonl", "{\"text\": 1}\n").refused("a.jsonl:1"),
        text("JSON lines: cut off", "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"a").refused("a.jsonl:2"),
        text("JSON lines: half a surrogate pair", "a.jsonl", "{\"text\": \"\\ud800\"}\n").refused("a.jsonl:1"),
        text("JSON lines: arrays in arrays", "a.jsonl", format!("{{\"a\": {}", "[".repeat(1_000_000)))
            .refused("a.jsonl:1"),
        text("JSON lines: one object over all lines", "a.jsonl", "{\n\"text\": \"a\"\n}\n").refused("a.jsonl:1"),
        text("JSON lines: byte order mark", "a.jsonl", "\u{feff}{\"text\": \"ab\"}\n")
            .writes("o.tokens")
            .done("2 tokens"),
        text("JSON lines: a key twice", "a.jsonl", "{\"text\": \"ab\", \"text\": \"c\"}\n")
            .writes("o.tokens")
            .done("tokens"),
        text(
            "JSON lines: a line of 4 million letters",
            "a.jsonl",
            format!("{{\"text\": \"{}\"}}", "a".repeat(4_000_000)),
        )
        .writes("o.tokens")
        .done("4,000,000 tokens"),
        text("JSON lines: 300,000 lines", "a.jsonl", "{\"text\": \"ab\"}\n".repeat(300_000))
            .writes("o.tokens")
            .done("300,000 documents"),
        text("a name with another meaning", "a.tokens", "text").refused("a.tokens"),
        case("too little text", &format!("train {SMALL} --data {{}}/a.txt --set run.folder={{}}/run"))
            .with("a.txt", "ab")
            .refused("has 2 tokens"),
    ]);
}

fn changed(
    fixture: Fixture,
    file: &'static str,
    change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
) -> Content {
    Content::Changed(fixture, file, Box::new(change))
}

/// A token file whose bytes from `at` on are `bytes`.
fn tokens(name: &str, at: usize, bytes: Vec<u8>) -> Case {
    let content = changed(Fixture::Tokens, "", move |mut file| {
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        file
    });
    text(&format!("token file: {name}"), "a.tokens", content)
}

#[test]
fn damaged_token_files_are_refused() {
    let huge = u64::MAX.to_le_bytes().to_vec();
    let large = (1u64 << 40).to_le_bytes().to_vec();
    let cut = |name: &str, keep: fn(usize) -> usize| {
        let content = changed(Fixture::Tokens, "", move |mut file| {
            file.truncate(keep(file.len()));
            file
        });
        text(&format!("token file: {name}"), "a.tokens", content).refused("a.tokens: ")
    };
    let mut cases = vec![
        tokens("another magic", 0, b"PLEACHTX".to_vec()).refused("a.tokens: "),
        tokens("version 2", 8, vec![2]).refused("a.tokens: "),
        tokens("tokens of 3 bytes", 12, vec![3]).refused("a.tokens: "),
        tokens("another hash", 56, vec![0; 8]).refused("a.tokens: "),
        cut("empty", |_| 0),
        cut("magic alone", |_| 8),
        cut("half a header", |_| 40),
        cut("a header", |_| 64),
        cut("a byte less", |len| len - 1),
        text("token file: twice", "a.tokens", changed(Fixture::Tokens, "", |file| file.repeat(2)))
            .refused("a.tokens: "),
        text("token file: sparse", "a.tokens", Content::Sparse(1 << 40)).refused("a.tokens: "),
        text(
            "token file: a header on a file of 2^40 bytes",
            "a.tokens",
            changed(Fixture::Tokens, "", |file| file[..64].to_vec()),
        )
        .refused("a.tokens: "),
    ];
    for (field, at) in [("documents", 16), ("tokens", 24), ("tokenizer's bytes", 40)] {
        for (number, bytes) in [("2^64 - 1", &huge), ("2^40", &large), ("0", &vec![0; 8])] {
            cases.push(tokens(&format!("{number} {field}"), at, bytes.clone()).refused("a.tokens: "));
        }
    }
    cases.push(tokens("a vocabulary of 2^64 - 1", 32, huge).refused("a.tokens: "));
    hold(cases);
}

/// A run on the pair whose index was changed.
fn pair(name: &str, change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Case {
    let run = SMALL.replace("data.tokenizer=bytes", "data.tokenizer={}/pair/m.tokenizer.json");
    // Sizes of the tokens are those that the index says.
    case(format!("pair: {name}"), &format!("train {run} --data {{}}/pair/m.idx --set run.folder={{}}/run"))
        .with("pair", changed(Fixture::Pair, "m.idx", change))
        .refused("/pair/m.")
}

#[test]
fn damaged_pairs_are_refused() {
    let at = |at: usize, bytes: Vec<u8>| {
        move |mut file: Vec<u8>| {
            file[at..at + bytes.len()].copy_from_slice(&bytes);
            file
        }
    };
    let huge = u64::MAX.to_le_bytes().to_vec();
    hold(vec![
        pair("empty", |_| vec![]),
        pair("another magic", at(0, b"X".to_vec())),
        pair("version 2", at(9, vec![2])),
        pair("tokens of type 7", at(17, vec![7])),
        pair("2^64 - 1 sequences", at(18, huge.clone())),
        pair("2^61 sequences", at(18, (1u64 << 61).to_le_bytes().to_vec())),
        pair("2^64 - 1 documents", at(26, huge.clone())),
        pair("no documents", at(26, vec![0; 8])),
        pair("a sequence of 2^31 - 1 tokens", at(34, i32::MAX.to_le_bytes().to_vec())),
        pair("a sequence of -1 tokens", at(34, (-1i32).to_le_bytes().to_vec())),
        pair("a sequence at byte 2^63", at(38, (1u64 << 63).to_le_bytes().to_vec())),
        pair("a document past the end", at(46, huge)),
        pair("cut off", |file| file[..40].to_vec()),
        pair("twice", |file| file.repeat(2)),
        case(
            "pair: tokens that are cut off",
            &format!("train {SMALL} --data {{}}/pair/m.idx --set run.folder={{}}/run"),
        )
        .with("pair", changed(Fixture::Pair, "m.bin", |file| file[..10].to_vec()))
        .refused("m."),
        case("pair: tokens are a device", &format!("train {SMALL} --data {{}}/pair/m.idx --set run.folder={{}}/run"))
            .with("pair", Content::Copy(Fixture::Pair))
            .with("pair/m.bin", Content::Link("/dev/zero".into()))
            .refused("m.bin"),
    ]);
}

/// Tasks of a run that fills blanks.
fn tasks(name: &str, content: impl Into<Content>) -> Case {
    let blanks = "--set model.vocabulary=260 --set data.blanks={mask=256,gmask=257,sop=258,eop=259,instructions=\"tasks.jsonl\"}";
    let small = SMALL.replace("model.context=16", "model.context=64");
    case(format!("tasks: {name}"), &format!("train {small} {blanks} --set run.folder={{}}/run"))
        .with("tasks.jsonl", content)
}

#[test]
fn tasks_that_are_none_are_refused() {
    hold(vec![
        tasks("empty", "").refused("tasks.jsonl"),
        tasks("no target", "{\"input\": \"a\"}\n").refused("tasks.jsonl:1"),
        tasks("a device", Content::Link("/dev/zero".into())).refused("tasks.jsonl"),
        tasks("a folder", Content::Folder).refused("tasks.jsonl"),
        tasks("sparse", Content::Sparse(17 << 30)).refused("tasks.jsonl"),
        tasks("no text", b"\xff\xfe".to_vec()).refused("tasks.jsonl"),
    ]);
}

/// Conversations of a run under a template.
fn chats(name: &str, conversations: impl Into<Content>, template: impl Into<Content>) -> Case {
    let keys = "--set data.path=chats.jsonl --set data.chat={template=\"it.jinja\"}";
    case(format!("chats: {name}"), &format!("train {SMALL} {keys} --set run.folder={{}}/run"))
        .with("chats.jsonl", conversations)
        .with("it.jinja", template)
}

#[test]
fn conversations_and_templates_that_are_none_are_refused() {
    let pair = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
    let many = format!("{{\"messages\": [{}]}}", vec!["{\"role\": \"user\"}"; 5000].join(", "));
    let nested = format!("{{\"messages\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    hold(vec![
        chats("empty", "", "{{ messages }}").refused("chats.jsonl"),
        chats("no messages", "{\"text\": \"a\"}\n", "{{ messages }}").refused("chats.jsonl:1 has no field `messages`"),
        chats("many messages", many, "x").refused("has 5000 messages"),
        chats("nested", nested, "x").refused("chats.jsonl:1 is not JSON"),
        chats("a device", Content::Link("/dev/zero".into()), "x").refused("chats.jsonl"),
        chats("no text", b"\xff\xfe".to_vec(), "x").refused("chats.jsonl"),
        chats("template: empty", pair, "").refused("no token of an answer"),
        chats("template: a device", pair, Content::Link("/dev/zero".into())).refused("it.jinja"),
        chats("template: a folder", pair, Content::Folder).refused("it.jinja holds no chat template"),
        chats("template: sparse", pair, Content::Sparse(17 << 30)).refused("it.jinja"),
        chats("template: no text", pair, b"\xff\xfe".to_vec()).refused("it.jinja"),
        chats("template: nested", pair, "{% if true %}".repeat(100_000)).refused("it.jinja cannot be used"),
        chats("template: brackets", pair, format!("{{{{ {} }}}}", "(".repeat(100_000)))
            .refused("it.jinja cannot be used"),
        chats(
            "template: endless",
            pair,
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        )
        .refused("takes more than"),
        chats(
            "template: swells",
            pair,
            "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        )
        .refused("takes more than"),
        chats("template: calls itself", pair, "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").refused("recursion"),
        chats("template: a file", pair, "{% include '/etc/passwd' %}").refused("unexpected block `include`"),
    ]);
}
