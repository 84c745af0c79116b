use super::model::{FLOAT, INT64};
use super::testing::{Message, declared, file, floats, graph, integers, node};
use super::*;
use crate::engine::BUILTIN_MODELS;

fn picture_in() -> Message {
    declared("images", FLOAT, &[1, 3, 32, 64])
}

fn out() -> Message {
    declared("out", FLOAT, &[1, 3, 32, 64])
}

/// A network of these nodes and constants, from `images` to `out`.
fn of(nodes: &[Message], constants: &[Message]) -> Vec<u8> {
    file(&graph(nodes, constants, &[picture_in()], &[out()]))
}

fn refusal(bytes: &[u8]) -> String {
    check(bytes, None).expect_err("it was accepted").to_string()
}

#[test]
fn shipped_models_are_within_the_limits_and_stay_as_they_are() {
    for model in &BUILTIN_MODELS {
        let checked = check(model.bytes, None).unwrap();
        assert!(matches!(checked.bytes, Cow::Borrowed(_)), "{}", model.name);
    }
}

#[test]
fn what_is_no_model_is_refused() {
    for (bytes, text) in [
        (&b""[..], "no graph"),
        (b"hello, world", "not an ONNX file"),
        (&[0xff; 64], "not an ONNX file"),
        (b"\x3a\xff\xff\xff\xff\x0f", "not an ONNX file"),
    ] {
        assert!(refusal(bytes).contains(text), "{}", refusal(bytes));
    }
    // Every beginning of a real file.
    let whole = of(&[node("Relu", &["images"], &["out"])], &[]);
    check(&whole, None).unwrap();
    for end in 0..whole.len() {
        let _ = check(&whole[..end], None);
    }
}

#[test]
fn a_second_graph_is_refused_because_readers_merge_them() {
    let mut twice = of(&[node("Relu", &["images"], &["out"])], &[]);
    let more = Message::default().message(7, &graph(&[node("Relu", &["images"], &["x"])], &[], &[], &[]));
    twice.extend_from_slice(&more.0);
    assert!(refusal(&twice).contains("a graph more than once"));
}

#[test]
fn too_many_nodes_tensors_and_names_are_refused() {
    let nodes: Vec<Message> =
        (0..200_000).map(|i| node("Relu", &[&format!("v{i}")], &[&format!("v{}", i + 1)])).collect();
    let message = refusal(&of(&nodes, &[]));
    assert!(message.contains("nodes") && message.contains("10000"), "{message}");
    let constants: Vec<Message> = (0..30_000).map(|i| integers(&format!("c{i}"), &[1], &[1])).collect();
    let message = refusal(&of(&[node("Relu", &["images"], &["out"])], &constants));
    assert!(message.contains("constant tensors"), "{message}");
    let many: Vec<&str> = vec!["images"; 150_000];
    assert!(refusal(&of(&[node("Sum", &many, &["out"])], &[])).contains("inputs and outputs of nodes"));
    let long = "x".repeat(100_000);
    let message = refusal(&of(&[node("Relu", &[&long], &["out"])], &[]));
    assert!(message.contains("bytes of a name") && message.len() < 500, "{message}");
    // An attribute of 5 million numbers, packed: 5 MB of file, 40 MB of numbers.
    let numbers = Message::default().text(1, "axes").bytes(8, &vec![1u8; 5_000_000]);
    let message = refusal(&of(&[node("Relu", &["images"], &["out"]).message(5, &numbers)], &[]));
    assert!(message.contains("numbers in attributes"), "{message}");
}

#[test]
fn deep_nesting_is_refused_before_a_stack_ends() {
    let mut inner = graph(&[node("Relu", &["images"], &["out"])], &[], &[], &[out()]);
    let nested = |inner: &Message| {
        let branch = Message::default().text(1, "then_branch").message(6, inner);
        node("If", &["condition"], &["out"]).message(5, &branch)
    };
    for _ in 0..1_000 {
        inner = graph(&[nested(&inner)], &[], &[], &[out()]);
    }
    let message = refusal(&file(&inner));
    assert!(message.contains("levels of nested graphs") && message.contains("at most 4"), "{message}");
    let shallow = graph(&[node("Relu", &["images"], &["then_out"])], &[], &[], &[out()]);
    check(&of(&[nested(&shallow)], &[integers("condition", &[], &[1])]), None).unwrap();
}

#[test]
fn loops_functions_and_sequences_are_refused_with_the_way_out() {
    let body = Message::default().text(1, "body").message(6, &graph(&[], &[], &[], &[]));
    let looped = node("Loop", &["count", "", "images"], &["out"]).message(5, &body);
    let message = refusal(&of(&[looped], &[integers("count", &[], &[i64::MAX])]));
    assert!(message.contains("a loop") && message.contains("export"), "{message}");
    let mut functions = of(&[node("Relu", &["images"], &["out"])], &[]);
    functions.extend(Message::default().message(25, &Message::default().text(1, "f")).0);
    assert!(refusal(&functions).contains("inline"));
    let mut kind = Message::default().int(1, 1);
    for _ in 0..10_000 {
        kind = Message::default().message(4, &Message::default().message(1, &kind));
    }
    let input = Message::default().text(1, "images").message(2, &kind);
    let message = refusal(&file(&graph(&[], &[], &[input], &[out()])));
    assert!(message.contains("sequence"), "{message}");
}

#[test]
fn weights_in_other_files_are_refused() {
    let place = Message::default().text(1, "location").text(2, "../../etc/passwd");
    let outside = Message::default().int(1, 4).int(2, FLOAT).text(8, "w").message(13, &place).int(14, 1);
    let message = refusal(&of(&[node("Add", &["images", "w"], &["out"])], &[outside]));
    assert!(
        message.contains("external data") && message.contains("save_as_external_data=False"),
        "{message}"
    );
}

#[test]
fn a_shape_that_promises_other_values_is_refused() {
    for (dims, count) in
        [(&[1_000_000_000_000_i64][..], 1), (&[4_294_967_296, 4_294_967_296, 2], 2), (&[2], 3), (&[0, 7], 1)]
    {
        let tensor = floats("w", dims, &vec![1.0; count]);
        let message = refusal(&of(&[node("Add", &["images", "w"], &["out"])], &[tensor]));
        assert!(message.contains("tensor `w`") && message.contains("damaged"), "{message}");
    }
    let message = refusal(&of(&[], &[Message::default().int(1, -5).int(2, FLOAT).text(8, "w")]));
    assert!(message.contains("dimension of -5"), "{message}");
    // Merged by readers of Protocol Buffers: the shape of the first, the values of the second.
    let value = |tensor: &Message| Message::default().text(1, "value").message(5, tensor).message(5, tensor);
    let twice = node("Constant", &[], &["out"]).message(5, &value(&floats("", &[1], &[1.0])));
    assert!(refusal(&of(&[twice], &[])).contains("more than once"));
}

#[test]
fn cycles_and_missing_values_are_refused() {
    let ring =
        [node("Add", &["images", "b"], &["a"]), node("Relu", &["a"], &["b"]), node("Relu", &["b"], &["out"])];
    let message = refusal(&of(&ring, &[]));
    assert!(message.contains("cycle") && message.contains("Add `a`"), "{message}");
    assert!(refusal(&of(&[node("Relu", &["out"], &["out"])], &[])).contains("cycle"));
    assert!(refusal(&of(&[node("Relu", &["nobody"], &["out"])], &[])).contains("`nobody`"));
    let two = [node("Relu", &["images"], &["out"]), node("Tanh", &["images"], &["out"])];
    assert!(refusal(&of(&two, &[])).contains("two sources"));
    // Nodes in another order than they can run are no fault.
    let swapped = [node("Relu", &["a"], &["out"]), node("Relu", &["images"], &["a"])];
    check(&of(&swapped, &[]), None).unwrap();
}

/// A network whose last node gives something enormous.
fn grown(nodes: &[Message], constants: &[Message]) -> String {
    refusal(&of(nodes, constants))
}

#[test]
fn enormous_values_are_refused_whatever_makes_them() {
    let big = i64::from(1 << 20);
    let four = |name: &str| integers(name, &[4], &[1, 3, big, big]);
    let resize = node("Resize", &["images", "", "scales"], &["out"]);
    let scales = floats("scales", &[4], &[1.0, 1.0, 1e4, 1e4]);
    let outer = [node("Transpose", &["row"], &["column"]), node("Add", &["row", "column"], &["out"])];
    let doubling: Vec<Message> =
        std::iter::once(node("Concat", &["images", "images"], &["c0"]).message(5, &axis(2)))
            .chain((0..40).map(|i| {
                let from = format!("c{i}");
                node("Concat", &[&from, &from], &[&format!("c{}", i + 1)]).message(5, &axis(2))
            }))
            .collect();
    let padded = node("Pad", &["images", "pads"], &["out"]);
    let cases: [(&str, Vec<Message>, Vec<Message>); 12] = [
        ("ConstantOfShape", vec![node("ConstantOfShape", &["s"], &["out"])], vec![four("s")]),
        (
            "Expand",
            vec![node("Expand", &["one", "s"], &["out"])],
            vec![floats("one", &[1], &[1.0]), four("s")],
        ),
        ("Tile", vec![node("Tile", &["images", "s"], &["out"])], vec![four("s")]),
        ("Resize", vec![resize], vec![scales]),
        ("Resize", vec![node("Resize", &["images", "", "", "s"], &["out"])], vec![four("s")]),
        (
            "Range",
            vec![node("Range", &["from", "to", "step"], &["out"])],
            vec![integers("from", &[], &[0]), integers("to", &[], &[1 << 40]), integers("step", &[], &[1])],
        ),
        ("Pad", vec![padded], vec![integers("pads", &[8], &[0, 0, 0, 0, 0, 0, big, big])]),
        ("Add", outer.to_vec(), vec![floats("row", &[1, 100_000], &vec![0.0; 100_000])]),
        (
            "MatMul",
            vec![node("MatMul", &["column", "row"], &["out"])],
            vec![
                floats("column", &[100_000, 1], &vec![0.0; 100_000]),
                floats("row", &[1, 100_000], &vec![0.0; 100_000]),
            ],
        ),
        ("Concat", doubling, vec![]),
        (
            "RandomNormal",
            vec![node("RandomNormal", &[], &["out"]).message(5, &{
                let ints = [big, big].iter().fold(Message::default().text(1, "shape"), |m, &i| m.int(8, i));
                ints.int(20, 7)
            })],
            vec![],
        ),
        (
            "ConstantOfShape",
            vec![
                node("Mul", &["s", "s"], &["t"]),
                node("Concat", &["t", "t"], &["u"]).message(5, &axis(0)),
                node("ConstantOfShape", &["u"], &["out"]),
            ],
            vec![integers("s", &[1], &[100_000])],
        ),
    ];
    for (op, nodes, constants) in cases {
        let message = grown(&nodes, &constants);
        assert!(message.contains(op) && message.contains("elements"), "{op}: {message}");
    }
}

fn axis(axis: i64) -> Message {
    Message::default().text(1, "axis").int(3, axis).int(20, 2)
}

#[test]
fn sizes_that_depend_on_the_picture_are_refused() {
    let nodes = [
        node("ReduceSum", &["images"], &["sum"]),
        node("Cast", &["sum"], &["whole"]).message(5, &Message::default().text(1, "to").int(3, 7).int(20, 2)),
        node("Reshape", &["whole", "one"], &["shape"]),
        node("ConstantOfShape", &["shape"], &["out"]),
    ];
    let message = grown(&nodes, &[integers("one", &[1], &[1])]);
    assert!(message.contains("not known before the network runs"), "{message}");
}

#[test]
fn many_large_values_and_endless_work_are_refused() {
    // 40 values of 2²⁵ elements, all needed at the end.
    let mut nodes: Vec<Message> =
        (0..40).map(|i| node("ConstantOfShape", &["s"], &[&format!("v{i}")])).collect();
    let names: Vec<String> = (0..40).map(|i| format!("v{i}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    nodes.push(node("Sum", &all, &["out"]));
    let message = grown(&nodes, &[integers("s", &[1], &[1 << 25])]);
    assert!(message.contains("at the same time"), "{message}");
    // A chain of matrix products, each small enough.
    let mut nodes = vec![node("ConstantOfShape", &["s"], &["m0"])];
    nodes.extend((0..20).map(|i| {
        let from = format!("m{i}");
        node("MatMul", &[&from, &from], &[&format!("m{}", i + 1)])
    }));
    let message = grown(&nodes, &[integers("s", &[2], &[8000, 8000])]);
    assert!(message.contains("multiplications"), "{message}");
}

/// Work that is no product: each node alone is within the limits of sizes.
#[test]
fn work_that_is_no_product_is_counted_too() {
    let square = |side: i64| integers("s", &[2], &[side, side]);
    let chain = |op: &dyn Fn(&str, &str) -> Message, count: usize| {
        let mut nodes = vec![node("ConstantOfShape", &["s"], &["v0"])];
        nodes.extend((0..count).map(|i| op(&format!("v{i}"), &format!("v{}", i + 1))));
        nodes
    };
    let kernel = Message::default().text(1, "kernel_shape").int(20, 7).int(8, 900).int(8, 900);
    let pads = Message::default().text(1, "pads").int(20, 7);
    let pads = [450, 450, 449, 449].into_iter().fold(pads, |pads, side| pads.int(8, side));
    let equation = Message::default().text(1, "equation").int(20, 3).bytes(4, b"ij,jk->ik");
    let cases: [(&str, Vec<Message>, Message); 5] = [
        ("values", chain(&|from, to| node("Relu", &[from], &[to]), 2000), square(8000)),
        (
            "Einsum",
            chain(&|from, to| node("Einsum", &[from, from], &[to]).message(5, &equation), 2),
            square(8000),
        ),
        (
            "pooling",
            chain(&|from, to| node("MaxPool", &[from], &[to]).message(5, &kernel).message(5, &pads), 3),
            integers("s", &[4], &[1, 1, 1000, 1000]),
        ),
        ("sorting", chain(&|from, to| node("CumSum", &[from, "one"], &[to]), 400), square(8000)),
        (
            "suppression",
            vec![
                node("ConstantOfShape", &["s"], &["boxes"]),
                node("ConstantOfShape", &["scores_shape"], &["scores"]),
                node("NonMaxSuppression", &["boxes", "scores", "one"], &["out"]),
            ],
            integers("s", &[3], &[1, 100_000, 4]),
        ),
    ];
    let one = integers("one", &[1], &[1]);
    let scores = integers("scores_shape", &[3], &[1, 80, 100_000]);
    for (what, nodes, shape) in cases {
        let message = grown(&nodes, &[shape, one.clone(), scores.clone()]);
        assert!(message.contains("multiplications"), "{what}: {message}");
    }
    // Fewer of them are no limit.
    let few = chain(&|from, to| node("Relu", &[from], &[to]), 3);
    assert!(check(&of(&few, &[square(100), one]), None).is_ok());
    // More than there are, which an engine may believe.
    let many = integers("k", &[1], &[1 << 60]);
    let message = grown(&[node("TopK", &["images", "k"], &["out", "at"])], &[many]);
    assert!(message.contains("the first 1152921504606846976 of 64 values"), "{message}");
}

#[test]
fn an_enormous_input_is_refused() {
    let input = declared("images", FLOAT, &[1, 3, 1_000_000, 1_000_000]);
    let bytes = file(&graph(&[node("Relu", &["images"], &["out"])], &[], &[input], &[out()]));
    let message = refusal(&bytes);
    assert!(message.contains("4096 pixels"), "{message}");
    let open = declared("images", FLOAT, &[-1, 3, -1, -1]);
    let bytes = file(&graph(&[node("Relu", &["images"], &["out"])], &[], &[open], &[out()]));
    check(&bytes, Some([640, 640])).unwrap();
    assert!(check(&bytes, Some([60_000, 60_000])).is_err());
}

/// Shapes that a dynamic export computes from its input's: `Shape`, `Gather`, `Concat`, `Resize`.
#[test]
fn shapes_that_the_network_computes_are_followed() {
    let nodes = |factor: &str| {
        vec![
            node("Shape", &["images"], &["shape"]),
            node("Slice", &["shape", "from", "to", "zero"], &["sides"]),
            node("Mul", &["sides", factor], &["larger"]),
            node("Slice", &["shape", "zero", "from", "zero"], &["head"]),
            node("Concat", &["head", "larger"], &["sizes"]).message(5, &axis(0)),
            node("Resize", &["images", "", "", "sizes"], &["out"]),
        ]
    };
    let constants = [
        integers("from", &[1], &[2]),
        integers("to", &[1], &[4]),
        integers("zero", &[1], &[0]),
        integers("two", &[1], &[2]),
        integers("thousand", &[1], &[1000]),
    ];
    let open = |nodes: &[Message]| {
        let input = declared("images", FLOAT, &[-1, 3, -1, -1]);
        file(&graph(nodes, &constants, &[input], &[declared("out", FLOAT, &[-1, 3, -1, -1])]))
    };
    check(&open(&nodes("two")), Some([320, 320])).unwrap();
    let message = check(&open(&nodes("thousand")), Some([320, 320])).unwrap_err().to_string();
    assert!(message.contains("[1, 3, 320000, 320000]"), "{message}");
}

#[test]
fn half_precision_and_a_picture_s_size_become_float32() {
    let half = declared("images", super::model::FLOAT16, &[1, 3, 32, 64]);
    let sizes = declared("orig_target_sizes", INT64, &[1, 2]);
    let outputs = [
        declared("half", super::model::FLOAT16, &[1, 3, 32, 64]),
        declared("labels", INT64, &[1, 2]),
        declared("plain", FLOAT, &[1, 3, 32, 64]),
    ];
    let nodes = [
        node("Relu", &["images"], &["half"]),
        node("Identity", &["orig_target_sizes"], &["labels"]),
        node("Cast", &["images"], &["plain"])
            .message(5, &Message::default().text(1, "to").int(3, 1).int(20, 2)),
    ];
    let bytes = file(&graph(&nodes, &[], &[half, sizes], &outputs));
    let checked = check(&bytes, None).unwrap();
    let model = model::parse(&checked.bytes).unwrap();
    let names =
        |all: &[model::Declared]| all.iter().map(|one| (one.name.to_owned(), one.kind)).collect::<Vec<_>>();
    assert_eq!(names(&model.graph.inputs), [("images_float32".to_owned(), FLOAT)]);
    let expected = [("half_float32", FLOAT), ("labels_float32", FLOAT), ("plain", FLOAT)];
    assert_eq!(names(&model.graph.outputs), expected.map(|(name, kind)| (name.to_owned(), kind)));
    let constant = &model.graph.initializers[0];
    assert_eq!((constant.name, constant.numbers(8)), ("orig_target_sizes", Some(vec![64.0, 32.0])));
    order::sorted(&model.graph).unwrap();
    // And the embedded engine runs it.
    use crate::engine::{Backend, Engine, EngineConfig, ModelSource};
    let folder = std::env::temp_dir().join(format!("takt-onnx-half-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("half.onnx");
    std::fs::write(&path, &bytes).unwrap();
    for backend in [Backend::Embedded, Backend::Auto] {
        let engine = Engine::open(&EngineConfig { backend, ..EngineConfig::default() }).unwrap();
        let mut network = engine.load(&ModelSource::File(path.clone()), None).unwrap();
        let input: Vec<f32> = (0..3 * 32 * 64).map(|i| (i % 7) as f32 - 3.0).collect();
        let outputs = network.network.run(&input).unwrap();
        assert_eq!(outputs[0].data, input.iter().map(|value| value.max(0.0)).collect::<Vec<_>>());
        assert_eq!(outputs[1].data, [64.0, 32.0]);
        assert_eq!(outputs[2].data, input);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Damaged files of every sort: an error or a model, never a panic, and never for long.
#[test]
fn damaged_files_are_refused_without_a_panic() {
    let tiny = include_bytes!("../../../tests/data/tiny_yolo_seg.onnx");
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    // The last 2 kB are nodes and shapes; the rest are weights.
    let refused = (0..20_000)
        .filter(|_| {
            let mut bytes = tiny.to_vec();
            for _ in 0..=random(4) {
                let at = if random(2) == 0 { random(bytes.len()) } else { random(1500) };
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
            }
            check(&bytes, None).is_err()
        })
        .count();
    assert!((1_000..20_000).contains(&refused), "{refused}");
}

#[test]
fn a_side_of_zero_hides_nothing() {
    let message = refusal(&of(&[], &[integers("w", &[0, 1 << 60], &[])]));
    assert!(message.contains("a shape of a constant"), "{message}");
    let nodes = [
        node("ConstantOfShape", &["s"], &["v"]),
        node("Tile", &["v", "s"], &["w"]),
        node("Slice", &["w", "one", "one", "one"], &["out"]),
    ];
    let message = refusal(&of(&nodes, &[integers("s", &[2], &[0, 1 << 52]), integers("one", &[1], &[1])]));
    assert!(message.contains("ConstantOfShape"), "{message}");
}

#[test]
fn the_size_that_a_file_names_fills_open_sides() {
    use crate::engine::{Backend, Engine, EngineConfig, ModelSource};
    let open = declared("images", FLOAT, &[-1, 3, -1, -1]);
    let mut bytes = file(&graph(
        &[node("Relu", &["images"], &["out"])],
        &[],
        &[open],
        &[declared("out", FLOAT, &[-1, 3, -1, -1])],
    ));
    let path = std::env::temp_dir().join(format!("takt-onnx-open-{}.onnx", std::process::id()));
    let load = |bytes: &[u8], size| {
        std::fs::write(&path, bytes).unwrap();
        let engine = Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() });
        let network = engine.unwrap().load(&ModelSource::File(path.clone()), size)?;
        Ok::<_, crate::EngineError>(network.network.input_shape().to_vec())
    };
    assert!(load(&bytes, None).unwrap_err().to_string().contains("input_size"));
    bytes.extend(Message::default().message(14, &Message::default().text(1, "imgsz").text(2, "[64, 96]")).0);
    assert_eq!(load(&bytes, None).unwrap(), [1, 3, 64, 96]);
    assert_eq!(load(&bytes, Some([32, 32])).unwrap(), [1, 3, 32, 32]);
    std::fs::remove_file(&path).unwrap();
}
