//! Templates that once crashed the program, kept it for ever or took its memory, and the limit that refuses each.

use super::counting::all_taken;
use super::{Folder, rendered, steps};

/// A template that makes a value in a namespace large or deep.
fn grown(times: usize, growth: &str, used: &str) -> String {
    format!(
        "{{% set ns = namespace(x=['a'], y=['a']) %}}{{% for i in range({times}) %}}{growth}{{% endfor %}}{{{{ {used} }}}}"
    )
}

/// The message of a template's refusal, without the words around it.
fn refusal(folder: &Folder, template: &str) -> String {
    let message = rendered(folder, template).expect_err(&template[..template.len().min(200)]).to_string();
    let message = message.replace(&folder.path("").display().to_string(), "");
    let message = message.trim_start_matches("the chat template of one.jinja cannot be used: ");
    let message = message.trim_start_matches("line 1 cannot be written as text: ");
    message.trim_start_matches("the template says: ").trim_end_matches(" (in chat_template:1)").into()
}

#[test]
fn values_that_hold_themselves_are_refused_where_they_are_made() {
    let folder = Folder::new("own");
    let said = "attribute `a` of a namespace holds a namespace or a loop";
    for used in ["ns", "ns|tojson", "ns == m"] {
        let template = "{% set ns = namespace() %}{% set m = namespace() %}{% set ns.a = ns %}{% set m.a = m %}{{ ";
        assert_eq!(refusal(&folder, &format!("{template}{used} }}}}")), said);
    }
    for value in ["[ns]", "{'k': [ns]}", "(1, ns)", "namespace()", "[[ns].index]"] {
        assert_eq!(
            refusal(&folder, &format!("{{% set ns = namespace() %}}{{% set ns.a = {value} %}}")),
            said,
            "{value}"
        );
    }
    assert_eq!(refusal(&folder, "{{ namespace(a=namespace()) }}"), said);
}

#[test]
fn values_have_a_depth() {
    let folder = Folder::new("depth");
    let said = "it nests lists and dictionaries deeper than 200";
    for growth in ["[ns.x]", "{'a': ns.x}", "(ns.x,)", "[1] + [ns.x]", "dict(a=ns.x)", "[ns.x]|list", "[ns.x.index]"] {
        for used in ["ns.x", "ns.x|tojson", "ns.x == ns.y"] {
            let template = grown(100_000, &format!("{{% set ns.x = {growth} %}}"), used);
            assert_eq!(refusal(&folder, &template), said, "{growth} {used}");
        }
    }
    // As deep as it may be, and walked by each that walks.
    let deep = grown(
        198,
        "{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}",
        "ns.x == ns.y and [ns.x, ns.y]|sort|tojson|length",
    );
    assert!(rendered(&folder, &deep).expect("a text").document.text.parse::<usize>().is_ok_and(|bytes| bytes > 800));
}

#[test]
fn elements_that_are_compared_written_and_copied_are_steps() {
    let folder = Folder::new("elements");
    let said = format!("the template takes more than {} steps", steps());
    let doubled = "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}";
    for used in [
        "ns.x == ns.y",
        "[ns.x, ns.y]|sort",
        "ns.x in [ns.y]",
        "ns.x|string",
        "ns.x ~ ''",
        "ns.x|tojson",
        "'%s'|format(ns.x)",
        "'{}'.format(ns.x)",
        "ns.x|join",
        "[ns.y].index(ns.x)",
        "[ns.y].count(ns.x)",
        "[ns.y, ns.x]|min",
        "ns.x",
    ] {
        assert_eq!(refusal(&folder, &grown(40, doubled, used)), said, "{used}");
    }
    for growth in [
        "ns.x + ns.x",
        "ns.x * 2",
        "ns.x + ns.x|list",
        "ns.x|batch(1)|sum(start=ns.x)",
        "(ns.x * 2)|reverse|list",
        "(ns.x * 2)[::-1]",
        "(ns.x * 2)|sort",
        "(ns.x * 3)|map('upper')|list",
    ] {
        let template = grown(60, &format!("{{% set ns.x = {growth} %}}"), "1");
        assert_eq!(refusal(&folder, &template), said, "{growth}");
    }
    for work in [
        "{% set x = range(1000)|sort|list %}",
        "{% set x = ('a' * 9000).title() %}",
        "{% set x = ('a ' * 9000).split() %}",
        "{% set x = ('a' * 9000).strip('cba') %}",
        "{% set x = ('a' * 9000)|replace('', 'b') %}",
        "{% set x = dict(a=1, b=2, c=3) %}",
        "{% set x = '%.999f'|format(1e300) %}",
        "{% set x = ('a' * 9000).find('b') %}",
        "{% set x = ('é' * 9000)[8000] %}",
        "{% set x = ('a\\n' * 900)|indent(99) %}",
        "{% set x = 'a'.center(99999) %}",
        "{% set x = '\\t'.expandtabs(9999) %}",
        "{% set x = range(900)|unique|list %}",
        "{% set x = range(900)|batch(2)|list %}",
    ] {
        let template =
            format!("{{% for i in range(99999) %}}{{% for j in range(99999) %}}{work}{{% endfor %}}{{% endfor %}}");
        assert_eq!(refusal(&folder, &template), said, "{work}");
    }
}

/// Work whose price is that of its bytes and parts, not that of one operation.
#[test]
fn names_paths_letters_and_digits_are_steps() {
    let folder = Folder::new("prices");
    let said = format!("the template takes more than {} steps", steps());
    let name = "a".repeat(50_000);
    let names: Vec<String> = (0..13).map(|number| format!("{}{number}=1", "a".repeat(5000))).collect();
    let repeated =
        |times: usize, work: &str| format!("{{% for i in range({times}) %}}{{% set x = {work} %}}{{% endfor %}}");
    let letters = |work: &str| format!("{{% set t = 'a' * 1000000 %}}{}", repeated(40, work));
    for template in [
        format!("{{% set d = {{'{name}': 1}} %}}{}", repeated(5000, &format!("d.{name}"))),
        format!("{{% macro f({name}) %}}{{% endmacro %}}{}", repeated(5000, &format!("f({name}=1)"))),
        repeated(5000, &format!("'%(a)s'|format(a=1, {})", names.join(", "))),
        "{% set x = range(1000)|map(attribute='.' * 20000)|list %}".into(),
        "{% set x = [1]|sort(attribute=',' * 16000000) %}".into(),
        "{{ ([1e-310] * 100000)|string|length }}".into(),
        "{{ ([1e-310] * 100000)|tojson|length }}".into(),
        repeated(20_000, "0.1|round(400)"),
        repeated(40, "strftime_now('%F' * 50000)"),
        "{{ ('\x01' * 1000000)|tojson|length }}".into(),
        "{{ ['\x01' * 1000000]|string|length }}".into(),
        letters("t.find('b')"),
        letters("'b' in t"),
        letters("t.isalpha()"),
        letters("t is lower"),
        letters("t[:1]"),
        letters("t[-1]"),
        letters("t|int"),
        letters("t|truncate"),
    ] {
        let shown = template.chars().take(80).collect::<String>();
        assert_eq!(refusal(&folder, &template), said, "{shown}");
    }
}

#[test]
fn a_program_is_read_in_a_time_of_its_bytes() {
    let folder = Folder::new("dots");
    let (result, bytes) = all_taken(|| rendered(&folder, &format!("{{{{ 1|a{} }}}}", ".a".repeat(1 << 18))));
    assert!(result.is_err() && bytes < 1 << 28, "{bytes} bytes");
}

#[test]
fn keys_are_not_lists() {
    let folder = Folder::new("keys");
    let said = "a dictionary cannot be a key; use a string, a number, a boolean or none";
    assert_eq!(refusal(&folder, &grown(60_000, "{% set ns.x = {ns.x: 1} if i else {'a': 1} %}", "1")), said);
    let said = "a list cannot be a key; use a string, a number, a boolean or none";
    for used in ["{ns.x: 1}", "[ns.x, ns.y]|unique", "{'a': 1}.get(ns.x)", "ns.x in {'a': 1}"] {
        assert_eq!(refusal(&folder, &grown(40, "{% set ns.x = [ns.x, ns.x] %}", used)), said, "{used}");
    }
}

#[test]
fn formats_have_a_width() {
    let folder = Folder::new("formats");
    let said = |what: &str, number: &str| format!("a format has the {what} {number}; at most 1000 is written");
    for (template, said) in [
        ("{{ '{:>9999999999}'.format(1) }}", said("width", "9999999999")),
        ("{{ '{:.1000000000f}'.format(1.0) }}{{ '%c' | format(1114112) }}", said("precision", "1000000000")),
        ("{{ '%99999d' % 1 }}", said("width", "99999")),
        ("{{ '%.99999f'|format(1) }}", said("precision", "99999")),
        ("{{ '%c' | format(1114112) }}", "1114112 is not a letter".into()),
        ("{{ 'a'.ljust(999999999) }}", "it makes more than 16777216 bytes".into()),
        ("{{ 'ab' * 9999999999999 }}", "it makes more than 16777216 bytes".into()),
        ("{{ 'a'|indent(9999999999, true) }}", "it makes more than 16777216 bytes".into()),
        ("{{ range(1000000) }}", "range has 1000000 elements; at most 100000 are made".into()),
        ("{{ 2 ** 128 }}", "an integer has more than 128 bits".into()),
        ("{{ '{0[a]é}'.format({'a': 1}) }}", "format has a field with more after its item".into()),
        ("{{ 'a'[170141183460469231731687303715884105727].x }}", "`a value[..]` is undefined".into()),
        ("{{ 'a'[-170141183460469231731687303715884105727 - 1].x }}", "`a value[..]` is undefined".into()),
    ] {
        assert_eq!(refusal(&folder, template), said, "{template}");
    }
    assert_eq!(rendered(&folder, "{{ '{:>1000}'.format(1) }}").expect("a text").document.text.len(), 1000);
}

#[test]
fn programs_have_a_depth() {
    let folder = Folder::new("programs");
    let said = "syntax error: it nests deeper than 100 blocks, brackets and prefixes";
    let nested = |open: &str, inner: &str, close: &str, count: usize| {
        format!("{}{inner}{}", open.repeat(count), close.repeat(count))
    };
    for (open, close) in [
        ("-", ""),
        ("+", ""),
        ("not ", ""),
        ("(", ")"),
        ("[", "]"),
        ("{1: ", "}"),
        ("range(", ")"),
        ("messages[", "]"),
        ("1|default(", ")"),
        ("1 if 1 else ", ""),
        ("1 is sameas (", ")"),
        ("'a'.strip(", ")"),
    ] {
        let template = |count| format!("{{{{ {} }}}}", nested(open, "1", close, count));
        assert_eq!(refusal(&folder, &template(30_000)), said, "{open}");
        let _ = rendered(&folder, &template(48));
    }
    for (open, close) in [
        ("{% if 1 %}", "{% endif %}"),
        ("{% for i in [1] %}", "{% endfor %}"),
        ("{% with %}", "{% endwith %}"),
        ("{% filter upper %}", "{% endfilter %}"),
        ("{% macro f() %}", "{% endmacro %}"),
        ("{% set x %}", "{% endset %}"),
        ("{% if 0 %}{% else %}", "{% endif %}"),
        ("{% call f() %}", "{% endcall %}"),
    ] {
        assert_eq!(refusal(&folder, &nested(open, "", close, 10_000)), said, "{open}");
    }
    // Chains do not nest.
    for chain in ["+1", "~1", " or 0", " and 1", "|int", " == 1", "|string|trim"] {
        assert!(rendered(&folder, &format!("{{{{ 1{} }}}}", chain.repeat(20_000))).is_ok(), "{chain}");
    }
    assert!(rendered(&folder, &format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(20_000))).is_ok());
    let said = "it has 1048577 bytes; at most 1048576 are read";
    assert_eq!(refusal(&folder, &"a".repeat((1 << 20) + 1)), said);
}

#[test]
fn calls_have_a_depth() {
    let folder = Folder::new("calls");
    let said = "its recursion is deeper than 800 statements, expressions and calls within each other";
    for template in [
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n=f()) %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% for i in [1] %}{% if i %}{{ [[(f() ~ 'x')|upper]] }}{% endif %}{% endfor %}{% endmacro %}{{ f() }}",
        "{% macro g() %}{{ caller() }}{% endmacro %}{% macro f() %}{% call g() %}{{ f() }}{% endcall %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% set x %}{% filter upper %}{{ f() }}{% endfilter %}{% endset %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ dict(a='a'.replace('a', f()))|items|list }}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for x in [1] if x recursive %}{% if x %}{{ [loop([1])] }}{% endif %}{% endfor %}",
    ] {
        assert_eq!(refusal(&folder, template), said, "{template}");
    }
    // A schema of thirty levels is written.
    let deep = "{% macro f(n) %}{% if n %}{% for i in [n] %}{{ '[' ~ f(i - 1) ~ ']' }}{% endfor %}{% endif %}{% endmacro %}{{ f(30) }}";
    assert_eq!(rendered(&folder, deep).expect("a text").document.text, "[".repeat(30) + &"]".repeat(30));
}
