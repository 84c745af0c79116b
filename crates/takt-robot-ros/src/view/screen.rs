//! The latency manager's screen: chains with goal, bound and what was measured; budgets by core;
//! the last decisions. Drawing is a pure function of the status, so tests draw into a buffer.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use takt_manager::live::{ChainStatus, Cost, ReservationStatus, Status};
use takt_view::terminal::{MUTED, card};

const GOOD: Color = Color::Green;
const WARN: Color = Color::Yellow;
const BAD: Color = Color::Red;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, status: &Status) {
    let area = frame.area();
    let cores = by_core(&status.reservations).len() as u16;
    let chains = status.chains.len() as u16 + 3;
    // Chains first; then budgets, of which the cores matter most; decisions take what is left, and
    // at least three lines.
    let budgets = (status.reservations.len() as u16).max(cores).max(1) + 3;
    let available = area.height.saturating_sub(2 + chains + 5);
    let [head, top, middle, log, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(chains),
        Constraint::Length(budgets.min(available.max(4))),
        Constraint::Min(5),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, status);
    draw_chains(frame, top, &status.chains);
    let [left, right] = Layout::horizontal([Constraint::Percentage(38), Constraint::Fill(1)]).areas(middle);
    draw_cores(frame, left, status);
    draw_reservations(frame, right, &status.reservations);
    draw_log(frame, log, status);
    draw_foot(frame, foot, status);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let state = match (status.observes, status.plans, status.holds) {
        (true, ..) => "observes only".fg(WARN),
        (_, 0, _) => "waiting for the first plan".fg(MUTED),
        (.., true) => "all reservations hold".fg(GOOD),
        (.., false) => "NOT ALL RESERVATIONS HOLD".fg(BAD).bold(),
    };
    let left = Line::from(vec![" Takt ".bold().reversed(), " latency manager   ".bold(), state]);
    let mode = status.mode.as_deref().unwrap_or("nothing is changed");
    let seconds = status.running_ns / 1_000_000_000;
    let right = Line::from(vec![
        format!("{mode}   ").fg(MUTED),
        "time ".fg(MUTED),
        format!("{:02}:{:02} ", seconds / 60, seconds % 60).into(),
    ]);
    frame.render_widget(left, area);
    frame.render_widget(right.alignment(Alignment::Right), area);
}

fn ms(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.2}", ns as f64 / 1e6),
        1_000_000..100_000_000 => format!("{:.1}", ns as f64 / 1e6),
        _ => format!("{:.0}", ns as f64 / 1e6),
    }
}

/// A number to the right, red where it is above the goal.
fn latency(ns: Option<u64>, goal_ns: u64) -> Cell<'static> {
    let text = ns.map_or_else(|| "-".to_owned(), ms);
    let line = Line::from(text).alignment(Alignment::Right);
    let late = ns.is_some_and(|ns| ns > goal_ns);
    Cell::from(if late { line.fg(BAD).bold() } else { line })
}

fn number(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

/// The state in a word or two, and its colour.
fn state(chain: &ChainStatus) -> (&str, Color) {
    match chain.state.as_str() {
        "guaranteed" => ("kept", GOOD),
        "degraded" => ("degraded", WARN),
        "not_analysable" => ("not analysable", WARN),
        "not_found" => ("not found", BAD),
        "refuted" => ("refuted", BAD),
        "not_measurable" => ("not measurable", WARN),
        "keepable" => ("could be kept", GOOD),
        other => (other, MUTED),
    }
}

fn draw_chains(frame: &mut Frame<'_>, area: Rect, chains: &[ChainStatus]) {
    let name = chains.iter().map(|chain| chain.name.chars().count()).max().unwrap_or(0).clamp(5, 24) as u16;
    let widths = [
        Constraint::Length(name),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Fill(1),
    ];
    let heads = ["goal", "bound", "worst", "p99", "last", "late / all"];
    let heads = heads.map(|head| Cell::from(Line::from(head).alignment(Alignment::Right)));
    let first = std::iter::once(Cell::from("chain"));
    let header = Row::new(first.chain(heads).chain(std::iter::once(Cell::from("state")))).fg(MUTED);
    let rows = chains.iter().map(|chain| {
        let goal = chain.goal_ns;
        let (word, colour) = state(chain);
        let why = match chain.state.as_str() {
            "guaranteed" => chain.bound_by.as_str(),
            _ => chain.why.as_str(),
        };
        let late = format!("{} / {}", chain.violations, chain.completions);
        let late = if chain.violations > 0 { late.fg(BAD) } else { Span::raw(late) };
        Row::new([
            Cell::from(chain.name.clone()).bold(),
            number(ms(goal)),
            latency(chain.bound_ns, goal),
            latency((chain.completions > 0).then_some(chain.worst_ns), goal),
            latency(chain.p99_ns, goal),
            latency(chain.last_ns, goal),
            Cell::from(Line::from(late).alignment(Alignment::Right)),
            Cell::from(Line::from(vec![word.to_owned().fg(colour).bold(), format!("  {why}").fg(MUTED)])),
        ])
    });
    let table = Table::new(rows, widths).header(header).column_spacing(1);
    frame.render_widget(table.block(card("chains, milliseconds")), area);
}

/// Reserved shares by where they may run.
fn by_core(reservations: &[ReservationStatus]) -> BTreeMap<&str, f64> {
    let mut shares = BTreeMap::new();
    for one in reservations {
        *shares.entry(one.cpus.as_str()).or_insert(0.0) += one.bandwidth();
    }
    shares
}

/// A bar of `width` characters: `share` of it full, with a mark at `limit`.
fn bar(share: f64, limit: f64, width: usize) -> String {
    let at = |part: f64| ((part.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    let (full, mark) = (at(share), at(limit).saturating_sub(1));
    let character = |place: usize| match place {
        place if place < full => '█',
        place if place == mark => '│',
        _ => '·',
    };
    (0..width).map(character).collect()
}

fn draw_cores(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let block = card("reserved, by core");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let shares = by_core(&status.reservations);
    if shares.is_empty() {
        frame.render_widget("nothing is reserved".fg(MUTED), inner);
        return;
    }
    let width = usize::from(inner.width).saturating_sub(18).max(4);
    let limit = if status.most_bandwidth > 0.0 { status.most_bandwidth } else { 1.0 };
    let line = |(cpus, share): (&str, f64)| {
        let colour = if share > limit { BAD } else { Color::Cyan };
        Line::from(vec![
            Span::raw(format!("CPU {cpus:<5} ")),
            bar(share, limit, width).fg(colour),
            Span::raw(format!(" {:5.1} %", share * 100.0)),
        ])
    };
    let lines: Vec<Line<'_>> = shares.into_iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_reservations(frame: &mut Frame<'_>, area: Rect, reservations: &[ReservationStatus]) {
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(5),
        Constraint::Length(18),
        Constraint::Length(8),
        Constraint::Length(8),
    ];
    let heads = ["thread", "CPU", "budget", "share", "overruns"];
    let heads = heads.map(|head| Cell::from(Line::from(head).alignment(Alignment::Right)));
    let header = Row::new(std::iter::once(Cell::from("reservation")).chain(heads)).fg(MUTED);
    let available = usize::from(area.height.saturating_sub(3));
    let rows = reservations.iter().take(available).map(|one| {
        let overruns = one.overruns.to_string();
        let overruns = if one.overruns > 0 { overruns.fg(WARN) } else { Span::raw(overruns) };
        Row::new([
            Cell::from(one.name.clone()),
            number(one.tid.to_string()),
            number(one.cpus.clone()),
            number(format!("{} of {} ms", ms(one.budget_ns), ms(one.period_ns))),
            number(format!("{:.1} %", one.bandwidth() * 100.0)),
            Cell::from(Line::from(overruns).alignment(Alignment::Right)),
        ])
    });
    let hidden = reservations.len().saturating_sub(available);
    let title = match hidden {
        0 => "reservations".to_owned(),
        hidden => format!("reservations, {hidden} more not shown"),
    };
    let table = Table::new(rows, widths).header(header).column_spacing(1);
    frame.render_widget(table.block(card(&title)), area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let block = card("last decisions");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let different = status.differences.iter().map(|words| format!("NOT AS ASKED: {words}").fg(BAD).into());
    let mut lines: Vec<Line<'_>> = different.collect();
    let available = usize::from(inner.height).saturating_sub(lines.len());
    let from = status.recent.len().saturating_sub(available);
    lines.extend(status.recent[from..].iter().map(|line| Line::from(line.as_str())));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let Cost { cpu_share, last_analysis_ns, .. } = status.cost;
    let mut spans = vec![" q".bold(), " quit   ".into()];
    if status.lost > 0 {
        spans.push(format!("{} EVENTS LOST   ", status.lost).fg(BAD));
    }
    spans.push(
        format!(
            "{} plans, {} repeated, analysis {} ms   {} processes, {} callbacks, {} events   own CPU {:.2} %",
            status.plans,
            status.cached,
            ms(last_analysis_ns),
            status.processes,
            status.callbacks,
            status.events,
            cpu_share * 100.0
        )
        .fg(MUTED),
    );
    frame.render_widget(Line::from(spans), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn chain(name: &str, state: &str, goal_ms: u64, bound_ms: Option<u64>, worst_ms: u64) -> ChainStatus {
        let ns = |ms: u64| ms * 1_000_000;
        ChainStatus {
            name: name.into(),
            goal_ns: ns(goal_ms),
            state: state.into(),
            why: if state == "guaranteed" { String::new() } else { "it asks for more than is left".into() },
            bound_ns: bound_ms.map(ns),
            bound_by: if bound_ms.is_some() { "RTSS'21".into() } else { String::new() },
            completions: 300,
            violations: if worst_ms > goal_ms { 4 } else { 0 },
            worst_ns: ns(worst_ms),
            last_ns: Some(ns(worst_ms / 2)),
            p99_ns: Some(ns(worst_ms - 1)),
            ..ChainStatus::default()
        }
    }

    fn status() -> Status {
        let reservation = |name: &str, tid, cpus: &str, budget_ms: u64, overruns| ReservationStatus {
            name: name.into(),
            tid,
            cpus: cpus.into(),
            budget_ns: budget_ms * 1_000_000,
            period_ns: 10_000_000,
            overruns,
            ..ReservationStatus::default()
        };
        Status {
            running_ns: 83_000_000_000,
            mode: Some("exclusive cpusets".into()),
            plans: 13,
            cached: 9,
            holds: true,
            chains: vec![
                chain("heartbeat", "guaranteed", 100, Some(28), 6),
                chain("pilot", "guaranteed", 125, Some(75), 41),
                chain("tracker", "degraded", 990, None, 3807),
                chain("odometry", "not_analysable", 75, None, 20),
            ],
            reservations: vec![
                reservation("controller", 4711, "1", 4, 0),
                reservation("driver", 4712, "1", 2, 3),
                reservation("amcl", 4713, "0", 3, 0),
            ],
            most_bandwidth: 0.95,
            recent: (0..30).map(|i| format!("12:00:{i:02} plan {i}: 3 of 4 chains guaranteed")).collect(),
            cost: Cost { cpu_share: 0.016, last_analysis_ns: 7_400_000, ..Cost::default() },
            events: 120_000,
            processes: 7,
            callbacks: 19,
            ..Status::default()
        }
    }

    fn screen(status: &Status, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, status)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width.max(1)));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn chains_budgets_and_decisions_are_shown() {
        let text = screen(&status(), (120, 34));
        println!("{text}");
        for expected in [
            "all reservations hold",
            "exclusive cpusets",
            "01:23",
            "kept  RTSS'21",
            "degraded  it asks for more",
            "not analysable",
            "3807",
            "4 / 300",
            "CPU 1",
            "60.0 %",
            "30.0 %",
            "4.0 of 10.0 ms",
            "plan 29",
            "own CPU 1.60 %",
            "analysis 7.4 ms",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        assert!(!text.contains("plan 3:"), "the newest lines are shown, not the oldest\n{text}");
    }

    #[test]
    fn what_is_wrong_is_reported() {
        let mut wrong = status();
        wrong.holds = false;
        wrong.lost = 17;
        wrong.differences = vec!["thread 4711: requested 4 ms, in effect none".into()];
        let text = screen(&wrong, (120, 34));
        for expected in ["NOT ALL RESERVATIONS HOLD", "17 EVENTS LOST", "NOT AS ASKED: thread 4711"] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        let observing = Status { observes: true, reservations: Vec::new(), ..status() };
        let text = screen(&observing, (120, 34));
        assert!(text.contains("observes only") && text.contains("nothing is reserved"), "{text}");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_and_marks_the_limit() {
        assert_eq!(bar(0.5, 0.9, 10), "█████···│·");
        assert_eq!(bar(1.7, 0.9, 4), "████");
        assert_eq!(bar(f64::NAN, f64::NAN, 4), "│···");
    }

    #[test]
    fn no_size_panics() {
        let mut many = status();
        many.chains = vec![many.chains[0].clone(); 100];
        many.reservations = vec![many.reservations[0].clone(); 100];
        for size in [(1, 1), (20, 5), (80, 24), (300, 90)] {
            screen(&many, size);
            screen(&Status::default(), size);
        }
    }
}
