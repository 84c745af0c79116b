//! The graph of a learnt system as a page: executors as boxes with their callbacks, messages
//! between them, chains in colours with their latencies. One file without scripts and without
//! anything from elsewhere, so that it can be kept beside a report.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use takt_manager::learn::LearntChain;
use takt_manager::live::{ChainStatus, Status};
use takt_model::{Callback, Model};

/// Width of an executor's box, and of a character in it.
const BOX: usize = 330;
const GAP_X: usize = 130;
const GAP_Y: usize = 22;
const HEAD: usize = 24;
const ROW: usize = 36;
/// More characters do not fit into a box.
const FIT: usize = 46;
/// Columns at most; what would come further right is put into the last.
const COLUMNS: usize = 12;
/// Colours that eight per cent of men can distinguish, too (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6f00"];

/// A chain as the page shows it.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    pub name: String,
    /// Its state, in a word.
    pub state: String,
    pub why: String,
    /// Its callbacks by their names.
    pub path: Vec<String>,
    /// Goal, bound, median and longest latency, nanoseconds.
    pub goal_ns: Option<u64>,
    pub bound_ns: Option<u64>,
    pub median_ns: Option<u64>,
    pub worst_ns: Option<u64>,
    /// Times that it came to its end.
    pub completions: u64,
}

impl From<&LearntChain> for Chain {
    fn from(chain: &LearntChain) -> Self {
        Self {
            name: chain.name.clone(),
            state: chain.state.replace('_', " "),
            why: chain.why.clone(),
            path: chain.path.clone(),
            goal_ns: chain.goal_ns,
            bound_ns: chain.bound_ns,
            median_ns: chain.median_ns,
            worst_ns: chain.worst_ns,
            completions: chain.completions,
        }
    }
}

impl From<&ChainStatus> for Chain {
    fn from(chain: &ChainStatus) -> Self {
        Self {
            name: chain.name.clone(),
            state: chain.state.replace('_', " "),
            why: chain.why.clone(),
            path: chain.path.clone(),
            goal_ns: Some(chain.goal_ns),
            bound_ns: chain.bound_ns,
            median_ns: chain.median_ns,
            worst_ns: (chain.completions > 0).then_some(chain.worst_ns),
            completions: chain.completions,
        }
    }
}

/// The page of a running manager, which renews itself.
#[must_use]
pub fn live_page(status: &Status, model: &Model) -> String {
    let chains: Vec<Chain> = status.chains.iter().map(Chain::from).collect();
    page(model, &chains, Some(5))
}

/// The page; `renew_s`: a browser loads it again so often.
#[must_use]
pub fn page(model: &Model, chains: &[Chain], renew_s: Option<u32>) -> String {
    let renew =
        renew_s.map_or_else(String::new, |s| format!("<meta http-equiv=\"refresh\" content=\"{s}\">"));
    let drawn = Layout::new(model);
    let callbacks: usize = drawn.boxes.iter().map(|one| one.callbacks.len()).sum();
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">{renew}<title>Takt: graph</title><style>{STYLE}</style></head><body>\
         <h1>Callbacks, executors and chains</h1><p>{} executors, {callbacks} callbacks, {} chains. Point at a box or a line for more.</p>",
        drawn.boxes.len(),
        chains.len()
    );
    out.push_str(&table(chains));
    out.push_str(&drawn.svg(model, chains));
    for problem in &model.unanalysable {
        // Writing to a string cannot fail.
        let _ = write!(out, "<p class=\"why\">not analysable: {}</p>", escaped(&problem.reason));
    }
    out.push_str("</body></html>\n");
    out
}

const STYLE: &str = "body{font:14px/1.4 system-ui,'DejaVu Sans',sans-serif;margin:16px;color:#1b2430;background:#fff}h1{font-size:18px;margin:0}\
table{border-collapse:collapse;margin:10px 0}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #d8dee7;font-variant-numeric:tabular-nums}\
td:first-child,th:first-child,td.w,th.w{text-align:left}i{display:inline-block;width:18px;height:4px;border-radius:2px;margin-right:8px;vertical-align:middle}\
.late{color:#b00020;font-weight:600}.why{color:#5c6879;margin:2px 0}svg{display:block;max-width:none}text{font:11px 'DejaVu Sans',system-ui,sans-serif;fill:#1b2430}\
text.f{fill:#5c6879;font-size:10px}text.h{font-weight:600}rect.e{fill:#f4f6f9;stroke:#b7c1cf}rect.c{fill:#fff;stroke:#d3dae4}rect.d{stroke-dasharray:4 3}\
path{fill:none;stroke:#b0bac8;stroke-width:1.2}path.k{stroke-width:2.6}";

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Characters that no document may contain.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// As much as fits, with the end kept: names of ROS 2 differ there.
fn fitted(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return escaped(text);
    }
    let end: String = text.chars().skip(count + 1 - most).collect();
    format!("…{}", escaped(&end))
}

/// As much as fits, from the beginning.
fn beginning(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return escaped(text);
    }
    let begun: String = text.chars().take(most - 1).collect();
    format!("{}…", escaped(&begun))
}

fn ms(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e6))
}

fn colour(chain: usize) -> &'static str {
    COLOURS[chain % COLOURS.len()]
}

fn table(chains: &[Chain]) -> String {
    if chains.is_empty() {
        return "<p>No chain is known yet.</p>".to_owned();
    }
    let mut out = String::from(
        "<table><tr><th>chain</th><th>goal ms</th><th>bound</th><th>median</th><th>worst</th><th>count</th><th class=\"w\">state</th></tr>",
    );
    for (number, chain) in chains.iter().enumerate() {
        let late = chain.worst_ns.zip(chain.goal_ns).is_some_and(|(worst, goal)| worst > goal);
        let why = if chain.why.is_empty() { String::new() } else { format!(": {}", escaped(&chain.why)) };
        let _ = write!(
            out,
            "<tr><td><i style=\"background:{}\"></i>{}</td><td>{}</td><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td class=\"w\">{}{why}</td></tr>",
            colour(number),
            escaped(&chain.name),
            ms(chain.goal_ns),
            ms(chain.bound_ns),
            ms(chain.median_ns),
            if late { " class=\"late\"" } else { "" },
            ms(chain.worst_ns),
            chain.completions,
            escaped(&chain.state),
        );
    }
    out + "</table>"
}

/// An executor with the callbacks that ran.
struct Box {
    executor: usize,
    callbacks: Vec<usize>,
    column: usize,
    x: usize,
    y: usize,
}

impl Box {
    fn height(&self) -> usize {
        HEAD + self.callbacks.len() * ROW + 6
    }
}

/// Layout of the graph.
struct Layout {
    boxes: Vec<Box>,
    /// Middle of each callback's row, and its box's left side.
    at: BTreeMap<usize, (usize, usize)>,
    width: usize,
    height: usize,
}

fn ran(callback: &Callback) -> bool {
    callback.arrivals.seen > 0 || callback.cost.seen > 0
}

/// From callback to callback, over which topic.
fn edges(model: &Model) -> Vec<(usize, usize, usize)> {
    let mut all = Vec::new();
    for (number, topic) in model.topics.iter().enumerate() {
        for from in topic.publishers.iter().map(|c| c.0) {
            all.extend(topic.subscribers.iter().map(|to| (from, to.0, number)));
        }
    }
    all
}

impl Layout {
    fn new(model: &Model) -> Self {
        let mut boxes: Vec<Box> = Vec::new();
        for (executor, one) in model.executors.iter().enumerate() {
            let known = |id: &usize| model.callbacks.get(*id).is_some_and(ran);
            let callbacks: Vec<usize> = one.callbacks.iter().map(|c| c.0).filter(known).collect();
            if !callbacks.is_empty() {
                boxes.push(Box { executor, callbacks, column: 0, x: 0, y: 0 });
            }
        }
        let mut home = BTreeMap::new();
        for (number, one) in boxes.iter().enumerate() {
            home.extend(one.callbacks.iter().map(|callback| (*callback, number)));
        }
        // Each box right of all that it gets messages from; circles end at the last column.
        let between: Vec<(usize, usize)> = edges(model)
            .iter()
            .filter_map(|(from, to, _)| Some((*home.get(from)?, *home.get(to)?)))
            .filter(|(from, to)| from != to)
            .collect();
        for _ in 0..COLUMNS {
            for &(from, to) in &between {
                let after = (boxes[from].column + 1).min(COLUMNS - 1);
                // A box that leads back here stays where it is.
                let back = between.contains(&(to, from)) && to < from;
                if boxes[to].column < after && !back {
                    boxes[to].column = after;
                }
            }
        }
        let mut used: Vec<usize> = boxes.iter().map(|one| one.column).collect();
        used.sort_unstable();
        used.dedup();
        let mut layout = Self { boxes: Vec::new(), at: BTreeMap::new(), width: 0, height: 0 };
        let mut bottoms = vec![4; used.len()];
        for mut one in boxes {
            let column = used.iter().position(|column| *column == one.column).unwrap_or(0);
            (one.column, one.x, one.y) = (column, 4 + column * (BOX + GAP_X), bottoms[column]);
            bottoms[column] += one.height() + GAP_Y;
            for (row, callback) in one.callbacks.iter().enumerate() {
                layout.at.insert(*callback, (one.x, one.y + HEAD + row * ROW + ROW / 2));
            }
            layout.boxes.push(one);
        }
        layout.width = used.len().max(1) * (BOX + GAP_X) - GAP_X + 60;
        layout.height = bottoms.into_iter().max().unwrap_or(0) + 8;
        layout
    }

    fn svg(&self, model: &Model, chains: &[Chain]) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">",
            self.width, self.height
        );
        for one in &self.boxes {
            self.draw_box(&mut out, model, one);
        }
        // Between the same two callbacks chains run beside each other.
        let mut lanes: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let by_name: BTreeMap<&str, usize> = model
            .callbacks
            .iter()
            .enumerate()
            .map(|(number, callback)| (callback.name.as_str(), number))
            .collect();
        let on_chains: Vec<(usize, usize, usize)> = chains
            .iter()
            .enumerate()
            .flat_map(|(number, chain)| chain.path.windows(2).map(move |pair| (number, &pair[0], &pair[1])))
            .filter_map(|(number, from, to)| {
                Some((number, *by_name.get(from.as_str())?, *by_name.get(to.as_str())?))
            })
            .collect();
        for (from, to, topic) in edges(model) {
            if !on_chains.iter().any(|(_, a, b)| (*a, *b) == (from, to)) {
                self.draw_edge(&mut out, (from, to), 0, "", &model.topics[topic].name);
            }
        }
        for (number, from, to) in on_chains {
            let lane = lanes.entry((from, to)).or_default();
            let style = format!(" class=\"k\" style=\"stroke:{}\"", colour(number));
            self.draw_edge(&mut out, (from, to), *lane, &style, &chains[number].name);
            *lane += 1;
        }
        out + "</svg>"
    }

    fn draw_box(&self, out: &mut String, model: &Model, one: &Box) {
        let (x, y) = (one.x, one.y);
        let label = model.executor_label(&model.executors[one.executor]);
        let _ = write!(
            out,
            "<g><title>{}</title><rect class=\"e\" x=\"{x}\" y=\"{y}\" width=\"{BOX}\" height=\"{}\" rx=\"6\"/><text class=\"h\" x=\"{}\" y=\"{}\">{}</text></g>",
            escaped(&label),
            one.height(),
            x + 8,
            y + 16,
            beginning(&label, FIT),
        );
        for (row, callback) in one.callbacks.iter().enumerate() {
            let Some(callback_of) = model.callbacks.get(*callback) else { continue };
            let top = y + HEAD + row * ROW;
            let trouble = model.unanalysable.iter().any(|u| u.callbacks.iter().any(|c| c.0 == *callback));
            let figures = callback_of.figures();
            let _ = write!(
                out,
                "<g><title>{}\n{}</title><rect class=\"c{}\" x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text><text class=\"f\" x=\"{}\" y=\"{}\">{}</text></g>",
                escaped(&callback_of.name),
                escaped(&figures),
                if trouble { " d" } else { "" },
                x + 6,
                BOX - 12,
                ROW - 4,
                x + 12,
                top + 14,
                fitted(&callback_of.name, FIT),
                x + 12,
                top + 27,
                beginning(&figures, FIT + 6),
            );
        }
    }

    fn draw_edge(&self, out: &mut String, (from, to): (usize, usize), lane: usize, style: &str, title: &str) {
        let (Some(&(from_x, from_y)), Some(&(to_x, to_y))) = (self.at.get(&from), self.at.get(&to)) else {
            return;
        };
        let (from_y, to_y) = (from_y + lane * 4, to_y + lane * 4);
        let (start, end) = (from_x + BOX - 6, to_x + 6);
        let path = if to_x > from_x {
            let bend = (end - start) / 2;
            format!("M{start} {from_y} C{} {from_y} {} {to_y} {end} {to_y}", start + bend, end - bend)
        } else {
            // Within a column, or back: around the right side.
            let right = to_x + BOX - 6;
            let out_x = start.max(right) + 34 + lane * 4;
            format!("M{start} {from_y} C{out_x} {from_y} {out_x} {to_y} {right} {to_y}")
        };
        let _ = write!(out, "<path{style} d=\"{path}\"><title>{}</title></path>", escaped(title));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_manager::simulate::{System, Trigger};

    fn model(names: [&str; 3]) -> Model {
        let mut system = System::default();
        let (one, two) = (system.executor(names[0], false), system.executor("two", false));
        let topic = system.topic("/scan");
        let timer = Trigger::Periodic { period_ns: 10_000_000, jitter_ns: 0 };
        system.callback(one, names[1], timer, vec![1_000_000], vec![topic]);
        system.callback(two, names[2], Trigger::Topic(topic), vec![2_000_000], vec![]);
        system.exact_model()
    }

    fn chain(path: &[&str]) -> Chain {
        Chain {
            name: "front".into(),
            state: "guaranteed".into(),
            path: path.iter().map(|&name| name.to_owned()).collect(),
            goal_ns: Some(5_000_000),
            worst_ns: Some(6_000_000),
            completions: 7,
            ..Chain::default()
        }
    }

    #[test]
    fn executors_callbacks_messages_and_chains_are_drawn() {
        let names = ["one", "/one timer", "/two subscription /scan"];
        let page = page(&model(names), &[chain(&names[1..])], None);
        for word in
            ["2 executors, 2 callbacks, 1 chains", "/one timer", "/two subscription /scan", "up to 2.000 ms"]
        {
            assert!(page.contains(word), "{word}: {page}");
        }
        // The chain's line stands for the message's; the late one is marked.
        assert_eq!((page.matches("<path").count(), page.matches("<path class=\"k\"").count()), (1, 1));
        assert!(page.contains("<td class=\"late\">6.0</td>") && !page.contains("refresh"));
        // Left to right.
        let layout = Layout::new(&model(names));
        assert!(layout.at[&0].0 < layout.at[&1].0);
    }

    #[test]
    fn names_cannot_break_the_page_and_any_graph_has_one() {
        let evil = "<script>alert('x')</script>&\"\u{1b}";
        let page = live_page(
            &Status {
                chains: vec![ChainStatus { name: evil.into(), ..ChainStatus::default() }],
                ..Status::default()
            },
            &model([evil, evil, "/two"]),
        );
        assert!(!page.contains("<script") && !page.contains('\u{1b}') && page.contains("refresh"), "{page}");
        assert!(super::page(&Model::default(), &[], None).contains("No chain is known yet"));
        // A circle, and an executor that sends to itself.
        let mut system = System::default();
        let (one, two) = (system.executor("one", false), system.executor("two", false));
        let (a, b) = (system.topic("a"), system.topic("b"));
        system.callback(one, "p", Trigger::Topic(b), vec![1], vec![a]);
        system.callback(two, "q", Trigger::Topic(a), vec![1], vec![b, a]);
        let mut model = system.exact_model();
        model.callbacks.iter_mut().for_each(|callback| callback.arrivals.seen = 1);
        let page = super::page(&model, &[chain(&["p", "q", "nobody"])], None);
        assert!(page.matches("<path").count() >= 3, "{page}");
    }
}
