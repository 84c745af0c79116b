//! The live view: drawing is a pure function of the report, so that tests draw into a buffer.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Table};

use crate::report::{LoopReport, Report};

const MUTED: Color = Color::DarkGray;
const GOOD: Color = Color::Green;
const WARN: Color = Color::Yellow;
const BAD: Color = Color::Red;

fn card(title: &str) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(MUTED).title(format!(" {title} "))
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, report: &Report) {
    let [head, threads, lower, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(6),
        Constraint::Length(10),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [totals, worst] = Layout::horizontal([Constraint::Percentage(45), Constraint::Fill(1)]).areas(lower);
    draw_head(frame, head, report);
    draw_threads(frame, threads, &report.threads);
    draw_totals(frame, totals, report);
    draw_worst(frame, worst, report);
    let cost = format!(
        "   watcher {:.1} % of a CPU, {} events, {} lost",
        report.watcher_cpu_percent, report.events, report.lost_events
    );
    frame.render_widget(
        Line::from(vec![" q".bold(), " ends and keeps the results".into(), cost.fg(MUTED)]),
        foot,
    );
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let late: u64 = report.threads.iter().map(|thread| thread.late).sum();
    let own = match report.watcher_lateness_share {
        Some(share) => format!("   of which takt itself: {:.1} %", 100.0 * share),
        None => String::new(),
    };
    let state = match (&report.untraced, late) {
        (Some(_), _) => "NO KERNEL EVENTS: rates only".fg(WARN).bold(),
        (None, 0) => "nothing late".fg(GOOD),
        (None, late) => format!("{late} late cycles").fg(BAD).bold(),
    };
    let seconds = report.seconds as u64;
    let time = format!("   {:02}:{:02}", seconds / 60, seconds % 60);
    let line = vec![
        " Takt ".bold().reversed(),
        format!(" watch: {}   ", report.target).bold(),
        state,
        own.fg(MUTED),
        time.fg(MUTED),
    ];
    frame.render_widget(Line::from(line), area);
}

/// A time with three digits and its unit.
pub fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.3} ms", us / 1e3),
        us => format!("{us:.1} us"),
    }
}

/// A time that may be negative.
pub fn signed(us: f64) -> String {
    if us < 0.0 { format!("-{}", time(-us)) } else { time(us) }
}

fn late_style(thread: &LoopReport) -> Color {
    match thread.late_share() {
        0.0 => GOOD,
        share if share < 0.01 => WARN,
        _ => BAD,
    }
}

fn draw_threads(frame: &mut Frame<'_>, area: Rect, threads: &[LoopReport]) {
    let head = [
        "thread",
        "period",
        "rate Hz",
        "late",
        "missed",
        "wake P99",
        "worst",
        "response P99",
        "CPU %",
        "policy",
        "CPUs",
    ];
    let rows = threads.iter().map(|thread| {
        Row::new(vec![
            Cell::from(format!("{} ({})", thread.name, thread.tid)),
            Cell::from(thread.period_us.map_or("none".to_owned(), time)),
            Cell::from(format!("{:.1}", thread.rate_hz)),
            Cell::from(thread.late.to_string()).fg(late_style(thread)),
            Cell::from(thread.missed.to_string()),
            Cell::from(time(thread.lateness_us.p99)),
            Cell::from(time(thread.lateness_us.worst)),
            Cell::from(time(thread.response_us.p99)),
            Cell::from(format!("{:.1}", thread.cpu_percent)),
            Cell::from(thread.policy.clone()),
            Cell::from(thread.cpus.clone()),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Length(6),
        Constraint::Length(10),
        Constraint::Length(6),
    ];
    let table = Table::new(rows, widths).header(Row::new(head).fg(MUTED)).block(card("threads"));
    frame.render_widget(table, area);
}

fn draw_totals(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let lines: Vec<Line<'_>> = report
        .totals
        .iter()
        .map(|total| {
            let bar = "█".repeat((total.share * 10.0).round() as usize);
            Line::from(vec![
                Span::raw(format!("{:>4.0} % ", 100.0 * total.share)).bold(),
                Span::raw(format!("{bar:<10} ")).fg(BAD),
                Span::raw(format!("{} {}", total.cause.title(), total.who)),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(card("of all lateness")), area);
}

fn draw_worst(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let mut worst: Vec<(&LoopReport, _)> = report
        .threads
        .iter()
        .flat_map(|thread| thread.windows.iter().map(move |late| (thread, late)))
        .collect();
    worst.sort_by(|a, b| {
        b.1.response_us.max(b.1.lateness_us).total_cmp(&a.1.response_us.max(a.1.lateness_us))
    });
    let lines: Vec<Line<'_>> = worst
        .iter()
        .take(usize::from(area.height))
        .map(|(thread, late)| {
            Line::from(vec![
                Span::raw(format!("{:>10} ", time(late.response_us.max(late.lateness_us)))).fg(BAD),
                Span::raw(format!("{}: {} {}", thread.name, late.cause.title(), late.who)),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(card("worst cycles")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::report::tests::thread;
    use crate::{Settings, Target, Watcher};

    fn shown(report: &Report, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, report)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn threads_are_shown_and_any_size_is_drawn() {
        let mut report = Watcher::new(Target::Machine, Settings::default()).report();
        assert!(shown(&report, 120, 30).contains("nothing late"));
        report.threads.push(thread());
        let screen = shown(&report, 140, 30);
        for part in ["control (8)", "2.000 ms", "499.5", "fifo:80", "12 late cycles"] {
            assert!(screen.contains(part), "{part} is not on\n{screen}");
        }
        for (width, height) in [(1, 1), (3, 40), (40, 3), (300, 5)] {
            shown(&report, width, height);
        }
    }
}
