//! Finds what lengths of sequences and tags of variants refer to.
//!
//! Afterwards the decoder looks up no names: each integer that something refers to has a number
//! under which its value is kept, and each reference names that number.

use std::collections::HashMap;
use std::rc::Rc;

use super::error::{TsdlError, TsdlProblem};
use super::types::{Int, Label, Metadata, Order, Reference, Type};

/// The parts that an event consists of, by the names that absolute references use, in the order of
/// reading.
const PARTS: [&str; 6] = [
    "trace.packet.header",
    "stream.packet.context",
    "stream.event.header",
    "stream.event.context",
    "event.context",
    "event.fields",
];

/// An integer that can be referred to.
#[derive(Clone)]
struct Visible {
    ordinal: u32,
    signed: bool,
    labels: Option<Rc<[Label]>>,
}

struct Resolver<'a> {
    text: &'a str,
    /// For each part, its integers by path.
    visible: [HashMap<String, Visible>; PARTS.len()],
    next: u32,
    /// Integers referred to, and the number under which each is kept.
    used: HashMap<u32, u32>,
}

/// Resolves all references of `metadata`, which was parsed from `text`, and settles byte orders.
pub fn resolve(text: &str, metadata: &mut Metadata) -> Result<(), TsdlError> {
    let mut resolver =
        Resolver { text, visible: std::array::from_fn(|_| HashMap::new()), next: 0, used: HashMap::new() };
    let order = metadata.order;
    for_each_root(metadata, |part, root| {
        for later in &mut resolver.visible[part..] {
            later.clear();
        }
        let Some(root) = root else { return Ok(()) };
        resolver.walk(root, part, &mut Vec::new(), order)
    })?;
    let used = resolver.used;
    for_each_root(metadata, |_, root| {
        if let Some(root) = root {
            mark(root, &used);
        }
        Ok(())
    })?;
    metadata.saved = u32::try_from(used.len()).unwrap_or(u32::MAX);
    Ok(())
}

/// Visits the root types in the order of reading, with the number of the part each makes up.
fn for_each_root(
    metadata: &mut Metadata,
    mut visit: impl FnMut(usize, Option<&mut Type>) -> Result<(), TsdlError>,
) -> Result<(), TsdlError> {
    visit(0, metadata.packet_header.as_mut())?;
    for stream in &mut metadata.streams {
        visit(1, stream.packet_context.as_mut())?;
        visit(2, stream.event_header.as_mut())?;
        visit(3, stream.event_context.as_mut())?;
        for event in &mut stream.events {
            visit(4, event.context.as_mut())?;
            visit(5, event.fields.as_mut())?;
        }
    }
    Ok(())
}

impl Resolver<'_> {
    fn walk(
        &mut self,
        of: &mut Type,
        part: usize,
        path: &mut Vec<String>,
        order: Order,
    ) -> Result<(), TsdlError> {
        match of {
            Type::Int(int) => self.integer(int, None, part, path, order),
            Type::Enum(int, labels) => {
                let labels: Rc<[Label]> = labels.as_slice().into();
                self.integer(int, Some(labels), part, path, order);
            }
            Type::Float(float) => {
                if float.order == Order::Native {
                    float.order = order;
                }
            }
            Type::Text => {}
            Type::Struct(body) => {
                for (name, of) in &mut body.fields {
                    path.push(name.clone());
                    self.walk(of, part, path, order)?;
                    path.pop();
                }
            }
            Type::Array(of, _) => {
                path.push("[]".into());
                self.walk(of, part, path, order)?;
                path.pop();
            }
            Type::Sequence(of, length) => {
                length.from = self.look_up(length, part, path)?.0;
                path.push("[]".into());
                self.walk(of, part, path, order)?;
                path.pop();
            }
            Type::Variant(variant) => {
                let Some(tag) = &mut variant.tag else {
                    let found = path.last().cloned().unwrap_or_default();
                    return Err(TsdlError::at(self.text, self.text.len(), TsdlProblem::NoTag { found }));
                };
                let (from, target) = self.look_up(tag, part, path)?;
                tag.from = from;
                let Some(labels) = target.labels else {
                    let problem = TsdlProblem::NoTag { found: tag.path.clone() };
                    return Err(TsdlError::at(self.text, tag.at, problem));
                };
                variant.signed = target.signed;
                variant.cases = labels
                    .iter()
                    .filter_map(|label| {
                        let option = variant.options.iter().position(|(name, _)| same(name, &label.name))?;
                        Some((label.low, label.high, option))
                    })
                    .collect();
                for (name, of) in &mut variant.options {
                    path.push(name.clone());
                    self.walk(of, part, path, order)?;
                    path.pop();
                }
            }
        }
        Ok(())
    }

    fn integer(
        &mut self,
        int: &mut Int,
        labels: Option<Rc<[Label]>>,
        part: usize,
        path: &[String],
        order: Order,
    ) {
        if int.order == Order::Native {
            int.order = order;
        }
        int.ordinal = self.next;
        self.next = self.next.saturating_add(1);
        let visible = Visible { ordinal: int.ordinal, signed: int.signed, labels };
        self.visible[part].insert(path.join("."), visible);
    }

    /// Place at which the value of `reference` is kept, seen from `path` of `part`.
    fn look_up(
        &mut self,
        reference: &Reference,
        part: usize,
        path: &[String],
    ) -> Result<(u32, Visible), TsdlError> {
        let absolute = PARTS.iter().enumerate().find_map(|(of, prefix)| {
            let rest = reference.path.strip_prefix(prefix)?.strip_prefix('.')?;
            self.visible[of].get(rest)
        });
        let found = absolute.or_else(|| {
            // From the innermost structure outwards.
            (0..path.len()).rev().find_map(|depth| {
                let mut candidate = path[..depth].join(".");
                if depth > 0 {
                    candidate.push('.');
                }
                candidate.push_str(&reference.path);
                self.visible[part].get(&candidate)
            })
        });
        let Some(found) = found.cloned() else {
            let problem = TsdlProblem::NoReference { path: reference.path.clone() };
            return Err(TsdlError::at(self.text, reference.at, problem));
        };
        let next = u32::try_from(self.used.len()).unwrap_or(u32::MAX);
        let from = *self.used.entry(found.ordinal).or_insert(next);
        Ok((from, found))
    }
}

/// Options are named as the labels, with or without LTTng's underscore.
fn same(option: &str, label: &str) -> bool {
    option == label || option.strip_prefix('_') == Some(label)
}

/// Reports every integer that is referred to where its value is kept.
fn mark(of: &mut Type, used: &HashMap<u32, u32>) {
    match of {
        Type::Int(int) | Type::Enum(int, _) => int.save = used.get(&int.ordinal).copied(),
        Type::Struct(body) => body.fields.iter_mut().for_each(|(_, of)| mark(of, used)),
        Type::Variant(body) => body.options.iter_mut().for_each(|(_, of)| mark(of, used)),
        Type::Array(of, _) | Type::Sequence(of, _) => mark(of, used),
        Type::Float(_) | Type::Text => {}
    }
}
