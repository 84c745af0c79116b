//! Metadata beyond what LTTng writes, and the compiled plan against the walk field by field.

use proptest::prelude::*;

use super::cursor::Cursor;
use super::header::HeaderPlan;
use super::plan::{Builder, Plan, Stop};
use super::tsdl::types::{Order, Type};
use super::tsdl::{self, Metadata, TsdlProblem};
use super::value::{self, Value};

/// Metadata with one stream and one event with `fields`.
fn with_fields(order: &str, before: &str, fields: &str) -> String {
    format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = {order}; }};
         typealias integer {{ size = 8; }} := uint8_t; typealias integer {{ size = 32; }} := unsigned int;
         {before}
         stream {{ id = 0; event.header := struct {{ integer {{ size = 64; map = clock.c.value; }} timestamp; }}; }};
         event {{ name = \"e\"; id = 0; stream_id = 0; fields := struct {{ {fields} }}; }};"
    )
}

fn fields(metadata: &Metadata) -> &Type {
    metadata.streams[0].events[0].fields.as_ref().expect("fields")
}

/// Reads the event's fields from `data`; how many bits they took.
fn walk(metadata: &Metadata, data: &[u8]) -> (Result<Value, Stop>, u64) {
    let mut cursor = Cursor { data, at: 0, end: data.len() as u64 * 8 };
    let mut saved = vec![0; metadata.saved as usize];
    (value::read(fields(metadata), &mut cursor, &mut saved), cursor.at)
}

fn shown(order: &str, before: &str, of: &str, data: &[u8]) -> String {
    let metadata = tsdl::read(&with_fields(order, before, of)).expect("metadata");
    walk(&metadata, data).0.expect("a value").to_string()
}

fn problem(text: &str) -> TsdlProblem {
    tsdl::read(text).expect_err("wrong metadata").problem
}

#[test]
fn integers_of_any_size_and_order() {
    let of = "integer { size = 3; align = 1; } a; integer { size = 13; align = 1; signed = true; } b;
              integer { size = 16; byte_order = be; base = x; } c;";
    // Least significant first: a is the low three bits; b = -1 above them; c in network order.
    assert_eq!(shown("le", "", of, &[0xfd, 0xff, 0x12, 0x34]), "{ a = 5, b = -1, c = 0x1234 }");
    // Most significant first: a is the high three bits.
    assert_eq!(shown("be", "", of, &[0b1011_1111, 0xff, 0x12, 0x34]), "{ a = 5, b = -1, c = 0x1234 }");
    let of = "integer { size = 64; signed = 1; } a; integer { size = 7; align = 16; base = oct; } b;";
    let data = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x48, 0];
    assert_eq!(shown("le", "", of, &data), "{ a = -2, b = 0110 }");
}

#[test]
fn enumerations_count_on_and_overlap() {
    let of = "enum : uint8_t { zero, one, ten = 10, eleven, many = 20 ... 30, \"also many\" = 25 ... 40 } _a, _b, _c, _d;";
    let expected = "{ a = ( \"one\" : container = 1 ), b = ( \"eleven\" : container = 11 ), \
                    c = ( { \"many\", \"also many\" } : container = 25 ), d = ( <unknown> : container = 99 ) }";
    assert_eq!(shown("le", "", of, &[1, 11, 25, 99]), expected);
}

#[test]
fn sequences_and_variants_refer_to_what_stands_before() {
    let before = "struct point { uint8_t x, y; } align(16);
                  variant either { uint8_t small; string text; };
                  typedef struct point pair[2];
                  enum kind : uint8_t { small = 0, text = 1 };";
    let of =
        "uint8_t count; struct point points[count]; enum kind tag; variant either <tag> value; pair both;
              struct { uint8_t inner; uint8_t bytes[inner]; } last;";
    let data = [2, 0, 1, 2, 3, 4, 1, b'h', b'i', 0, 5, 6, 7, 8, 1, 9];
    let expected = "{ count = 2, points = [ [0] = { x = 1, y = 2 }, [1] = { x = 3, y = 4 } ], \
                    tag = ( \"text\" : container = 1 ), value = { text = \"hi\" }, \
                    both = [ [0] = { x = 5, y = 6 }, [1] = { x = 7, y = 8 } ], last = { inner = 1, bytes = [ [0] = 9 ] } }";
    assert_eq!(shown("le", before, of, &data), expected);
    // A tag that chooses nothing.
    let metadata = tsdl::read(&with_fields("le", before, of)).expect("metadata");
    assert_eq!(walk(&metadata, &[0, 0, 7, 0]).0, Err(Stop::Tag(7)));
}

#[test]
fn lengths_may_stand_in_another_part_of_the_event() {
    let text = "trace { major = 1; minor = 8; byte_order = le; }; typealias integer { size = 8; } := u8;
        stream { event.header := struct { integer { size = 32; map = clock.c.value; } timestamp; };
                 event.context := struct { u8 length; }; };
        event { name = e; fields := struct { u8 all[stream.event.context.length]; u8 length; u8 own[length]; }; };";
    let metadata = tsdl::read(text).expect("metadata");
    assert_eq!(metadata.saved, 2);
    let event = &metadata.streams[0];
    let mut plan = Builder::new(16);
    plan.root(event.event_context.as_ref().expect("a context"), &|_| None);
    plan.root(event.events[0].fields.as_ref().expect("fields"), &|name| (name == "own").then_some(4));
    let data = [2, 8, 9, 3, 1, 2, 3, 77];
    let mut cursor = Cursor { data: &data, at: 0, end: 64 };
    let mut slots = vec![0; 18];
    assert_eq!(plan.finish().run(&mut cursor, &mut slots), Ok(()));
    assert_eq!((cursor.at, super::plan::place(slots[4])), (56, (4, 3)));
}

#[test]
fn metadata_that_cannot_be_is_refused_with_its_place() {
    let cases = [
        ("integer { size = 65; } a;", "1 to 64 bits"),
        ("integer { size = 0; } a;", "1 to 64 bits"),
        ("integer { size = 8; align = 3; } a;", "powers of two"),
        ("integer { align = 8; } a;", "size of an integer"),
        ("floating_point { exp_dig = 5; mant_dig = 11; } a;", "single (8, 24)"),
        ("uint16_t a;", "no type is named uint16_t"),
        ("uint8_t a[missing];", "missing does not name an earlier integer"),
        ("uint8_t t; variant <t> { uint8_t x; } v;", "t is not one"),
        ("variant { uint8_t x; } v;", "v is not one"),
        ("struct nothing a;", "no type is named struct nothing"),
        ("uint8_t a", "expected"),
        ("uint8_t a[3;", "expected `]`"),
        ("enum : struct { uint8_t x; } { a } x;", "an integer as an enumeration's type"),
    ];
    for (of, expected) in cases {
        let error = tsdl::read(&with_fields("le", "", of)).expect_err(of);
        assert!(error.to_string().contains(expected), "{of}: {error}");
        assert!(error.line >= 1 && error.column >= 1);
    }
    let error = tsdl::read("trace {\n  major = 1;\n  minor = @;\n};").expect_err("a strange letter");
    assert_eq!((error.line, error.column), (3, 11));
    assert!(matches!(error.problem, TsdlProblem::Letter { found: '@' }));
    assert!(matches!(
        problem("trace { major = 2; minor = 0; byte_order = le; };"),
        TsdlProblem::Version { .. }
    ));
    assert!(matches!(problem("trace { major = 1; minor = 8; };"), TsdlProblem::Missing { .. }));
    let twice = with_fields("le", "stream { id = 0; };", "uint8_t a;");
    assert!(matches!(problem(&twice), TsdlProblem::Twice { what: "stream", id: 0 }));
    let nowhere = with_fields("le", "", "uint8_t a;").replace("stream_id = 0", "stream_id = 9");
    assert!(matches!(problem(&nowhere), TsdlProblem::NoStream { stream_id: 9, .. }));
}

#[test]
fn metadata_cannot_fill_memory_or_stack() {
    let deep = format!("{} uint8_t a; {}", "struct {".repeat(5000), "} x;".repeat(5000));
    assert!(matches!(problem(&with_fields("le", "", &deep)), TsdlProblem::Depth { .. }));
    let many = format!("uint8_t a{};", "[2]".repeat(5000));
    assert!(matches!(problem(&with_fields("le", "", &many)), TsdlProblem::Depth { .. }));
    // Each structure holds the one before twice: 2^40 fields in all.
    let mut doubling = String::from("struct s0 { uint8_t a; };");
    for n in 1..40 {
        doubling += &format!("struct s{n} {{ struct s{} a, b; }};", n - 1);
    }
    assert!(matches!(problem(&with_fields("le", &doubling, "struct s39 a;")), TsdlProblem::Size { .. }));
    // Arrays of nothing, however many, are read at once.
    let of = "struct { } a[4000000000]; uint8_t b;";
    let metadata = tsdl::read(&with_fields("le", "", of)).expect("metadata");
    assert_eq!(walk(&metadata, &[5]).1, 8);
    assert_eq!(plan_of(&metadata).run(&mut Cursor { data: &[5], at: 0, end: 8 }, &mut [0; 32]), Ok(()));
}

#[test]
fn padding_that_nothing_follows_need_not_be_there() {
    // An array of nothing is aligned all the same, and the packet ends before that place.
    let of = "struct { uint8_t a; struct { integer { size = 8; align = 32; } b; } c[0]; } f[1];";
    let metadata = tsdl::read(&with_fields("le", "", of)).expect("metadata");
    let data = [7];
    assert!(walk(&metadata, &data).0.is_ok());
    let mut cursor = Cursor { data: &data, at: 0, end: 8 };
    assert_eq!(plan_of(&metadata).run(&mut cursor, &mut [0; 32]), Ok(()));
    assert_eq!(cursor.at, walk(&metadata, &data).1);
}

#[test]
fn both_headers_of_lttng_are_recognised_and_no_other() {
    let recognised = |text: &str| {
        let metadata = tsdl::read(text).expect("metadata");
        let header = metadata.streams[0].event_header.clone().expect("a header");
        matches!(HeaderPlan::new(&header), HeaderPlan::Lttng(_))
    };
    let lttng = |bits: u32, last: u32, stamp: u32, align: u32| {
        format!(
            "trace {{ major = 1; minor = 8; byte_order = le; }};
             stream {{ event.header := struct {{
                enum : integer {{ size = {bits}; align = {align}; }} {{ compact = 0 ... {last}, extended = {} }} id;
                variant <id> {{
                    struct {{ integer {{ size = {stamp}; align = {align}; map = clock.c.value; }} timestamp; }} compact;
                    struct {{ integer {{ size = 32; align = 8; }} id;
                              integer {{ size = 64; align = 8; map = clock.c.value; }} timestamp; }} extended;
                }} v; }} align(8); }};",
            last + 1
        )
    };
    assert!(recognised(&lttng(5, 30, 27, 1)));
    assert!(recognised(&lttng(16, 65534, 32, 8)));
    // Tags that mean something else.
    assert!(!recognised(&lttng(5, 20, 27, 1)));
    assert!(!recognised(&lttng(16, 65534, 32, 8).replace("byte_order = le", "byte_order = be")));
    assert!(!recognised(&with_fields("le", "", "uint8_t a;")));
}

fn plan_of(metadata: &Metadata) -> Plan {
    let mut builder = Builder::new(16);
    builder.root(fields(metadata), &|name| name.strip_prefix('f')?.parse().ok().filter(|at| *at < 16));
    builder.finish()
}

/// A field of any type, as TSDL; `<n>` stands for the field's own number, so that names do not
/// meet.
fn any_field() -> impl Strategy<Value = String> {
    let order = prop_oneof![Just("le"), Just("be"), Just("native")];
    let align = prop_oneof![4 => Just(8), 2 => Just(1), 1 => Just(16), 1 => Just(32), 1 => Just(64)];
    let bits = prop_oneof![3 => prop_oneof![Just(8), Just(16), Just(32), Just(64)], 1 => 1..=64];
    let int = (bits, align, any::<bool>(), order).prop_map(|(size, align, signed, order)| {
        format!(
            "integer {{ size = {size}; align = {align}; signed = {signed}; byte_order = {order}; }} f<n>;"
        )
    });
    let leaf = prop_oneof![
        6 => int,
        1 => Just("string f<n>;".to_owned()),
        1 => Just("floating_point { exp_dig = 11; mant_dig = 53; align = 32; } f<n>;".to_owned()),
        1 => Just("integer { size = 8; encoding = UTF8; } f<n>[5];".to_owned()),
        1 => (1_u32..5).prop_map(|size| format!("integer {{ size = 2; align = 1; }} l<n>; integer {{ size = {}; }} f<n>[l<n>];", size * 8)),
        1 => Just("integer { size = 3; align = 1; } l<n>; string f<n>[l<n>];".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            (several.clone(), prop_oneof![Just(1), Just(8), Just(32)])
                .prop_map(|(inner, align)| format!("struct {{ {} }} align({align}) f<n>;", numbered(&inner))),
            (several.clone(), 0_u32..4)
                .prop_map(|(inner, count)| { format!("struct {{ {} }} f<n>[{count}];", numbered(&inner)) }),
            (several.clone(), several).prop_map(|(one, other)| format!(
                "enum : integer {{ size = 2; align = 1; }} {{ one, other = 1 ... 2 }} t<n>;
                 variant <t<n>> {{ struct {{ {} }} one; struct {{ {} }} other; }} f<n>;",
                numbered(&one),
                numbered(&other)
            )),
        ]
    })
}

/// Fields with numbers of their own.
fn numbered(fields: &[String]) -> String {
    fields.iter().enumerate().map(|(n, field)| field.replace("<n>", &n.to_string())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Two ways to read the same bytes: they end at the same bit, fail alike and find the same
    /// values.
    #[test]
    fn the_plan_reads_what_the_walk_reads(
        of in prop::collection::vec(any_field(), 1..8),
        big in any::<bool>(),
        data in prop::collection::vec(prop_oneof![1 => Just(0), 2 => any::<u8>()], 0..160),
    ) {
        let text = with_fields(if big { "be" } else { "le" }, "", &numbered(&of));
        let metadata = tsdl::read(&text).expect("metadata");
        let (walked, end) = walk(&metadata, &data);
        let mut cursor = Cursor { data: &data, at: 0, end: data.len() as u64 * 8 };
        let mut slots = vec![0; 16 + metadata.saved as usize];
        let ran = plan_of(&metadata).run(&mut cursor, &mut slots);
        prop_assert_eq!(ran.is_ok(), walked.is_ok());
        let Ok(Value::Struct(values)) = walked else { return Ok(()) };
        prop_assert_eq!(cursor.at, end);
        let Type::Struct(body) = fields(&metadata) else { unreachable!() };
        for ((name, value), (_, of)) in values.iter().zip(&body.fields) {
            let Some(slot) = name.strip_prefix('f').and_then(|at| slots.get(at.parse::<usize>().ok()?)) else {
                continue;
            };
            match (value, of) {
                (Value::Int { bits, .. }, _) => prop_assert_eq!(slot, bits),
                (Value::Text(text), Type::Text) => {
                    let (first, length) = super::plan::place(*slot);
                    prop_assert_eq!(&String::from_utf8_lossy(&data[first..first + length]), text);
                }
                _ => {}
            }
        }
    }

    /// Writing an integer bit by bit, in either order, and reading it back.
    #[test]
    fn integers_are_read_as_they_are_written(
        at in 0_u32..24, bits in 1_u32..=64, value in any::<u64>(), signed in any::<bool>(), big in any::<bool>(),
    ) {
        let mut data = [0_u8; 16];
        for bit in 0..bits {
            // Bit `bit` of the value, counted from the least significant.
            let set = value >> bit & 1 != 0;
            let place = if big { at + bits - 1 - bit } else { at + bit };
            let within = if big { 7 - place % 8 } else { place % 8 };
            data[(place / 8) as usize] |= u8::from(set) << within;
        }
        let mut cursor = Cursor { data: &data, at: u64::from(at), end: 128 };
        let expected = super::cursor::extend(value, bits, signed);
        prop_assert_eq!(cursor.bits(bits, big, signed), Ok(expected));
        prop_assert_eq!(cursor.at, u64::from(at + bits));
    }

    /// A clock seen through few bits, stamped often enough, never loses its way.
    #[test]
    fn short_stamps_give_the_whole_clock(
        start in 0_u64..1 << 60, bits in prop_oneof![Just(27_u32), Just(32), Just(5)], steps in prop::collection::vec(any::<u64>(), 1..50),
    ) {
        let (mut clock, mut now) = (start, start);
        for step in steps {
            now += step % (1 << bits);
            clock = super::header::tick(clock, now & ((1 << bits) - 1), bits);
            prop_assert_eq!(clock, now);
        }
    }

    #[test]
    fn no_text_breaks_the_parser(words in prop::collection::vec(
        prop_oneof![
            Just("trace"), Just("{"), Just("}"), Just(";"), Just(":="), Just("="), Just("struct"), Just("integer"),
            Just("size"), Just("8"), Just("variant"), Just("<"), Just(">"), Just("enum"), Just(":"), Just("a"),
            Just("["), Just("]"), Just("typealias"), Just("stream"), Just("event"), Just("fields"), Just("."),
            Just("\"x\""), Just("..."), Just("align"), Just("("), Just(")"), Just(","), Just("-"), Just("string"),
        ], 0..60))
    {
        let _ = tsdl::read(&words.join(" "));
    }
}

#[test]
fn orders_are_settled() {
    let metadata = tsdl::read(&with_fields("be", "", "uint8_t a;")).expect("metadata");
    let Type::Struct(body) = fields(&metadata) else { panic!("a structure") };
    assert!(matches!(&body.fields[0].1, Type::Int(int) if int.order == Order::Big));
}
