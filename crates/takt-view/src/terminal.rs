//! A screen of one's own in the terminal, given back on every way out.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::is_raw_mode_enabled;
use ratatui::style::Color;
use ratatui::widgets::{Block, BorderType};
use takt_rt::thread::Handle;

use crate::error::Error;
use crate::urgency::{self, Urgency};

/// The colour of what matters less.
pub const MUTED: Color = Color::DarkGray;

/// A box with a title.
pub fn card(title: &str) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(MUTED).title(format!(" {title} "))
}

/// Time between two drawings. Keys are answered at once.
const PERIOD: Duration = Duration::from_millis(200);

/// End of the terminal view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewExit {
    /// The user pressed `q`, Escape or Ctrl-C. Raw mode turns Ctrl-C into a key, so no signal was
    /// sent.
    UserQuit,
    /// The `stop` flag was set, or a panic on another thread has taken the terminal back.
    Stopped,
}

/// Whether a screen can be shown at all.
pub fn is_possible() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Draws a screen of any kind several times a second until the user quits or `stop` is set, and
/// then restores the terminal. A panic on any thread restores it, too, before the message is
/// printed.
///
/// # Errors
/// [`Error::Terminal`] where standard output or input is not a terminal, or it fails.
pub fn show(stop: &AtomicBool, mut draw: impl FnMut(&mut Frame<'_>)) -> Result<ViewExit, Error> {
    if !is_possible() {
        let text = "standard input and output are not both terminals";
        return Err(Error::Terminal(std::io::Error::other(text)));
    }
    let _restore = Restore;
    let mut terminal = ratatui::try_init().map_err(Error::Terminal)?;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(ViewExit::Stopped);
        }
        // A panic on another thread has given the terminal back: drawing on would cover its
        // message.
        if !is_raw_mode_enabled().map_err(Error::Terminal)? {
            return Ok(ViewExit::Stopped);
        }
        terminal.draw(&mut draw).map_err(Error::Terminal)?;
        if event::poll(PERIOD).map_err(Error::Terminal)?
            && let Event::Key(key) = event::read().map_err(Error::Terminal)?
            && quits(&key)
        {
            return Ok(ViewExit::UserQuit);
        }
    }
}

/// Whether a key ends the view.
fn quits(key: &KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
            KeyCode::Char('c' | 'C') => control,
            _ => false,
        }
}

/// Gives the terminal back on every way out.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// A terminal view in its own thread `view-terminal`. Dropping it stops it and restores the
/// terminal.
pub struct TerminalView {
    stop: Arc<AtomicBool>,
    exit: Arc<AtomicBool>,
    thread: Option<Handle>,
    result: std::sync::mpsc::Receiver<Result<ViewExit, Error>>,
}

impl TerminalView {
    /// Starts the thread, which calls `draw` several times a second.
    ///
    /// # Errors
    /// [`Error::Thread`] or [`Error::Idle`] where the thread cannot be made or given its urgency.
    /// Errors of the terminal are returned by [`Self::stop`].
    pub fn start(urgency: Urgency, draw: impl FnMut(&mut Frame<'_>) + Send + 'static) -> Result<Self, Error> {
        let (stop, exit) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (send, result) = std::sync::mpsc::sync_channel(1);
        let (its_stop, its_exit) = (stop.clone(), exit.clone());
        let thread = urgency::spawn("view-terminal", urgency, move || {
            // The receiver may be gone when the view is dropped; then nobody asks for the result.
            let _ = send.send(show(&its_stop, draw));
            its_exit.store(true, Ordering::Release);
        })?;
        Ok(Self { stop, exit, thread: Some(thread), result })
    }

    /// Whether the view has ended, because the user quit or the terminal failed; one load.
    pub fn has_ended(&self) -> bool {
        self.exit.load(Ordering::Acquire)
    }

    /// Ends the view, restores the terminal and shows how the view ended.
    ///
    /// # Errors
    /// [`Error::Terminal`] where the terminal could not be used.
    pub fn stop(mut self) -> Result<ViewExit, Error> {
        self.end();
        self.result.try_recv().unwrap_or(Ok(ViewExit::Stopped))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A view that died must not take the cell with it.
            let _ = thread.join();
        }
    }
}

impl Drop for TerminalView {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_quit() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert!(quits(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(quits(&key(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(quits(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!quits(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!quits(&key(KeyCode::Char('x'), KeyModifiers::CONTROL)));
    }
}
