//! The blocks of TSDL: trace, environment, clocks, streams, events.

use std::collections::{BTreeMap, HashMap};

use super::error::{TsdlError, TsdlProblem};
use super::lexer::{Word, words};
use super::types::{Clock, EnvValue, EventClass, Metadata, Order, StreamClass, Type};

/// Reads TSDL's words one after the other.
pub struct Parser<'a> {
    text: &'a str,
    words: Vec<(Word, usize)>,
    at: usize,
    pub(super) scopes: Vec<HashMap<String, Type>>,
    pub(super) depth: usize,
    pub(super) made: usize,
}

/// Parses `text`; references are resolved by the caller.
pub fn parse(text: &str) -> Result<Metadata, TsdlError> {
    let mut parser =
        Parser { text, words: words(text)?, at: 0, scopes: vec![HashMap::new()], depth: 0, made: 0 };
    parser.whole()
}

/// The trace block, as far as read.
#[derive(Default)]
struct TraceBlock {
    seen: bool,
    major: u64,
    minor: u64,
    order: Option<Order>,
    uuid: Option<[u8; 16]>,
    packet_header: Option<Type>,
}

impl Parser<'_> {
    fn whole(&mut self) -> Result<Metadata, TsdlError> {
        let mut trace = TraceBlock::default();
        let mut env = BTreeMap::new();
        let mut clocks = Vec::new();
        let mut streams: BTreeMap<u64, StreamClass> = BTreeMap::new();
        let mut events = Vec::new();
        loop {
            self.depth = 0;
            let Word::Name(word) = self.peek().clone() else {
                if *self.peek() == Word::End {
                    break;
                }
                if self.take_sign(';') {
                    continue;
                }
                return Err(self.unexpected("a block (trace, env, clock, stream, event) or a type"));
            };
            match word.as_str() {
                "trace" => self.trace(&mut trace)?,
                "env" => self.env(&mut env)?,
                "clock" => clocks.push(self.clock()?),
                "stream" => {
                    let stream = self.stream()?;
                    let id = stream.id;
                    if streams.insert(id, stream).is_some() {
                        return Err(self.fail(TsdlProblem::Twice { what: "stream", id }));
                    }
                }
                "event" => events.push(self.event()?),
                "callsite" => {
                    self.advance();
                    self.skip_block()?;
                }
                "typealias" => {
                    self.advance();
                    self.typealias()?;
                }
                "typedef" => {
                    self.advance();
                    self.typedef()?;
                }
                "struct" | "variant" | "enum" => {
                    self.whole_type()?;
                }
                _ => return Err(self.unexpected("a block (trace, env, clock, stream, event) or a type")),
            }
        }
        if !trace.seen {
            return Err(self.fail(TsdlProblem::Missing { what: "trace block" }));
        }
        if (trace.major, trace.minor) != (1, 8) {
            return Err(self.fail(TsdlProblem::Version { major: trace.major, minor: trace.minor }));
        }
        let order = match trace.order {
            Some(order @ (Order::Little | Order::Big)) => order,
            _ => return Err(self.fail(TsdlProblem::Missing { what: "byte order of the trace" })),
        };
        self.sort_events(&mut streams, events)?;
        Ok(Metadata {
            order,
            uuid: trace.uuid,
            packet_header: trace.packet_header,
            env,
            clocks,
            streams: streams.into_values().collect(),
            saved: 0,
        })
    }

    /// Puts every event into its stream.
    fn sort_events(
        &self,
        streams: &mut BTreeMap<u64, StreamClass>,
        events: Vec<EventClass>,
    ) -> Result<(), TsdlError> {
        for event in events {
            let fail = |problem| TsdlError::at(self.text, event.at, problem);
            let stream_id = match (event.stream_id, streams.len()) {
                (Some(id), _) => id,
                (None, 1) => *streams.keys().next().unwrap_or(&0),
                (None, _) => 0,
            };
            let Some(stream) = streams.get_mut(&stream_id) else {
                return Err(fail(TsdlProblem::NoStream { name: event.name.clone(), stream_id }));
            };
            stream.events.push(event);
        }
        for stream in streams.values_mut() {
            stream.events.sort_by_key(|event| event.id);
            if let Some(twice) = stream.events.windows(2).find(|pair| pair[0].id == pair[1].id) {
                let problem = TsdlProblem::Twice { what: "event", id: twice[1].id };
                return Err(TsdlError::at(self.text, twice[1].at, problem));
            }
        }
        Ok(())
    }

    /// `NAME { statements };`: hands each `key = ...` or `key := ...` to `statement`, positioned
    /// behind its sign; types are declared in passing.
    fn block(
        &mut self,
        mut statement: impl FnMut(&mut Self, &str) -> Result<(), TsdlError>,
    ) -> Result<(), TsdlError> {
        self.advance();
        self.sign('{')?;
        self.push_scope();
        while !self.take_sign('}') {
            self.depth = 0;
            if self.take_name("typealias") {
                self.typealias()?;
                continue;
            }
            if self.take_name("typedef") {
                self.typedef()?;
                continue;
            }
            if matches!(self.peek(), Word::Name(word) if matches!(word.as_str(), "struct" | "enum" | "variant"))
            {
                self.whole_type()?;
                self.take_sign(';');
                continue;
            }
            let mut key = match self.next() {
                Word::Name(name) | Word::Quoted(name) => name,
                _ => return Err(self.before("a name or `}`")),
            };
            while self.take_sign('.') {
                key.push('.');
                key.push_str(&self.name("a name")?);
            }
            if *self.peek() != Word::Assign && *self.peek() != Word::Sign('=') {
                return Err(self.unexpected("`=` or `:=`"));
            }
            self.advance();
            statement(self, &key)?;
            self.sign(';')?;
        }
        self.pop_scope();
        self.take_sign(';');
        Ok(())
    }

    fn trace(&mut self, trace: &mut TraceBlock) -> Result<(), TsdlError> {
        trace.seen = true;
        self.block(|this, key| {
            match key {
                "major" => trace.major = this.natural()?,
                "minor" => trace.minor = this.natural()?,
                "uuid" => trace.uuid = Some(this.uuid()?),
                "byte_order" => trace.order = Some(this.byte_order()?),
                "packet.header" => trace.packet_header = Some(this.whole_type()?),
                _ => this.skip_value()?,
            }
            Ok(())
        })
    }

    fn env(&mut self, env: &mut BTreeMap<String, EnvValue>) -> Result<(), TsdlError> {
        self.block(|this, key| {
            let value = match this.peek().clone() {
                Word::Quoted(text) => {
                    this.advance();
                    EnvValue::Text(text)
                }
                _ => EnvValue::Number(this.whole_number()?),
            };
            env.insert(key.to_owned(), value);
            Ok(())
        })
    }

    fn clock(&mut self) -> Result<Clock, TsdlError> {
        let mut clock = Clock {
            name: String::new(),
            uuid: None,
            frequency_hz: 1_000_000_000,
            offset_s: 0,
            offset_ticks: 0,
        };
        self.block(|this, key| {
            match key {
                "name" => {
                    clock.name = match this.next() {
                        Word::Name(name) | Word::Quoted(name) => name,
                        _ => return Err(this.before("the clock's name")),
                    }
                }
                "uuid" => clock.uuid = Some(this.quoted()?),
                "freq" => {
                    clock.frequency_hz = this.natural()?;
                    if clock.frequency_hz == 0 {
                        return Err(this.fail(TsdlProblem::Range {
                            what: "frequency of a clock",
                            found: 0,
                            allowed: "it must tick",
                        }));
                    }
                }
                "offset" => clock.offset_ticks = this.offset()?,
                "offset_s" => clock.offset_s = this.offset()?,
                _ => this.skip_value()?,
            }
            Ok(())
        })?;
        Ok(clock)
    }

    fn stream(&mut self) -> Result<StreamClass, TsdlError> {
        let mut stream = StreamClass {
            id: 0,
            packet_context: None,
            event_header: None,
            event_context: None,
            events: Vec::new(),
        };
        self.block(|this, key| {
            match key {
                "id" => stream.id = this.natural()?,
                "packet.context" => stream.packet_context = Some(this.whole_type()?),
                "event.header" => stream.event_header = Some(this.whole_type()?),
                "event.context" => stream.event_context = Some(this.whole_type()?),
                _ => this.skip_value()?,
            }
            Ok(())
        })?;
        Ok(stream)
    }

    fn event(&mut self) -> Result<EventClass, TsdlError> {
        let at = self.place();
        let mut event =
            EventClass { id: 0, name: String::new(), context: None, fields: None, stream_id: None, at };
        self.block(|this, key| {
            match key {
                "name" => {
                    event.name = match this.next() {
                        Word::Name(name) | Word::Quoted(name) => name,
                        _ => return Err(this.before("the event's name")),
                    }
                }
                "id" => event.id = this.natural()?,
                "stream_id" => event.stream_id = Some(this.natural()?),
                "context" => event.context = Some(this.whole_type()?),
                "fields" => event.fields = Some(this.whole_type()?),
                _ => this.skip_value()?,
            }
            Ok(())
        })?;
        Ok(event)
    }

    fn skip_block(&mut self) -> Result<(), TsdlError> {
        self.sign('{')?;
        let mut open = 1;
        while open > 0 {
            match self.next() {
                Word::Sign('{') => open += 1,
                Word::Sign('}') => open -= 1,
                Word::End => return Err(self.before("`}`")),
                _ => {}
            }
        }
        self.take_sign(';');
        Ok(())
    }

    /// Skips what stands between `=` and `;`.
    pub(super) fn skip_value(&mut self) -> Result<(), TsdlError> {
        let mut open = 0_u32;
        loop {
            match self.peek() {
                Word::Sign(';') if open == 0 => return Ok(()),
                Word::Sign('}') if open == 0 => return Err(self.unexpected("`;`")),
                Word::Sign('{') => open += 1,
                Word::Sign('}') => open -= 1,
                Word::End => return Err(self.unexpected("`;`")),
                _ => {}
            }
            self.advance();
        }
    }

    fn uuid(&mut self) -> Result<[u8; 16], TsdlError> {
        let text = self.quoted()?;
        let digits: Vec<u8> = text.bytes().filter(|&b| b != b'-').collect();
        let mut uuid = [0; 16];
        if digits.len() != 32 {
            return Err(self.before("a UUID"));
        }
        for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = pair.ok_or_else(|| self.before("a UUID"))?;
        }
        Ok(uuid)
    }

    fn quoted(&mut self) -> Result<String, TsdlError> {
        match self.next() {
            Word::Quoted(text) => Ok(text),
            _ => Err(self.before("a text in quotes")),
        }
    }

    fn natural(&mut self) -> Result<u64, TsdlError> {
        match self.next() {
            Word::Number(number) => Ok(number),
            _ => Err(self.before("a number")),
        }
    }

    /// A clock's offset: signed 64 bits; values written without sign above that are taken as their
    /// two's complement.
    fn offset(&mut self) -> Result<i64, TsdlError> {
        let number = self.whole_number()?;
        #[expect(clippy::cast_possible_truncation, reason = "the low 64 bits are used")]
        Ok(i64::try_from(number).unwrap_or(number as i64))
    }

    pub(super) fn whole_number(&mut self) -> Result<i128, TsdlError> {
        let negative = self.take_sign('-');
        if !negative {
            self.take_sign('+');
        }
        let number = i128::from(self.natural()?);
        Ok(if negative { -number } else { number })
    }

    pub(super) fn peek(&self) -> &Word {
        self.words.get(self.at).map_or(&Word::End, |(word, _)| word)
    }

    pub(super) fn next(&mut self) -> Word {
        let word = self.peek().clone();
        self.advance();
        word
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.words.len());
    }

    /// Place of the next word.
    pub(super) fn place(&self) -> usize {
        self.words.get(self.at).map_or(self.text.len(), |(_, at)| *at)
    }

    pub(super) fn name(&mut self, expected: &'static str) -> Result<String, TsdlError> {
        match self.peek() {
            Word::Name(name) => {
                let name = name.clone();
                self.advance();
                Ok(name)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    pub(super) fn optional_name(&mut self) -> Option<String> {
        let Word::Name(name) = self.peek() else { return None };
        let name = name.clone();
        self.advance();
        Some(name)
    }

    pub(super) fn take_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Word::Name(found) if found == name);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn take_sign(&mut self, sign: char) -> bool {
        let found = *self.peek() == Word::Sign(sign);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn sign(&mut self, sign: char) -> Result<(), TsdlError> {
        let expected = match sign {
            '{' => "`{`",
            '}' => "`}`",
            ';' => "`;`",
            '=' => "`=`",
            ']' => "`]`",
            '>' => "`>`",
            '(' => "`(`",
            _ => "`)`",
        };
        self.expect(&Word::Sign(sign), expected)
    }

    pub(super) fn expect(&mut self, word: &Word, expected: &'static str) -> Result<(), TsdlError> {
        if self.peek() != word {
            return Err(self.unexpected(expected));
        }
        self.advance();
        Ok(())
    }

    pub(super) fn fail(&self, problem: TsdlProblem) -> TsdlError {
        TsdlError::at(self.text, self.place(), problem)
    }

    /// The next word is not what is expected.
    pub(super) fn unexpected(&self, expected: &'static str) -> TsdlError {
        self.fail(TsdlProblem::Unexpected { expected, found: self.peek().to_string() })
    }

    /// The word just taken is not what is expected.
    fn before(&self, expected: &'static str) -> TsdlError {
        let (found, at) = match self.at.checked_sub(1).and_then(|at| self.words.get(at)) {
            Some((word, at)) => (word.to_string(), *at),
            None => (Word::End.to_string(), 0),
        };
        TsdlError::at(self.text, at, TsdlProblem::Unexpected { expected, found })
    }
}
