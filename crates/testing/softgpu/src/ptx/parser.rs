//! Modules and functions.

use super::lexer::{Located, Token, tokens};
use super::registers::Scopes;
use super::variables::{space_of, written};
use super::{Function, Immediate, Line, Module, PtxError, Scalar, Space};

/// Reads a text of PTX.
///
/// # Errors
/// The first place that is not PTX, or PTX that this GPU does not know.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, scopes: Scopes::default(), depth: 0 };
    parser.module()
}

/// Threads of a shape; one that no block can have counts as the largest number.
fn product(shape: impl IntoIterator<Item = u32>) -> u32 {
    shape.into_iter().fold(1, u32::saturating_mul)
}

/// A place in the tokens, and the names that are valid there.
#[derive(Debug)]
pub struct Parser<'a> {
    tokens: &'a [Located],
    at: usize,
    /// Registers and labels.
    pub scopes: Scopes,
    /// Braces that are open.
    depth: usize,
}

/// The deepest nesting of braces; each level takes a part of the reader's stack.
const MAX_DEPTH: usize = 64;
/// The most registers of a declaration: the most that a thread of a GPU has is 255, before they are assigned.
const MAX_REGISTERS: u64 = 1 << 20;

impl Parser<'_> {
    /// The next token.
    pub fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|located| &located.token)
    }

    /// Passes the next token.
    pub fn advance(&mut self) {
        self.at += 1;
    }

    /// The number of the next token.
    pub fn place(&self) -> usize {
        self.at
    }

    /// The line of the next token, or the last line.
    pub fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |located| located.line)
    }

    /// `text` about the line at hand.
    pub fn error(&self, text: impl Into<String>) -> PtxError {
        let place = self.at.saturating_sub(1);
        PtxError::new(self.tokens.get(place).map_or(1, |located| located.line), text)
    }

    /// Whether `sign` is next.
    pub fn sees(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    /// Passes `sign`, if it is next.
    pub fn takes(&mut self, sign: char) -> bool {
        let sees = self.sees(sign);
        self.at += usize::from(sees);
        sees
    }

    /// Passes `sign`.
    ///
    /// # Errors
    /// Another token.
    pub fn expect(&mut self, sign: char) -> Result<(), PtxError> {
        if self.takes(sign) {
            return Ok(());
        }
        let found = written(self.peek());
        self.advance();
        Err(self.error(format!("expected `{sign}`, found {found}")))
    }

    /// Passes a word.
    ///
    /// # Errors
    /// Another token.
    pub fn word(&mut self) -> Result<String, PtxError> {
        let token = self.peek().cloned();
        self.advance();
        match token {
            Some(Token::Word(word)) => Ok(word),
            other => Err(self.error(format!("expected a word, found {}", written(other.as_ref())))),
        }
    }

    /// Passes a whole number with its sign, in two's complement.
    ///
    /// # Errors
    /// Another token.
    pub fn integer(&mut self) -> Result<u64, PtxError> {
        match self.immediate()? {
            Immediate::Integer(value) => Ok(value),
            Immediate::Single(_) | Immediate::Double(_) => Err(self.error("expected a whole number")),
        }
    }

    /// The tokens since `start` on one line, with blanks where the text may have had some.
    pub fn text_since(&self, start: usize) -> String {
        let mut text = String::new();
        let mut was_word = false;
        for located in &self.tokens[start..self.at] {
            let is_word = !matches!(located.token, Token::Sign(_));
            if was_word && is_word || text.ends_with(',') {
                text.push(' ');
            }
            // The sign after an opcode or guard begins an operand.
            if was_word && matches!(located.token, Token::Sign('{' | '[' | '!' | '-')) && !text.contains(' ') {
                text.push(' ');
            }
            text.push_str(written(Some(&located.token)).trim_matches('`'));
            was_word = is_word;
        }
        text
    }

    fn module(&mut self) -> Result<Module, PtxError> {
        let mut module = Module { target: String::new(), variables: vec![], kernels: vec![] };
        while let Some(token) = self.peek().cloned() {
            if token == Token::Sign(';') {
                self.advance();
                continue;
            }
            let word = self.word()?;
            match word.as_str() {
                ".version" => self.advance(),
                ".address_size" => self.address_size()?,
                ".target" => {
                    module.target = self.word()?;
                    while self.takes(',') {
                        self.word()?;
                    }
                }
                ".file" => self.skip_line(),
                ".pragma" => self.skip_statement(),
                ".visible" | ".weak" => {}
                ".extern" if matches!(self.peek(), Some(Token::Word(word)) if word == ".func") => self.skip_statement(),
                ".extern" => {}
                ".entry" => {
                    let kernel = self.kernel()?;
                    module.kernels.push(kernel);
                }
                ".section" => self.skip_braces(),
                other => match space_of(other) {
                    Some(space) => {
                        let variable = self.variable(space)?;
                        self.expect(';')?;
                        module.variables.push(variable);
                    }
                    None => return Err(self.error(format!("unknown directive {other}"))),
                },
            }
        }
        Ok(module)
    }

    fn address_size(&mut self) -> Result<(), PtxError> {
        match self.integer()? {
            64 => Ok(()),
            other => Err(self.error(format!(".address_size {other}; this GPU has addresses of 64 bits"))),
        }
    }

    /// Passes the rest of the line that the last token is on.
    fn skip_line(&mut self) {
        let line = self.tokens[self.at - 1].line;
        while self.tokens.get(self.at).is_some_and(|located| located.line == line) {
            self.advance();
        }
    }

    fn skip_statement(&mut self) {
        while self.peek().is_some() && !self.takes(';') {
            self.advance();
        }
    }

    fn skip_braces(&mut self) {
        let mut depth = 0;
        while self.peek().is_some() {
            depth += i32::from(self.sees('{')) - i32::from(self.sees('}'));
            let is_end = depth == 0 && self.sees('}');
            self.advance();
            if is_end {
                break;
            }
        }
    }

    fn kernel(&mut self) -> Result<Function, PtxError> {
        self.scopes = Scopes::default();
        let line = self.line();
        let name = self.word()?;
        let parameters = self.parameters()?;
        let mut function = Function {
            name,
            line,
            parameters,
            variables: vec![],
            max_threads: None,
            exact_threads: None,
            registers: [0; 3],
            labels: 0,
            body: vec![],
        };
        self.kernel_directives(&mut function)?;
        self.expect('{')?;
        self.braces(&mut function)?;
        function.registers = self.scopes.counts();
        function.labels = self.scopes.labels();
        Ok(function)
    }

    fn parameters(&mut self) -> Result<Vec<super::Variable>, PtxError> {
        let mut parameters = Vec::new();
        if !self.takes('(') {
            return Ok(parameters);
        }
        while !self.takes(')') {
            if !parameters.is_empty() {
                self.expect(',')?;
            }
            match self.word()?.as_str() {
                ".param" => parameters.push(self.variable(Space::Param)?),
                other => return Err(self.error(format!("expected .param, found {other}"))),
            }
        }
        Ok(parameters)
    }

    fn kernel_directives(&mut self, function: &mut Function) -> Result<(), PtxError> {
        while !self.sees('{') {
            let word = self.word()?;
            match word.as_str() {
                ".maxntid" => function.max_threads = Some(product(self.numbers()?)),
                ".reqntid" => {
                    let mut shape = [1; 3];
                    for (to, from) in shape.iter_mut().zip(self.numbers()?) {
                        *to = from;
                    }
                    function.exact_threads = Some(shape);
                    function.max_threads = Some(product(shape));
                }
                ".minnctapersm" | ".maxnreg" | ".maxclusterrank" => self.advance(),
                ".explicitcluster" => {}
                ".reqnctapercluster" => {
                    let blocks = product(self.numbers()?);
                    if blocks != 1 {
                        return Err(self.error(format!("a cluster of {blocks} blocks; this GPU has clusters of one")));
                    }
                }
                ".pragma" => self.skip_statement(),
                ".noreturn" => {}
                other => return Err(self.error(format!("unknown directive {other} of a kernel"))),
            }
        }
        Ok(())
    }

    fn numbers(&mut self) -> Result<Vec<u32>, PtxError> {
        let mut numbers = vec![self.integer()? as u32];
        while self.takes(',') {
            numbers.push(self.integer()? as u32);
        }
        Ok(numbers)
    }

    /// Opens a level of braces.
    pub fn nest(&mut self) -> Result<(), PtxError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(format!("braces must be nested at most {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        Ok(())
    }

    /// Closes a level of braces.
    pub fn unnest(&mut self) {
        self.depth -= 1;
    }

    /// Statements up to the closing brace.
    fn braces(&mut self, function: &mut Function) -> Result<(), PtxError> {
        self.nest()?;
        self.scopes.open(&self.tokens[self.at..]);
        while !self.takes('}') {
            if self.takes('{') {
                self.braces(function)?;
            } else if !self.takes(';') {
                self.line_of_body(function)?;
            }
        }
        self.scopes.close();
        self.unnest();
        Ok(())
    }

    fn line_of_body(&mut self, function: &mut Function) -> Result<(), PtxError> {
        let Some(Token::Word(word)) = self.peek().cloned() else {
            let statement = self.statement()?;
            function.body.push(Line::Statement(statement));
            return Ok(());
        };
        if self.tokens.get(self.at + 1).map(|located| &located.token) == Some(&Token::Sign(':')) {
            let label = self.scopes.label(&word).ok_or_else(|| self.error(format!("unknown label {word}")))?;
            self.at += 2;
            function.body.push(Line::Label(label));
            return Ok(());
        }
        match word.as_str() {
            ".reg" => {
                self.advance();
                return self.registers();
            }
            ".loc" => {
                self.advance();
                self.skip_line();
            }
            ".pragma" => self.skip_statement(),
            other => match space_of(other) {
                Some(space) => {
                    self.advance();
                    let variable = self.variable(space)?;
                    self.expect(';')?;
                    function.variables.push(variable);
                }
                None if other.starts_with('.') => return Err(self.error(format!("unknown directive {other}"))),
                None => {
                    let statement = self.statement()?;
                    function.body.push(Line::Statement(statement));
                }
            },
        }
        Ok(())
    }

    fn registers(&mut self) -> Result<(), PtxError> {
        let kind = self.word()?;
        let scalar = kind.strip_prefix('.').and_then(Scalar::of);
        let scalar = scalar.ok_or_else(|| self.error(format!("registers of type {kind} are not supported")))?;
        loop {
            let name = self.word()?;
            if self.takes('<') {
                let count = self.integer()?;
                self.expect('>')?;
                if count > MAX_REGISTERS {
                    return Err(self.error(format!("{count} registers must be at most {MAX_REGISTERS}")));
                }
                for index in 0..count {
                    self.scopes.declare(format!("{name}{index}"), scalar.width());
                }
            } else {
                self.scopes.declare(name, scalar.width());
            }
            if self.takes(';') {
                return Ok(());
            }
            self.expect(',')?;
        }
    }
}
