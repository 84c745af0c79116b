//! Conditions on the columns of the index: `robot = 'uav' and stolen < 0.01`, in the grammar and
//! with the meaning of SQL (what is unknown is neither true nor false), without an engine.

use std::cmp::Ordering;

use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, Value as Literal};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::query::QueryError;
use crate::query::table::{Cell, ColumnKind, Table};

/// Longest condition.
const MAX_BYTES: usize = 4096;

/// A condition whose columns are known.
#[derive(Debug)]
pub struct Filter {
    condition: Term,
}

/// Value of a term.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Worth<'a> {
    Null,
    Text(&'a str),
    Number(f64),
    Truth(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Null,
    Text,
    Number,
    Truth,
}

impl Type {
    fn word(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text => "words",
            Self::Number => "a number",
            Self::Truth => "a condition",
        }
    }
}

#[derive(Debug)]
enum Term {
    Column(usize),
    Null,
    Text(String),
    Number(f64),
    Truth(bool),
    Not(Box<Term>),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
    /// Outcomes of a comparison that make it true.
    Compare(Box<Term>, Box<Term>, fn(Ordering) -> bool),
    Arithmetic(Box<Term>, Box<Term>, fn(f64, f64) -> f64),
    Like {
        text: Box<Term>,
        pattern: Box<Term>,
        any_case: bool,
    },
    /// Never unknown: whether the term is one of these.
    Is(Box<Term>, Worth<'static>),
}

impl Filter {
    /// Reads a condition.
    ///
    /// # Errors
    /// [`QueryError::Where`]; [`QueryError::NoColumn`].
    pub fn new(text: &str, table: &Table) -> Result<Self, QueryError> {
        let wrong = |why: String| QueryError::Where { text: text.to_owned(), why };
        // A condition is walked by recursion.
        if text.len() > MAX_BYTES {
            return Err(QueryError::Where {
                text: text.chars().take(40).chain("...".chars()).collect(),
                why: format!("longer than {MAX_BYTES} bytes"),
            });
        }
        let plain = |error: sqlparser::parser::ParserError| {
            wrong(error.to_string().replace("sql parser error: ", ""))
        };
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).map_err(plain)?;
        let expression = parser.parse_expr().map_err(plain)?;
        let rest = parser.peek_token();
        if rest.token != Token::EOF {
            return Err(wrong(format!("the condition ends before \"{}\"", rest.token)));
        }
        let reader = Reader { table, wrong: &wrong };
        let (condition, of) = reader.term(&expression)?;
        match of {
            Type::Truth | Type::Null => Ok(Self { condition }),
            other => Err(wrong(format!("it is {}, not a condition", other.word()))),
        }
    }

    /// Whether it is true of a run.
    pub fn holds(&self, table: &Table, row: usize) -> bool {
        self.condition.worth(table, row) == Worth::Truth(true)
    }
}

struct Reader<'a> {
    table: &'a Table,
    wrong: &'a dyn Fn(String) -> QueryError,
}

impl Reader<'_> {
    fn column(&self, name: &str) -> Result<(Term, Type), QueryError> {
        let place = self.table.column(name)?;
        let of = match self.table.columns()[place].kind() {
            ColumnKind::Text => Type::Text,
            ColumnKind::Count | ColumnKind::Number => Type::Number,
        };
        Ok((Term::Column(place), of))
    }

    fn term(&self, expression: &Expr) -> Result<(Term, Type), QueryError> {
        // As in SQL: quotes keep capitals.
        let name = |ident: &Ident| match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_lowercase(),
        };
        let is = |inner: &Expr, what: Worth<'static>, not: bool| -> Result<(Term, Type), QueryError> {
            let term = Term::Is(Box::new(self.term(inner)?.0), what);
            Ok((if not { Term::Not(Box::new(term)) } else { term }, Type::Truth))
        };
        let negate = |term: Term, not: bool| if not { Term::Not(Box::new(term)) } else { term };
        match expression {
            Expr::Nested(inner) => self.term(inner),
            Expr::Identifier(ident) => self.column(&name(ident)),
            // Factors are called attitude.rate_hz.
            Expr::CompoundIdentifier(idents) => {
                self.column(&idents.iter().map(name).collect::<Vec<_>>().join("."))
            }
            Expr::Value(value) => match &value.value {
                Literal::Number(text, _) => match text.parse() {
                    Ok(number) => Ok((Term::Number(number), Type::Number)),
                    Err(_) => Err((self.wrong)(format!("{text} is not a number"))),
                },
                Literal::SingleQuotedString(text) => Ok((Term::Text(text.clone()), Type::Text)),
                Literal::Boolean(truth) => Ok((Term::Truth(*truth), Type::Truth)),
                Literal::Null => Ok((Term::Null, Type::Null)),
                _ => self.unknown(expression),
            },
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
                Ok((Term::Not(Box::new(self.truth(expr)?)), Type::Truth))
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let inner = Box::new(self.number(expr)?);
                Ok((Term::Arithmetic(Box::new(Term::Number(0.0)), inner, |a, b| a - b), Type::Number))
            }
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => Ok((self.number(expr)?, Type::Number)),
            Expr::BinaryOp { left, op, right } => self.binary(expression, left, op, right),
            Expr::Between { expr, negated, low, high } => {
                let above = self.compare(expr, low, Ordering::is_ge)?;
                let below = self.compare(expr, high, Ordering::is_le)?;
                let both = Term::And(Box::new(above), Box::new(below));
                Ok((negate(both, *negated), Type::Truth))
            }
            Expr::InList { expr, list, negated } => {
                let any = list.iter().try_fold(Term::Truth(false), |any, one| {
                    let equal = self.compare(expr, one, Ordering::is_eq)?;
                    Ok::<_, QueryError>(Term::Or(Box::new(any), Box::new(equal)))
                })?;
                Ok((negate(any, *negated), Type::Truth))
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                Ok((negate(self.like(expr, pattern, false)?, *negated), Type::Truth))
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                Ok((negate(self.like(expr, pattern, true)?, *negated), Type::Truth))
            }
            Expr::IsNull(inner) => is(inner, Worth::Null, false),
            Expr::IsNotNull(inner) => is(inner, Worth::Null, true),
            Expr::IsTrue(inner) => is(inner, Worth::Truth(true), false),
            Expr::IsNotTrue(inner) => is(inner, Worth::Truth(true), true),
            Expr::IsFalse(inner) => is(inner, Worth::Truth(false), false),
            Expr::IsNotFalse(inner) => is(inner, Worth::Truth(false), true),
            _ => self.unknown(expression),
        }
    }

    fn unknown<T>(&self, expression: &Expr) -> Result<T, QueryError> {
        Err((self.wrong)(format!(
            "\"{expression}\" is more than a condition on columns: takt query accepts all of SQL"
        )))
    }

    fn binary(
        &self,
        whole: &Expr,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
    ) -> Result<(Term, Type), QueryError> {
        let compare = |how: fn(Ordering) -> bool| -> Result<(Term, Type), QueryError> {
            Ok((self.compare(left, right, how)?, Type::Truth))
        };
        let arithmetic = |how: fn(f64, f64) -> f64| -> Result<(Term, Type), QueryError> {
            let (a, b) = (Box::new(self.number(left)?), Box::new(self.number(right)?));
            Ok((Term::Arithmetic(a, b, how), Type::Number))
        };
        match op {
            BinaryOperator::And => {
                let (a, b) = (Box::new(self.truth(left)?), Box::new(self.truth(right)?));
                Ok((Term::And(a, b), Type::Truth))
            }
            BinaryOperator::Or => {
                let (a, b) = (Box::new(self.truth(left)?), Box::new(self.truth(right)?));
                Ok((Term::Or(a, b), Type::Truth))
            }
            BinaryOperator::Eq => compare(Ordering::is_eq),
            BinaryOperator::NotEq => compare(Ordering::is_ne),
            BinaryOperator::Lt => compare(Ordering::is_lt),
            BinaryOperator::LtEq => compare(Ordering::is_le),
            BinaryOperator::Gt => compare(Ordering::is_gt),
            BinaryOperator::GtEq => compare(Ordering::is_ge),
            BinaryOperator::Plus => arithmetic(|a, b| a + b),
            BinaryOperator::Minus => arithmetic(|a, b| a - b),
            BinaryOperator::Multiply => arithmetic(|a, b| a * b),
            // Of whole numbers SQL keeps no fraction, which here nobody means: failures / files.
            BinaryOperator::Divide => arithmetic(|a, b| a / b),
            _ => self.unknown(whole),
        }
    }

    fn of(&self, expression: &Expr, wanted: Type) -> Result<Term, QueryError> {
        match self.term(expression)? {
            (term, found) if found == wanted || found == Type::Null => Ok(term),
            (_, found) => {
                Err((self.wrong)(format!("\"{expression}\" is {}; expected {}", found.word(), wanted.word())))
            }
        }
    }

    fn truth(&self, expression: &Expr) -> Result<Term, QueryError> {
        self.of(expression, Type::Truth)
    }

    fn number(&self, expression: &Expr) -> Result<Term, QueryError> {
        self.of(expression, Type::Number)
    }

    fn compare(&self, left: &Expr, right: &Expr, how: fn(Ordering) -> bool) -> Result<Term, QueryError> {
        let ((a, one), (b, other)) = (self.term(left)?, self.term(right)?);
        if one != other && one != Type::Null && other != Type::Null {
            return Err((self.wrong)(format!(
                "\"{left}\" is {} and \"{right}\" is {}: put text in single quotes, and numbers without quotes",
                one.word(),
                other.word()
            )));
        }
        Ok(Term::Compare(Box::new(a), Box::new(b), how))
    }

    fn like(&self, text: &Expr, pattern: &Expr, any_case: bool) -> Result<Term, QueryError> {
        let (text, pattern) = (self.of(text, Type::Text)?, self.of(pattern, Type::Text)?);
        Ok(Term::Like { text: Box::new(text), pattern: Box::new(pattern), any_case })
    }
}

impl Term {
    fn worth<'a>(&'a self, table: &'a Table, row: usize) -> Worth<'a> {
        let truth = |term: &'a Self| match term.worth(table, row) {
            Worth::Truth(truth) => Some(truth),
            _ => None,
        };
        let known = |truth: Option<bool>| truth.map_or(Worth::Null, Worth::Truth);
        match self {
            Self::Column(place) => match table.cell(row, *place) {
                Cell::Null => Worth::Null,
                Cell::Text(text) => Worth::Text(text),
                Cell::Count(count) => Worth::Number(count as f64),
                Cell::Number(number) => Worth::Number(number),
            },
            Self::Null => Worth::Null,
            Self::Text(text) => Worth::Text(text),
            Self::Number(number) => Worth::Number(*number),
            Self::Truth(truth) => Worth::Truth(*truth),
            Self::Not(inner) => known(truth(inner).map(|truth| !truth)),
            Self::And(a, b) => known(match (truth(a), truth(b)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            }),
            Self::Or(a, b) => known(match (truth(a), truth(b)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            }),
            Self::Compare(a, b, how) => known(match (a.worth(table, row), b.worth(table, row)) {
                (Worth::Text(a), Worth::Text(b)) => Some(how(a.cmp(b))),
                (Worth::Number(a), Worth::Number(b)) => a.partial_cmp(&b).map(how),
                (Worth::Truth(a), Worth::Truth(b)) => Some(how(a.cmp(&b))),
                _ => None,
            }),
            Self::Arithmetic(a, b, how) => match (a.worth(table, row), b.worth(table, row)) {
                (Worth::Number(a), Worth::Number(b)) => Worth::Number(how(a, b)),
                _ => Worth::Null,
            },
            Self::Like { text, pattern, any_case } => {
                known(match (text.worth(table, row), pattern.worth(table, row)) {
                    (Worth::Text(text), Worth::Text(pattern)) if *any_case => {
                        Some(like(&text.to_lowercase(), &pattern.to_lowercase()))
                    }
                    (Worth::Text(text), Worth::Text(pattern)) => Some(like(text, pattern)),
                    _ => None,
                })
            }
            Self::Is(inner, what) => Worth::Truth(inner.worth(table, row) == *what),
        }
    }
}

/// Whether `text` is `pattern`, in which `%` stands for any text, `_` for a character and `\` takes
/// their meaning from them. Each `%` is extended only while what follows it does not fit, so that
/// no pattern takes longer than text times pattern.
fn like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    let (mut at, mut of, mut open) = (0, 0, None);
    while at < text.len() {
        let escaped = pattern.get(of) == Some(&'\\') && of + 1 < pattern.len();
        match pattern.get(of) {
            Some('%') => {
                open = Some((of, at));
                of += 1;
                continue;
            }
            Some('_') => (at, of) = (at + 1, of + 1),
            Some(_) if escaped && pattern[of + 1] == text[at] => (at, of) = (at + 1, of + 2),
            Some(one) if !escaped && *one == text[at] => (at, of) = (at + 1, of + 1),
            _ => match open {
                Some((percent, taken)) => {
                    open = Some((percent, taken + 1));
                    (at, of) = (taken + 1, percent + 1);
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|rest| *rest == '%')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::store::Entry;

    use super::*;

    fn table() -> Table {
        let run = |robot: &str, stolen: f64, factors: &str, kernel: &str| Entry {
            robot: robot.to_owned(),
            stolen,
            factors: factors.to_owned(),
            kernel: kernel.to_owned(),
            ..Entry::default()
        };
        Table::new(vec![
            run("uav", 0.002, r#"{"policy": "fifo:80", "attitude.rate_hz": "500"}"#, "6.12.1-rt"),
            run("uav", 0.2, r#"{"policy": "other", "attitude.rate_hz": "1000"}"#, "6.12.9"),
            run("cell", 0.0, "", ""),
        ])
    }

    fn held(text: &str) -> Vec<usize> {
        let table = table();
        let filter = Filter::new(text, &table).unwrap_or_else(|error| panic!("{error}"));
        (0..3).filter(|row| filter.holds(&table, *row)).collect()
    }

    #[test]
    fn conditions_mean_what_they_mean_in_sql() {
        for (text, expected) in [
            ("robot = 'uav' and stolen < 0.01", vec![0]),
            ("ROBOT = 'uav' AND (stolen >= 0.01 OR policy IN ('fifo:80', 'x'))", vec![0, 1]),
            ("not robot = 'uav'", vec![2]),
            ("robot <> 'uav' or attitude.rate_hz / 2 > 400", vec![1, 2]),
            ("\"attitude.rate_hz\" between 500 and 600", vec![0]),
            ("attitude.rate_hz not between 500 and 600", vec![1]),
            // An unknown value is neither equal nor unequal.
            ("kernel = '6.12.9'", vec![1]),
            ("kernel <> '6.12.9'", vec![0]),
            ("not kernel = '6.12.9'", vec![0]),
            ("kernel is null", vec![2]),
            ("kernel is not null and policy like 'fifo%'", vec![0]),
            ("policy not in ('other', null)", vec![]),
            ("(kernel = 'x') is not true", vec![0, 1, 2]),
            ("kernel like '6.12._'", vec![1]),
            ("kernel ilike '%RT'", vec![0]),
            ("stolen * 100 - 20 = 0 and true", vec![1]),
            ("-stolen < -0.1", vec![1]),
            ("machine = 'x'", vec![]),
            ("null", vec![]),
        ] {
            assert_eq!(held(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_a_sentence() {
        for (text, words) in [
            ("stoln < 0.01", "no column stoln; the columns are run, "),
            ("stolen < '0.01'", "numbers without quotes"),
            ("robot = uav", "no column uav; the columns are "),
            ("robot", "is words, not a condition"),
            ("stolen and robot = 'uav'", "\"stolen\" is a number; expected a condition"),
            ("robot = 'uav' robot", "ends before \"robot\""),
            ("robot = 'uav'; drop table runs", "ends before \";\""),
            ("upper(robot) = 'UAV'", "takt query accepts all of SQL"),
            ("run in (select run from runs)", "takt query accepts all of SQL"),
            ("robot = '", "--where robot = ': "),
            ("", "--where : "),
        ] {
            let error = Filter::new(text, &table()).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{text}: {error}");
        }
        let chain = "robot = 'uav' and ".repeat(200) + "true";
        assert!(Filter::new(&chain, &table()).is_ok());
        assert!(Filter::new(&chain.repeat(10), &table()).is_err());
        let deep = format!("{}robot = 'uav'{}", "(".repeat(1900), ")".repeat(1900));
        assert!(Filter::new(&deep, &table()).is_err());
    }

    #[test]
    fn patterns_end() {
        assert!(like("", "") && like("", "%") && !like("", "_") && like("aXbXc", "a%b%c"));
        assert!(like("10%", "10\\%") && !like("101", "10\\%") && like("mississippi", "%iss%ip%"));
        assert!(!like(&"a".repeat(5000), &"%ab".repeat(2500)));
    }
}
