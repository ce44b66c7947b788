//! The terminal: taken over, drawn to, and left as it was, whatever ends the program.

use std::{
    io::{self, IsTerminal, Write, stdout},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crossterm::{
    cursor::{Hide, Show},
    event::{self, Event},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Terminal, backend::CrosstermBackend};
use thiserror::Error;

use crate::{
    draw::{Paint, draw},
    screen::{Effect, Screen},
    source::Source,
};

/// How long a key or a number may wait until it is seen.
const WAIT: Duration = Duration::from_millis(100);

/// Why there is no screen.
#[derive(Debug, Error)]
pub enum TopError {
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Whether both standard input and standard output are terminals.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && stdout().is_terminal()
}

/// Shows what a source says, until the user leaves, `is_stopped` says so, or the terminal is gone. Then the terminal is
/// as it was.
///
/// # Errors
///
/// The terminal cannot be used.
pub fn run(source: &mut dyn Source, is_stopped: &dyn Fn() -> bool) -> Result<(), TopError> {
    restore_after_panic();
    let taken = Taken::new()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    let paint = Paint::from_env();
    let mut screen = Screen::default();
    while !is_stopped() && TAKEN.load(Ordering::Relaxed) {
        while let Some(update) = source.next() {
            screen.take(update);
        }
        if screen.held.is_none() {
            (screen.now, screen.kind) = (source.now(), source.kind());
        }
        terminal.draw(|frame| {
            let area = frame.area();
            draw(&mut screen, frame.buffer_mut(), area, paint);
        })?;
        if is_left(&mut screen, source)? {
            break;
        }
    }
    drop(taken);
    Ok(())
}

/// Handles all keys that have come. Returns whether the user leaves.
fn is_left(screen: &mut Screen, source: &mut dyn Source) -> io::Result<bool> {
    let mut wait = WAIT;
    while event::poll(wait)? {
        wait = Duration::ZERO;
        // Another size needs nothing but to draw.
        let Event::Key(key) = event::read()? else { continue };
        match screen.press(key) {
            Effect::Draw => {}
            Effect::Quit => return Ok(true),
            Effect::Ask(question, is_open) => screen.can_ask = source.ask(&question, is_open),
        }
    }
    Ok(false)
}

/// Whether the terminal is not as it was.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is taken over; given back on drop.
struct Taken;

impl Taken {
    fn new() -> io::Result<Self> {
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::Relaxed);
        let taken = Self;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back, once. It may be gone: then there is nothing to give back.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = stdout().flush();
    }
}

/// Lets a panic of any thread give the terminal back before its message is printed.
fn restore_after_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}
