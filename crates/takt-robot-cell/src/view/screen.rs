//! Content of the terminal. Drawing is a pure function of the state, so tests draw into a buffer.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Bar, BarChart, BarGroup, Block, BorderType, Gauge, Paragraph, Row, Table};
use takt_perception::FrameHealth;
use takt_view::terminal::{MUTED, card};

use crate::ssm::Light;
use crate::view::histogram::ReactionHistogram;
use crate::view::status::{CameraStatus, CellStatus, ThreadSummary, Zone};

/// A state older than this is not shown as if it were live.
const STALE: Duration = Duration::from_millis(1500);

/// Content of one drawing.
pub struct Shown<'a> {
    /// Heading.
    pub title: &'a str,
    /// Names of the cameras.
    pub names: &'a [String],
    /// The state.
    pub status: &'a CellStatus,
    /// Sequence number of the state; 0 means that there is none yet.
    pub sequence: u64,
    /// Age of the state.
    pub age: Duration,
}

impl Shown<'_> {
    fn is_live(&self) -> bool {
        self.sequence > 0 && self.age < STALE
    }
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>) {
    let cameras = shown.names.len() as u16;
    let [head, banner, state, table, histogram, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(6),
        Constraint::Length(cameras + 3),
        Constraint::Min(5),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, shown);
    draw_banner(frame, banner, shown);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(state);
    draw_safety(frame, left, shown.status);
    draw_robot(frame, right, shown.status);
    draw_cameras(frame, table, shown);
    draw_histogram(frame, histogram, shown.status);
    let note = Line::from(vec![" q".bold(), " quit   ".into(), "Not a certified safety function.".fg(MUTED)]);
    frame.render_widget(note, foot);
    if !shown.is_live() {
        // Old values must not look live.
        let area = Rect { y: state.y, height: foot.y.saturating_sub(state.y), ..state };
        frame.buffer_mut().set_style(area, Style::new().fg(MUTED).bg(Color::Reset).dim());
    }
}

fn colour(zone: Zone) -> Color {
    let [r, g, b] = zone.colour();
    Color::Rgb(r, g, b)
}

fn metres(distance: Option<f32>) -> String {
    match distance {
        None => "nobody".into(),
        Some(d) if d.is_finite() => format!("{d:.2} m"),
        Some(_) => "invalid".into(),
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, shown: &Shown<'_>) {
    let status = shown.status;
    let seconds = status.elapsed_s.max(0.0) as u64;
    let left = Line::from(vec![" Takt ".bold().reversed(), format!(" {}", shown.title).bold()]);
    let right = Line::from(vec![
        "policy ".fg(MUTED),
        Span::raw(status.policy.to_string()).bold(),
        "   time ".fg(MUTED),
        format!("{:02}:{:02} ", seconds / 60, seconds % 60).into(),
    ]);
    frame.render_widget(left, area);
    frame.render_widget(right.alignment(Alignment::Right), area);
}

/// The light as a banner over the whole width: colour and word.
fn draw_banner(frame: &mut Frame<'_>, area: Rect, shown: &Shown<'_>) {
    let status = shown.status;
    let (background, text) = if shown.sequence == 0 {
        (Color::Gray, "WAITING for the cell: no state received yet".to_owned())
    } else if !shown.is_live() {
        (Color::Gray, format!("NO NEW STATE for {:.1} s: the values below are old", shown.age.as_secs_f32()))
    } else {
        match status.light {
            Light::Green if !status.stop => (colour(Zone::Clear), "● GREEN   full speed".to_owned()),
            Light::Orange if !status.stop => (colour(Zone::Reduce), "● ORANGE   reduced speed".to_owned()),
            _ => (colour(Zone::Stop), format!("● RED   STOPPED   {}", status.stop_reason)),
        }
    };
    let style = Style::new().fg(Color::Black).bg(background).add_modifier(Modifier::BOLD);
    frame.buffer_mut().set_style(area, style);
    let middle = Rect { y: area.y + area.height / 2, height: area.height.min(1), ..area };
    frame.render_widget(Paragraph::new(text).alignment(Alignment::Center).style(style), middle);
}

fn draw_safety(frame: &mut Frame<'_>, area: Rect, status: &CellStatus) {
    let block = card("speed and separation");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [speed, separation, stop, slow] = Layout::vertical([Constraint::Length(1); 4]).areas(inner);
    let fraction = f64::from(status.speed_fraction);
    let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
    let [name, bar] = Layout::horizontal([Constraint::Length(18), Constraint::Fill(1)]).areas(speed);
    frame.render_widget("Speed fraction", name);
    let gauge = Gauge::default()
        .ratio(fraction)
        .label(format!("{:.0} %", fraction * 100.0))
        .gauge_style(Style::new().fg(Color::Cyan).bg(Color::Rgb(40, 46, 56)));
    frame.render_widget(gauge, bar);
    let zone = status.separation_m.map_or(Zone::Clear, |d| status.zone(d));
    pair(frame, separation, "Separation", Span::raw(metres(status.separation_m)).fg(colour(zone)).bold());
    pair(frame, stop, "Stops below", metres(Some(status.protective_distance_m)).into());
    pair(frame, slow, "Slows below", metres(Some(status.reduce_distance_m)).into());
}

fn pair(frame: &mut Frame<'_>, area: Rect, name: &str, value: Span<'_>) {
    frame.render_widget(Line::from(vec![Span::raw(format!("{name:<18}")), value]), area);
}

fn draw_robot(frame: &mut Frame<'_>, area: Rect, status: &CellStatus) {
    let block = card("robot and threads");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows: [Rect; 4] = Layout::vertical([Constraint::Length(1); 4]).areas(inner);
    let robot = &status.robot;
    let link = if robot.connected {
        "connected".fg(colour(Zone::Clear))
    } else {
        "LOST".fg(colour(Zone::Stop)).bold()
    };
    pair(frame, rows[0], "Robot link", link);
    pair(frame, rows[1], "Mode", format!("{:?}, safety {:?}", robot.robot_mode, robot.safety_mode).into());
    let [x, y, z, ..] = robot.tcp_pose;
    let speed = robot.tcp_speed_m_s;
    pair(frame, rows[2], "TCP", format!("{x:.2} {y:.2} {z:.2} m, {speed:.2} m/s").into());
    let ThreadSummary { total, realtime, fallback, deviating } = status.threads;
    let threads = if deviating > 0 {
        format!("{deviating} of {total} NOT as asked").fg(colour(Zone::Reduce)).bold()
    } else {
        format!("{total}, {realtime} real-time, {fallback} fallback").into()
    };
    pair(frame, rows[3], "Threads", threads);
}

fn health_word(health: FrameHealth) -> &'static str {
    match health {
        FrameHealth::Ok => "ok",
        FrameHealth::NoFrame => "no frame",
        FrameHealth::EmptyColour => "colour empty",
        FrameHealth::EmptyDepth => "depth empty",
        FrameHealth::ImpossibleDepth => "depth impossible",
        FrameHealth::WrongSize => "wrong size",
        FrameHealth::NoPose => "no pose",
        FrameHealth::InferenceFailed => "inference failed",
        FrameHealth::Frozen => "image frozen",
        FrameHealth::FutureStamp => "timestamp in the future",
        FrameHealth::StampBackwards => "stamp backwards",
        FrameHealth::SequenceRepeated => "number repeated",
        FrameHealth::SequenceBackwards => "number backwards",
        FrameHealth::StreamsApart => "colour and depth too far apart",
        FrameHealth::Unseen => "unseen",
        FrameHealth::WrongScale => "wrong scale",
    }
}

fn draw_cameras(frame: &mut Frame<'_>, area: Rect, shown: &Shown<'_>) {
    let silent = CameraStatus::default();
    let milliseconds = |value: Option<f32>| value.map_or("       -".to_owned(), |ms| format!("{ms:>8.1}"));
    let rows = shown.names.iter().enumerate().map(|(i, name)| {
        let camera = shown.status.cameras.get(i).unwrap_or(&silent);
        let zone = camera.separation_m.map_or(Zone::Clear, |d| shown.status.zone(d));
        let health = Span::raw(health_word(camera.health));
        Row::new(vec![
            Span::raw(name.clone()),
            if camera.health == FrameHealth::Ok { health } else { health.fg(colour(Zone::Stop)).bold() },
            if camera.health == FrameHealth::Ok {
                Span::raw(metres(camera.separation_m)).fg(colour(zone))
            } else {
                "blind".fg(colour(Zone::Stop)).bold()
            },
            format!("{:>7}", camera.objects).into(),
            format!("{:>8}", camera.frames).into(),
            format!("{:>7}", camera.dropped).into(),
            milliseconds(camera.last_reaction_ms).into(),
            milliseconds(camera.worst_reaction_ms).into(),
        ])
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(8),
    ];
    let head =
        Row::new(["camera", "state", "separation", "objects", "  frames", "dropped", " last ms", "worst ms"]);
    frame.render_widget(Table::new(rows, widths).header(head.style(MUTED)).block(card("cameras")), area);
}

/// The histogram, with as many bins merged as the width asks for. Bars beyond the deadline are red.
fn draw_histogram(frame: &mut Frame<'_>, area: Rect, status: &CellStatus) {
    let reaction = &status.reaction;
    let title = if reaction.count == 0 {
        format!(" reaction time: none yet, deadline {:.1} ms ", reaction.deadline_ms)
    } else {
        format!(
            " reaction time: mean {:.1}  worst {:.1}  last {:.1}  deadline {:.1} ms, {} of {} missed ",
            reaction.mean_ms,
            reaction.worst_ms,
            reaction.last_ms,
            reaction.deadline_ms,
            reaction.misses,
            reaction.count
        )
    };
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(MUTED).title(title);
    let inner = block.inner(area);
    let shown = reaction.histogram.shown(reaction.deadline_ms);
    // A bar is as wide as its label, plus a gap.
    let bars = usize::from(inner.width / 5).max(1);
    let merged = shown.len().div_ceil(bars).max(1);
    let counts = &reaction.histogram.counts()[shown.clone()];
    let bars: Vec<Bar<'_>> = counts
        .chunks(merged)
        .enumerate()
        .map(|(i, counts)| {
            let edge = ReactionHistogram::edge_ms(shown.start + i * merged);
            let next = ReactionHistogram::edge_ms(shown.start + (i + 1) * merged);
            let late = edge >= reaction.deadline_ms;
            let holds_deadline = !late && next > reaction.deadline_ms;
            let zone = if late {
                Zone::Stop
            } else if holds_deadline {
                Zone::Reduce
            } else {
                Zone::Clear
            };
            let label = if edge < 9.95 { format!("{edge:.1}") } else { format!("{edge:.0}") };
            Bar::default()
                .value(counts.iter().map(|&count| u64::from(count)).sum())
                .text_value(String::new())
                .label(Line::from(label))
                .style(colour(zone))
        })
        .collect();
    let chart =
        BarChart::default().block(block).bar_width(4).bar_gap(1).data(BarGroup::default().bars(&bars));
    frame.render_widget(chart, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::status::{CameraList, Label, RobotStatus};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use takt_link_rtde::{RobotMode, SafetyMode};

    fn names() -> Vec<String> {
        ["front", "left", "right", "rear", "top"].map(String::from).to_vec()
    }

    fn status() -> CellStatus {
        let mut status = CellStatus {
            elapsed_s: 83.4,
            light: Light::Orange,
            speed_fraction: 0.3,
            separation_m: Some(1.23),
            protective_distance_m: 0.81,
            reduce_distance_m: 1.6,
            policy: Label::new("DL+RR"),
            cameras: CameraList::new(5),
            threads: ThreadSummary { total: 19, realtime: 7, fallback: 9, deviating: 1 },
            robot: RobotStatus {
                connected: true,
                robot_mode: RobotMode::Running,
                safety_mode: SafetyMode::Normal,
                tcp_pose: [0.4, -0.2, 0.5, 0.0, 0.0, 0.0],
                ..RobotStatus::default()
            },
            ..CellStatus::default()
        };
        for ms in [21.0, 22.0, 24.5, 30.0, 52.0] {
            status.reaction.record(ms);
        }
        for (i, camera) in status.cameras.iter_mut().enumerate() {
            *camera = CameraStatus {
                health: if i == 3 { FrameHealth::EmptyDepth } else { FrameHealth::Ok },
                separation_m: (i == 1).then_some(1.23),
                frames: 2480 + i as u64,
                dropped: 7,
                worst_reaction_ms: Some(52.0),
                ..CameraStatus::default()
            };
        }
        status
    }

    fn drawn(status: &CellStatus, sequence: u64, age: Duration, size: (u16, u16)) -> Terminal<TestBackend> {
        let names = names();
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let shown = Shown { title: "test cell", names: &names, status, sequence, age };
        terminal.draw(|frame| draw(frame, &shown)).unwrap();
        terminal
    }

    fn screen(status: &CellStatus, sequence: u64, age: Duration, size: (u16, u16)) -> String {
        drawn(status, sequence, age, size).backend().to_string()
    }

    #[test]
    fn everything_is_on_an_ordinary_screen() {
        let text = screen(&status(), 9, Duration::ZERO, (100, 34));
        for expected in [
            "test cell",
            "DL+RR",
            "01:23",
            "ORANGE",
            "30 %",
            "1.23 m",
            "0.81 m",
            "1.60 m",
            "connected",
            "Running, safety Normal",
            "1 of 19 NOT as asked",
            "front",
            "2484",
            "depth empty",
            "blind",
            "nobody",
            "mean 29.9",
            "worst 52.0",
            "deadline 37.3",
            "1 of 5 missed",
            "Not a certified",
            "█",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }

    #[test]
    fn a_stop_says_why() {
        let mut status = status();
        status.light = Light::Red;
        status.stop = true;
        status.stop_reason = Label::new("camera rear: no frame for 130 ms");
        let text = screen(&status, 9, Duration::ZERO, (100, 34));
        assert!(text.contains("STOPPED   camera rear: no frame for 130 ms"), "{text}");
    }

    #[test]
    fn a_stopped_cell_is_never_shown_green() {
        let status = CellStatus { light: Light::Green, stop: true, ..status() };
        let text = screen(&status, 9, Duration::ZERO, (100, 34));
        assert!(text.contains("RED") && !text.contains("GREEN"), "{text}");
    }

    #[test]
    fn an_old_or_missing_state_is_not_shown_as_live() {
        let text = screen(&status(), 9, Duration::from_secs(3), (100, 34));
        assert!(text.contains("NO NEW STATE for 3.0 s") && !text.contains("ORANGE"), "{text}");
        let text = screen(&CellStatus::default(), 0, Duration::ZERO, (100, 34));
        assert!(text.contains("WAITING for the cell"), "{text}");
    }

    #[test]
    fn no_size_and_no_number_panics() {
        let mut broken = status();
        broken.speed_fraction = f32::NAN;
        broken.separation_m = Some(f32::NAN);
        broken.reaction.deadline_ms = f32::NAN;
        broken.elapsed_s = f64::NAN;
        for size in [(0, 0), (1, 1), (20, 5), (80, 24), (300, 90)] {
            drawn(&broken, 9, Duration::ZERO, size);
        }
    }
}
