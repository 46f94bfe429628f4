//! Templates out of bytes: each byte decides how the grammar continues. Expressions have the kind that their place asks
//! for more often than not, so that a template gets far before it is refused.

/// A template under construction.
pub struct Grammar<'b> {
    bytes: &'b [u8],
    /// Blocks and brackets around the place.
    depth: usize,
    /// Loops around the place that a jump may leave.
    loops: usize,
}

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    List,
    Dict,
    Any,
}

const KINDS: [Kind; 5] = [Kind::Text, Kind::Number, Kind::List, Kind::Dict, Kind::Any];

const TEXTS: [&str; 14] = [
    "''",
    "'a'",
    "'a b  c'",
    "'\\n x\\ty\\n'",
    "'é😀漢'",
    "'{:>7}{}'",
    "'{0:*^99.3}'",
    "'%s %5d %-3s'",
    "'%.9f%%'",
    "'aB' 'c'",
    "'<|im_start|>'",
    "'12'",
    "'-1e5'",
    "'role,content'",
];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "-1",
    "3",
    "7",
    "100",
    "99999",
    "1000000007",
    "170141183460469231731687303715884105727",
    "0.5",
    "1e308",
    "-2.75",
    "true",
];
const NAMES: [&str; 12] = [
    "a",
    "b",
    "ns.x",
    "ns.y",
    "messages",
    "message",
    "message.content",
    "loop.index",
    "tools",
    "bos_token",
    "c",
    "missing",
];
/// Filters with the kinds of their value and of their result; `#` is an argument that is a number, `$` a text, `@` a
/// list, and `?` any value.
const FILTERS: [(&str, Kind, Kind); 58] = [
    ("upper", Kind::Text, Kind::Text),
    ("lower", Kind::Text, Kind::Text),
    ("title", Kind::Text, Kind::Text),
    ("capitalize", Kind::Text, Kind::Text),
    ("trim", Kind::Text, Kind::Text),
    ("trim($)", Kind::Text, Kind::Text),
    ("replace($, $)", Kind::Text, Kind::Text),
    ("replace($, $, #)", Kind::Text, Kind::Text),
    ("indent(#)", Kind::Text, Kind::Text),
    ("indent($, true, true)", Kind::Text, Kind::Text),
    ("center(#)", Kind::Text, Kind::Text),
    ("truncate(#)", Kind::Text, Kind::Text),
    ("escape", Kind::Text, Kind::Text),
    ("string", Kind::Any, Kind::Text),
    ("safe", Kind::Any, Kind::Text),
    ("tojson", Kind::Any, Kind::Text),
    ("tojson(indent=#)", Kind::Any, Kind::Text),
    ("tojson(separators=($, $))", Kind::List, Kind::Text),
    ("format(?, ?)", Kind::Text, Kind::Text),
    ("format(#)", Kind::Text, Kind::Text),
    ("wordcount", Kind::Text, Kind::Number),
    ("split($)", Kind::Text, Kind::List),
    ("list", Kind::Any, Kind::List),
    ("length", Kind::Any, Kind::Number),
    ("count", Kind::List, Kind::Number),
    ("first", Kind::List, Kind::Any),
    ("last", Kind::List, Kind::Any),
    ("join", Kind::List, Kind::Text),
    ("join($)", Kind::List, Kind::Text),
    ("join($, attribute=$)", Kind::List, Kind::Text),
    ("sort", Kind::List, Kind::List),
    ("sort(reverse=true, attribute=$)", Kind::List, Kind::List),
    ("unique", Kind::List, Kind::List),
    ("unique(true)", Kind::List, Kind::List),
    ("reverse", Kind::Any, Kind::Any),
    ("min", Kind::List, Kind::Any),
    ("max", Kind::List, Kind::Any),
    ("sum", Kind::List, Kind::Number),
    ("sum(start=@)", Kind::List, Kind::List),
    ("batch(#, ?)", Kind::List, Kind::List),
    ("slice(#, ?)", Kind::List, Kind::List),
    ("groupby($)", Kind::List, Kind::List),
    ("map('string')", Kind::List, Kind::List),
    ("map('replace', $, $)", Kind::List, Kind::List),
    ("map(attribute=$, default=?)", Kind::List, Kind::List),
    ("select", Kind::List, Kind::List),
    ("select('equalto', ?)", Kind::List, Kind::List),
    ("reject('in', @)", Kind::List, Kind::List),
    ("selectattr('role')", Kind::List, Kind::List),
    ("rejectattr('role', 'equalto', ?)", Kind::List, Kind::List),
    ("items", Kind::Dict, Kind::List),
    ("dictsort", Kind::Dict, Kind::List),
    ("dictsort(by='value', reverse=true)", Kind::Dict, Kind::List),
    ("default(?, true)", Kind::Any, Kind::Any),
    ("int(#, #)", Kind::Any, Kind::Number),
    ("float", Kind::Any, Kind::Number),
    ("abs", Kind::Number, Kind::Number),
    ("round(#, 'floor')", Kind::Number, Kind::Number),
];
/// Methods, likewise.
const METHODS: [(&str, Kind, Kind); 40] = [
    ("strip()", Kind::Text, Kind::Text),
    ("lstrip($)", Kind::Text, Kind::Text),
    ("rstrip($)", Kind::Text, Kind::Text),
    ("upper()", Kind::Text, Kind::Text),
    ("title()", Kind::Text, Kind::Text),
    ("swapcase()", Kind::Text, Kind::Text),
    ("replace($, $)", Kind::Text, Kind::Text),
    ("join(@)", Kind::Text, Kind::Text),
    ("format(?, ?)", Kind::Text, Kind::Text),
    ("center(#, $)", Kind::Text, Kind::Text),
    ("ljust(#)", Kind::Text, Kind::Text),
    ("zfill(#)", Kind::Text, Kind::Text),
    ("expandtabs(#)", Kind::Text, Kind::Text),
    ("removeprefix($)", Kind::Text, Kind::Text),
    ("split()", Kind::Text, Kind::List),
    ("split($)", Kind::Text, Kind::List),
    ("rsplit($, #)", Kind::Text, Kind::List),
    ("splitlines(true)", Kind::Text, Kind::List),
    ("partition($)", Kind::Text, Kind::List),
    ("rpartition($)", Kind::Text, Kind::List),
    ("find($)", Kind::Text, Kind::Number),
    ("rfind($, #)", Kind::Text, Kind::Number),
    ("count($)", Kind::Text, Kind::Number),
    ("index($)", Kind::Text, Kind::Number),
    ("startswith($)", Kind::Text, Kind::Number),
    ("endswith(($, $))", Kind::Text, Kind::Number),
    ("isdigit()", Kind::Text, Kind::Number),
    ("isupper()", Kind::Text, Kind::Number),
    ("istitle()", Kind::Text, Kind::Number),
    ("isidentifier()", Kind::Text, Kind::Number),
    ("count(?)", Kind::List, Kind::Number),
    ("index(?)", Kind::List, Kind::Number),
    ("copy()", Kind::List, Kind::List),
    ("append(?)", Kind::List, Kind::Any),
    ("items()", Kind::Dict, Kind::List),
    ("keys()", Kind::Dict, Kind::List),
    ("values()", Kind::Dict, Kind::List),
    ("get($, ?)", Kind::Dict, Kind::Any),
    ("get(?)", Kind::Dict, Kind::Any),
    ("update(?)", Kind::Dict, Kind::Any),
];
const TESTS: [&str; 16] = [
    "defined",
    "undefined",
    "none",
    "string",
    "mapping",
    "iterable",
    "sequence",
    "number",
    "odd",
    "callable",
    "in @",
    "equalto ?",
    "lt #",
    "sameas ?",
    "divisibleby #",
    "startingwith $",
];
/// Statements that make a value large or deep where they are repeated.
const GROWTH: [&str; 16] = [
    "{% set ns.x = [ns.x] %}",
    "{% set ns.x = [ns.x, ns.x] %}",
    "{% set ns.y = [ns.y, ns.y] %}",
    "{% set ns.x = (ns.y, ns.x) %}",
    "{% set ns.x = {'a': ns.x, 'b': ns.x} %}",
    "{% set ns.y = {'a': ns.y} %}",
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% set ns.x = ns.x + ns.x %}",
    "{% set ns.y = ns.y * 3 %}",
    "{% set ns.x = ns.x | string %}",
    "{% set ns.y = ns.x | tojson %}",
    "{% set ns.x = ns.x | list + [ns.y] %}",
    "{% set ns.x = dict(ns.x, k=ns.y) %}",
    "{% set ns.x = ns.x | replace('a', ns.x) %}",
    "{% set ns.x = ns.x | map('list') | list %}",
    "{% set ns.x = namespace(x=ns.x) %}",
];

impl<'b> Grammar<'b> {
    /// The template of `bytes`.
    pub fn template(bytes: &'b [u8]) -> String {
        let mut grammar = Grammar { bytes, depth: 0, loops: 0 };
        let mut text =
            String::from("{% set ns = namespace(x=[1], y='a') %}{% set a = [1, 'b'] %}{% set b = {'k': 2} %}");
        text.push_str("{% macro f(p, q=2) %}{{ p }}{{ q }}{% endmacro %}");
        while !grammar.bytes.is_empty() && text.len() < 20_000 {
            text.push_str(&grammar.statement());
        }
        text
    }

    /// A number below `count`; 0 where no bytes are left.
    fn pick(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % count
    }

    fn of<'t>(&mut self, table: &[&'t str]) -> &'t str {
        table[self.pick(table.len())]
    }

    fn block(&mut self) -> String {
        if self.depth > 6 {
            return "x".into();
        }
        self.depth += 1;
        let count = 1 + self.pick(3);
        let block = (0..count).map(|_| self.statement()).collect();
        self.depth -= 1;
        block
    }

    /// A block that no jump leaves.
    fn closed_block(&mut self) -> String {
        let loops = std::mem::take(&mut self.loops);
        let block = self.block();
        self.loops = loops;
        block
    }

    fn statement(&mut self) -> String {
        match self.pick(20) {
            0 => self.of(&["text", " \n  ", "{# comment #}", "{%- raw -%}{{ x }}{%- endraw -%}"]).into(),
            1..=4 => format!("{{{{ {} }}}}", self.expression(Kind::Any)),
            5 | 6 => format!("{{% set {} = {} %}}", self.place(), self.expression(Kind::Any)),
            7 => {
                let count = self.of(&["2", "5", "40", "300", "99999"]);
                let growth: String = (0..1 + self.pick(3)).map(|_| self.of(&GROWTH)).collect();
                format!("{{% for i in range({count}) %}}{growth}{{% endfor %}}")
            }
            8 | 9 => {
                let (elements, with) =
                    (self.expression(Kind::List), self.of(&["", " if a", " recursive", " if loop is undefined"]));
                let place = self.of(&["a", "a, c", "message", "i"]);
                self.loops += 1;
                let block = self.block();
                self.loops -= 1;
                format!("{{% for {place} in {elements}{with} %}}{block}{{% else %}}{}{{% endfor %}}", self.block())
            }
            10 => {
                let (test, other) = (self.expression(Kind::Any), self.expression(Kind::Number));
                let (first, second) = (self.block(), self.block());
                format!("{{% if {test} %}}{first}{{% elif {other} %}}{second}{{% else %}}z{{% endif %}}")
            }
            11 => {
                let name = self.of(&["f", "g"]);
                let inner = self.of(&["{{ f(p) }}", "{{ g(p, q) }}", "{{ caller() }}", "{{ p }}"]);
                format!(
                    "{{% macro {name}(p, q={}) %}}{inner}{}{{% endmacro %}}",
                    self.expression(Kind::Any),
                    self.closed_block()
                )
            }
            12 => format!("{{% call f({}) %}}{}{{% endcall %}}", self.expression(Kind::Any), self.closed_block()),
            13 => {
                format!("{{% filter {} %}}{}{{% endfilter %}}", self.use_of(&FILTERS, Kind::Text), self.closed_block())
            }
            14 => format!("{{% set {} %}}{}{{% endset %}}", self.place(), self.closed_block()),
            15 => format!("{{% with c = {} %}}{}{{% endwith %}}", self.expression(Kind::Any), self.closed_block()),
            16 => format!("{{% generation %}}{}{{% endgeneration %}}", self.closed_block()),
            17 if self.loops > 0 => {
                self.of(&["{% break %}", "{% continue %}", "{{ loop([a]) }}", "{{ loop.cycle(1, a) }}"]).into()
            }
            17 | 18 => format!("{{% do {} %}}", self.expression(Kind::Any)),
            _ => self.of(&GROWTH).into(),
        }
    }

    fn place(&mut self) -> &'static str {
        self.of(&["a", "b", "c", "ns.x", "ns.y", "a, b", "ns.x, c"])
    }

    fn expression(&mut self, kind: Kind) -> String {
        if self.depth > 8 || self.bytes.is_empty() {
            return self.leaf(kind);
        }
        self.depth += 1;
        let expression = self.branch(kind);
        self.depth -= 1;
        expression
    }

    fn leaf(&mut self, kind: Kind) -> String {
        match (kind, self.pick(4)) {
            (_, 0) => self.of(&NAMES).into(),
            (Kind::Text, _) => self.of(&TEXTS).into(),
            (Kind::Number, _) => self.of(&NUMBERS).into(),
            (Kind::List, _) => self.of(&["[]", "[1, 2]", "['b', 'A']", "messages", "range(9)", "(1, 'x')"]).into(),
            (Kind::Dict, _) => self.of(&["{}", "{'a': 1, 2: none}", "messages[0]", "b", "dict(k=1)"]).into(),
            (Kind::Any, 1) => self.of(&TEXTS).into(),
            (Kind::Any, _) => self.of(&NUMBERS).into(),
        }
    }

    fn branch(&mut self, kind: Kind) -> String {
        match self.pick(14) {
            0 | 1 => self.leaf(kind),
            2..=4 => self.used(&FILTERS, kind, "|"),
            5 | 6 => self.used(&METHODS, kind, "."),
            7 => self.made(kind),
            8 => {
                let sign = match kind {
                    Kind::Text => self.of(&["+", "~", "*", "%"]),
                    Kind::List => self.of(&["+", "*"]),
                    Kind::Number => {
                        self.of(&["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", ">=", "in", "not in"])
                    }
                    Kind::Dict | Kind::Any => self.of(&["==", "!=", "and", "or", "~", "<", "in"]),
                };
                let other = if sign == "*" { Kind::Number } else { kind };
                format!("({} {sign} {})", self.expression(kind), self.expression(other))
            }
            9 => {
                format!("({} if {} else {})", self.expression(kind), self.expression(Kind::Any), self.expression(kind))
            }
            10 => format!("{}[{}]", self.expression(Kind::List), self.expression(Kind::Number)),
            11 => {
                let bounds =
                    [(); 3].map(|()| if self.pick(2) == 0 { String::new() } else { self.expression(Kind::Number) });
                format!("{}[{}]", self.expression(kind), bounds.join(":"))
            }
            12 => format!("{} {}", self.of(&["not", "-", "+", "- -", "not not"]), self.expression(Kind::Number)),
            _ => {
                let test = self.of(&TESTS);
                format!("({} is {})", self.expression(Kind::Any), self.filled(test))
            }
        }
    }

    /// A value that is made in its place.
    fn made(&mut self, kind: Kind) -> String {
        match kind {
            Kind::List => {
                let elements: Vec<String> = (0..self.pick(4)).map(|_| self.expression(Kind::Any)).collect();
                format!("[{}]", elements.join(", "))
            }
            Kind::Dict => {
                let key = KINDS[self.pick(3)];
                format!(
                    "{{{}: {}, 'k': {}}}",
                    self.expression(key),
                    self.expression(Kind::Any),
                    self.expression(Kind::Any)
                )
            }
            Kind::Number => format!("{}|length", self.expression(Kind::List)),
            Kind::Text => format!("f({}, {})", self.expression(Kind::Any), self.expression(Kind::Any)),
            Kind::Any => {
                let call = self.of(&[
                    "range(#)",
                    "range(#, #, #)",
                    "namespace(x=?)",
                    "dict(?)",
                    "dict(k=?)",
                    "raise_exception($)",
                    "strftime_now('%Y')",
                    "g(?)",
                    "f(*@)",
                    "f(**b)",
                ]);
                self.filled(call)
            }
        }
    }

    /// A filter or method of `table` whose result has the kind, after its value.
    fn used(&mut self, table: &[(&str, Kind, Kind)], kind: Kind, sign: &str) -> String {
        let start = self.pick(table.len());
        let fits = |entry: &&(&str, Kind, Kind)| kind == Kind::Any || entry.2 == kind;
        let Some((pattern, takes, _)) = table[start..].iter().chain(table).find(fits).copied() else {
            return self.leaf(kind);
        };
        let value = self.expression(takes);
        format!("({value}){sign}{}", self.filled(pattern))
    }

    /// A filter that takes the kind.
    fn use_of(&mut self, table: &[(&str, Kind, Kind)], kind: Kind) -> String {
        let start = self.pick(table.len());
        let pattern = table[start..].iter().chain(table).find(|entry| entry.1 == kind).map_or("upper", |entry| entry.0);
        self.filled(pattern)
    }

    /// `pattern` with its arguments.
    fn filled(&mut self, pattern: &str) -> String {
        pattern
            .chars()
            .map(|letter| match letter {
                '#' => self.expression(Kind::Number),
                '$' => self.expression(Kind::Text),
                '@' => self.expression(Kind::List),
                '?' => self.expression(Kind::Any),
                other => other.to_string(),
            })
            .collect()
    }
}
