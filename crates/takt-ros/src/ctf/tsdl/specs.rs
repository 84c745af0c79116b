//! Types as TSDL writes them.

use std::collections::HashMap;

use super::error::{TsdlError, TsdlProblem};
use super::lexer::Word;
use super::parser::Parser;
use super::types::{Float, Int, Label, Order, Reference, Struct, Type, Variant};

/// Types within types: deeper is refused, because the decoder recurses.
const MAX_DEPTH: usize = 24;
/// Fields and types in all, after aliases are written out: metadata of LTTng has some thousands.
const MAX_TYPES: usize = 1 << 20;

impl Parser<'_> {
    pub(super) fn push_scope(&mut self) {
        self.scopes.push(HashMap::new());
    }

    pub(super) fn pop_scope(&mut self) {
        self.scopes.pop();
    }

    pub(super) fn declare(&mut self, name: String, of: Type) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, of);
        }
    }

    fn look_up(&mut self, name: &str) -> Result<Type, TsdlError> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        let Some(found) = found else {
            return Err(self.fail(TsdlProblem::NoType { name: name.to_owned() }));
        };
        let found = found.clone();
        self.charge(weight(&found))?;
        Ok(found)
    }

    fn charge(&mut self, weight: usize) -> Result<(), TsdlError> {
        self.made = self.made.saturating_add(weight);
        if self.made > MAX_TYPES {
            return Err(self.fail(TsdlProblem::Size { most: MAX_TYPES }));
        }
        Ok(())
    }

    /// `typealias TYPE := NAME;`, after its keyword.
    pub(super) fn typealias(&mut self) -> Result<(), TsdlError> {
        let of = self.whole_type()?;
        self.expect(&Word::Assign, "`:=`")?;
        let mut name = Vec::new();
        while let Word::Name(part) = self.peek() {
            name.push(part.clone());
            self.advance();
        }
        if name.is_empty() {
            return Err(self.unexpected("the alias's name"));
        }
        self.sign(';')?;
        let name = key(&name);
        self.declare(name, of);
        Ok(())
    }

    /// `typedef TYPE NAME;`, after its keyword.
    pub(super) fn typedef(&mut self) -> Result<(), TsdlError> {
        for (name, of) in self.declaration()? {
            self.declare(name, of);
        }
        Ok(())
    }

    /// A type that stands alone (no declared name after it).
    pub(super) fn whole_type(&mut self) -> Result<Type, TsdlError> {
        let (of, rest) = self.specifier(false)?;
        debug_assert!(rest.is_none());
        Ok(of)
    }

    /// `TYPE name[3], other;`: the names with their types.
    pub(super) fn declaration(&mut self) -> Result<Vec<(String, Type)>, TsdlError> {
        let (base, mut name) = self.specifier(true)?;
        let mut declared = Vec::new();
        loop {
            let field = match name.take() {
                Some(name) => name,
                None => self.name("a field's name")?,
            };
            let mut lengths = Vec::new();
            while self.take_sign('[') {
                let length = match self.peek().clone() {
                    Word::Number(number) => {
                        self.advance();
                        Ok(number)
                    }
                    _ => Err(self.reference("a number or an earlier field as length")?),
                };
                self.sign(']')?;
                lengths.push(length);
                if lengths.len() > MAX_DEPTH {
                    return Err(self.fail(TsdlProblem::Depth { most: MAX_DEPTH }));
                }
            }
            self.charge(1 + lengths.len())?;
            let mut of = base.clone();
            if !declared.is_empty() {
                self.charge(weight(&of))?;
            }
            for length in lengths.into_iter().rev() {
                of = match length {
                    Ok(count) => Type::Array(Box::new(of), count),
                    Err(reference) => Type::Sequence(Box::new(of), reference),
                };
            }
            declared.push((field, of));
            if !self.take_sign(',') {
                break;
            }
        }
        self.sign(';')?;
        Ok(declared)
    }

    /// `a.b.c`
    fn reference(&mut self, expected: &'static str) -> Result<Reference, TsdlError> {
        let at = self.place();
        let mut path = self.name(expected)?;
        while self.take_sign('.') {
            path.push('.');
            path.push_str(&self.name(expected)?);
        }
        Ok(Reference { path, at, from: 0 })
    }

    /// A type; where a field is declared, the last of several names is the field's and comes back
    /// beside it.
    fn specifier(&mut self, of_field: bool) -> Result<(Type, Option<String>), TsdlError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail(TsdlProblem::Depth { most: MAX_DEPTH }));
        }
        self.charge(1)?;
        while self.take_name("const") {}
        let Word::Name(word) = self.peek().clone() else { return Err(self.unexpected("a type")) };
        let result = match word.as_str() {
            "struct" => (self.structure()?, None),
            "variant" => (self.variant()?, None),
            "enum" => (self.enumeration()?, None),
            "integer" => (self.integer()?, None),
            "floating_point" => (self.floating_point()?, None),
            "string" => (self.string()?, None),
            _ => {
                let mut names = Vec::new();
                while let Word::Name(part) = self.peek() {
                    names.push(part.clone());
                    self.advance();
                }
                // `variant_alias <tag> field;`: then all names are the type's.
                let tagged = *self.peek() == Word::Sign('<');
                let field = if of_field && !tagged && names.len() > 1 { names.pop() } else { None };
                let mut of = self.look_up(&key(&names))?;
                if let Type::Variant(variant) = &mut of {
                    variant.tag = self.tag()?.or(variant.tag.take());
                }
                (of, field)
            }
        };
        self.depth -= 1;
        Ok(result)
    }

    fn structure(&mut self) -> Result<Type, TsdlError> {
        self.advance();
        let name = self.optional_name();
        if *self.peek() != Word::Sign('{') {
            let Some(name) = name else { return Err(self.unexpected("a structure's name or `{`")) };
            return self.look_up(&format!("struct {name}"));
        }
        let mut body = Struct { align: 1, fields: self.members()? };
        if self.take_name("align") {
            self.sign('(')?;
            body.align = self.alignment()?;
            self.sign(')')?;
        }
        let of = Type::Struct(body);
        if let Some(name) = name {
            self.charge(weight(&of))?;
            self.declare(format!("struct {name}"), of.clone());
        }
        Ok(of)
    }

    /// `{ declarations }`
    fn members(&mut self) -> Result<Vec<(String, Type)>, TsdlError> {
        self.sign('{')?;
        self.push_scope();
        let mut fields = Vec::new();
        while !self.take_sign('}') {
            if self.take_name("typealias") {
                self.typealias()?;
            } else if self.take_name("typedef") {
                self.typedef()?;
            } else {
                fields.extend(self.declaration()?);
            }
        }
        self.pop_scope();
        Ok(fields)
    }

    fn tag(&mut self) -> Result<Option<Reference>, TsdlError> {
        if !self.take_sign('<') {
            return Ok(None);
        }
        let tag = self.reference("the variant's tag")?;
        self.sign('>')?;
        Ok(Some(tag))
    }

    fn variant(&mut self) -> Result<Type, TsdlError> {
        self.advance();
        let name = self.optional_name();
        let tag = self.tag()?;
        let mut variant = if *self.peek() == Word::Sign('{') {
            let options = self.members()?;
            let variant = Variant { tag: None, options, cases: Vec::new(), signed: false };
            if let Some(name) = name {
                let of = Type::Variant(variant.clone());
                self.charge(weight(&of))?;
                self.declare(format!("variant {name}"), of);
            }
            variant
        } else {
            let Some(name) = name else { return Err(self.unexpected("a variant's name or `{`")) };
            match self.look_up(&format!("variant {name}"))? {
                Type::Variant(variant) => variant,
                _ => return Err(self.fail(TsdlProblem::NoType { name: format!("variant {name}") })),
            }
        };
        variant.tag = tag.or(variant.tag);
        Ok(Type::Variant(variant))
    }

    fn enumeration(&mut self) -> Result<Type, TsdlError> {
        self.advance();
        let name = self.optional_name();
        let base = if self.take_sign(':') { Some(self.whole_type()?) } else { None };
        if *self.peek() != Word::Sign('{') {
            let Some(name) = name else { return Err(self.unexpected("an enumeration's name or `{`")) };
            return self.look_up(&format!("enum {name}"));
        }
        let int = match base {
            Some(Type::Int(int)) => int,
            Some(_) => {
                return Err(self.fail(TsdlProblem::Unexpected {
                    expected: "an integer as an enumeration's type",
                    found: "another type".into(),
                }));
            }
            None => match self.look_up("int")? {
                Type::Int(int) => int,
                _ => return Err(self.fail(TsdlProblem::NoType { name: "int".into() })),
            },
        };
        self.sign('{')?;
        let mut labels: Vec<Label> = Vec::new();
        while !self.take_sign('}') {
            let name = match self.peek().clone() {
                Word::Name(name) | Word::Quoted(name) => name,
                _ => return Err(self.unexpected("a label")),
            };
            self.advance();
            let (low, high) = if self.take_sign('=') {
                let low = self.whole_number()?;
                let high = if *self.peek() == Word::Dots {
                    self.advance();
                    self.whole_number()?
                } else {
                    low
                };
                (low, high)
            } else {
                let next = labels.last().map_or(0, |label| label.high + 1);
                (next, next)
            };
            self.charge(1)?;
            labels.push(Label { name, low, high });
            if !self.take_sign(',') && *self.peek() != Word::Sign('}') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        let of = Type::Enum(int, labels);
        if let Some(name) = name {
            self.charge(weight(&of))?;
            self.declare(format!("enum {name}"), of.clone());
        }
        Ok(of)
    }

    fn integer(&mut self) -> Result<Type, TsdlError> {
        self.advance();
        let (mut bits, mut align, mut base, mut order) = (None, None, 10, Order::Native);
        let (mut signed, mut text, mut clock) = (false, false, false);
        self.sign('{')?;
        while !self.take_sign('}') {
            let key = self.name("an integer's attribute")?;
            self.sign('=')?;
            match key.as_str() {
                "size" => bits = Some(self.sized("size of an integer", 1, 64, "1 to 64 bits can be read")?),
                "align" => align = Some(self.alignment()?),
                "signed" => signed = self.truth()?,
                "byte_order" => order = self.byte_order()?,
                "base" => base = self.base()?,
                "encoding" => text = self.name("an encoding")? != "none",
                "map" => {
                    // `clock.NAME.value`
                    clock = self.reference("a clock")?.path.starts_with("clock.");
                }
                _ => self.skip_value()?,
            }
            self.sign(';')?;
        }
        let Some(bits) = bits else {
            return Err(self.fail(TsdlProblem::Missing { what: "size of an integer" }));
        };
        let align = align.unwrap_or(if bits % 8 == 0 { 8 } else { 1 });
        Ok(Type::Int(Int { bits, align, signed, order, base, text, clock, save: None, ordinal: 0 }))
    }

    fn floating_point(&mut self) -> Result<Type, TsdlError> {
        self.advance();
        let (mut exponent, mut mantissa, mut align, mut order) = (0, 0, 8, Order::Native);
        self.sign('{')?;
        while !self.take_sign('}') {
            let key = self.name("an attribute of a floating-point number")?;
            self.sign('=')?;
            match key.as_str() {
                "exp_dig" => exponent = self.whole_number()?,
                "mant_dig" => mantissa = self.whole_number()?,
                "align" => align = self.alignment()?,
                "byte_order" => order = self.byte_order()?,
                _ => self.skip_value()?,
            }
            self.sign(';')?;
        }
        let bits = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => {
                return Err(self.fail(TsdlProblem::Range {
                    what: "mantissa of a floating-point number",
                    found: mantissa,
                    allowed: "single (8, 24) and double (11, 53) precision can be read",
                }));
            }
        };
        Ok(Type::Float(Float { bits, align, order }))
    }

    fn string(&mut self) -> Result<Type, TsdlError> {
        self.advance();
        if self.take_sign('{') {
            while !self.take_sign('}') {
                self.name("a string's attribute")?;
                self.sign('=')?;
                self.skip_value()?;
                self.sign(';')?;
            }
        }
        Ok(Type::Text)
    }

    fn alignment(&mut self) -> Result<u32, TsdlError> {
        let align = self.sized("alignment", 1, 4096, "powers of two up to 4096 can be read")?;
        if !align.is_power_of_two() {
            return Err(self.fail(TsdlProblem::Range {
                what: "alignment",
                found: i128::from(align),
                allowed: "powers of two up to 4096 can be read",
            }));
        }
        Ok(align)
    }

    fn sized(
        &mut self,
        what: &'static str,
        low: i128,
        high: i128,
        allowed: &'static str,
    ) -> Result<u32, TsdlError> {
        let found = self.whole_number()?;
        if !(low..=high).contains(&found) {
            return Err(self.fail(TsdlProblem::Range { what, found, allowed }));
        }
        Ok(u32::try_from(found).unwrap_or(u32::MAX))
    }

    fn truth(&mut self) -> Result<bool, TsdlError> {
        Ok(match self.next() {
            Word::Number(number) => number != 0,
            Word::Name(name) => matches!(name.as_str(), "true" | "TRUE"),
            _ => return Err(self.unexpected("true or false")),
        })
    }

    pub(super) fn byte_order(&mut self) -> Result<Order, TsdlError> {
        match self.name("a byte order")?.as_str() {
            "le" => Ok(Order::Little),
            "be" | "network" => Ok(Order::Big),
            "native" => Ok(Order::Native),
            _ => Err(self.unexpected("le, be, network or native")),
        }
    }

    fn base(&mut self) -> Result<u8, TsdlError> {
        Ok(match self.next() {
            Word::Number(2) => 2,
            Word::Number(8) => 8,
            Word::Number(16) => 16,
            Word::Number(_) => 10,
            Word::Name(name) => match name.as_str() {
                "binary" | "b" => 2,
                "octal" | "oct" | "o" => 8,
                "hexadecimal" | "hex" | "x" | "X" | "p" => 16,
                _ => 10,
            },
            _ => return Err(self.unexpected("a base")),
        })
    }
}

/// The name of an alias: its words, which may come in any order of blanks only.
fn key(names: &[String]) -> String {
    names.iter().filter(|name| *name != "const").map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Number of fields and types in a type.
fn weight(of: &Type) -> usize {
    1 + match of {
        Type::Struct(body) => body.fields.iter().map(|(_, of)| weight(of)).sum(),
        Type::Variant(body) => body.options.iter().map(|(_, of)| weight(of)).sum(),
        Type::Enum(_, labels) => labels.len(),
        Type::Array(of, _) | Type::Sequence(of, _) => weight(of),
        Type::Int(_) | Type::Float(_) | Type::Text => 0,
    }
}
