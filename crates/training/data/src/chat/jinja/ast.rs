//! The program of a template.
//!
//! Chains are flat: of operators of one level, of attributes, calls and filters, of branches. So only brackets,
//! prefixes and blocks nest, which the parser counts.

use std::sync::Arc;

use super::operations::{Operation, Sign};
use super::renderer::{Filter, Predicate};
use super::value::Value;

/// The number of a name in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) u32);

/// An expression with its line.
#[derive(Debug)]
pub(super) struct Expr {
    pub(super) kind: ExprKind,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum ExprKind {
    Constant(Value),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Signed(Sign, Box<Expr>),
    Not(Box<Expr>),
    /// The first that is true, or the last.
    Any(Vec<Expr>),
    /// The first that is false, or the last.
    All(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    Operate(Box<Expr>, Vec<(Operation, Expr)>),
    Join(Vec<Expr>),
    /// `then if test else otherwise`.
    Choice(Box<[Expr; 2]>, Option<Box<Expr>>),
    Chain(Box<Expr>, Vec<Link>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// A use of the value before it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) kind: LinkKind,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum LinkKind {
    Attribute(Arc<str>),
    Item(Expr),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Arguments),
    Filter(Named<Filter>),
    Test { test: Named<Predicate>, negated: bool },
}

/// A filter or test, which may be one that does not exist until it is used, with its arguments.
#[derive(Debug)]
pub(super) struct Named<T> {
    pub(super) name: Arc<str>,
    pub(super) function: Option<T>,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(Arc<str>, Expr)>,
    /// `*list`.
    pub(super) more: Option<Box<Expr>>,
    /// `**dictionary`.
    pub(super) more_named: Option<Box<Expr>>,
}

/// A place of a value.
#[derive(Debug)]
pub(super) enum Place {
    Name(Name),
    /// An attribute of a namespace.
    Attribute(Name, Arc<str>),
    Tuple(Vec<Place>),
}

pub(super) type Block = Vec<Statement>;

#[derive(Debug)]
pub(super) struct Statement {
    pub(super) kind: StatementKind,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum StatementKind {
    Data(Arc<str>),
    Print(Expr),
    /// `do`: an expression for its effects.
    Evaluate(Expr),
    /// Tests with blocks; the last block has none.
    If(Vec<(Expr, Block)>, Block),
    For(Box<For>),
    Set(Place, Expr),
    /// A block as a value, after filters.
    SetBlock(Place, Vec<Link>, Block),
    With(Vec<(Place, Expr)>, Block),
    /// The block as a text, through filters.
    Filter(Vec<Link>, Block),
    Macro(Name, Box<Macro>),
    /// A call with the block as `caller`.
    Call(Expr, Box<Macro>),
    /// An answer, between marks.
    Generation(Block),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) place: Place,
    pub(super) elements: Expr,
    pub(super) condition: Option<Expr>,
    pub(super) is_recursive: bool,
    pub(super) body: Block,
    pub(super) otherwise: Block,
}

/// A parameter of a macro.
pub(super) type Parameter = (Name, Arc<str>);

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    /// Values of the last parameters.
    pub(super) defaults: Vec<Expr>,
    pub(super) body: Block,
}
