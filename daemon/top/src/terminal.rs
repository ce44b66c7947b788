//! Takes over the terminal, draws on it, and restores it however the program ends.

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
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use thiserror::Error;

use crate::{
    draw::{Paint, draw},
    screen::{Effect, Screen},
    source::Source,
};

/// How long a key or an update may wait until it is handled.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Why there is no screen.
#[derive(Debug, Error)]
pub enum TopError {
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Returns true if both standard input and standard output are terminals.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && stdout().is_terminal()
}

/// Shows a source until the user quits, `is_stopped` returns true, or the terminal is closed. Restores the terminal
/// then.
///
/// # Errors
///
/// The terminal cannot be used.
pub fn run(source: &mut dyn Source, is_stopped: &dyn Fn() -> bool) -> Result<(), TopError> {
    restore_after_panic();
    let taken = Taken::new()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    let paint = Paint::from_env();
    let mut screen = Screen { can_ask: source.knows_keys(), ..Screen::default() };
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
        if handle_keys(&mut screen, source)? {
            break;
        }
    }
    drop(taken);
    Ok(())
}

/// The input of a terminal.
enum Input {
    Nothing,
    Keys,
    /// The terminal is gone, for example because a connection ended.
    Closed,
}

/// Waits a moment for keys.
fn wait_for_input() -> io::Result<Input> {
    let stdin = io::stdin();
    let mut of_stdin = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut of_stdin, Some(&WAIT)) {
        // A signal, such as the one for a change of the size.
        Ok(0) | Err(Errno::INTR) => Ok(Input::Nothing),
        Ok(_) if of_stdin[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) => {
            Ok(Input::Closed)
        }
        Ok(_) => Ok(Input::Keys),
        Err(error) => Err(error.into()),
    }
}

/// Handles all waiting keys. Returns whether the user quits, or the terminal is gone.
fn handle_keys(screen: &mut Screen, source: &mut dyn Source) -> io::Result<bool> {
    let has_keys = match wait_for_input()? {
        Input::Closed => return Ok(true),
        Input::Keys => true,
        Input::Nothing => false,
    };
    // crossterm never returns from reading a terminal that is gone. So it reads only if there are keys.
    while has_keys && event::poll(Duration::ZERO)? {
        // After a change of the size it is enough to draw again.
        let Event::Key(key) = event::read()? else { continue };
        match screen.press(key) {
            Effect::Draw => {}
            Effect::Quit => return Ok(true),
        }
    }
    for request in screen.requests.drain(..) {
        source.ask(request);
    }
    Ok(false)
}

/// True while the terminal is taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes over the terminal until it is dropped.
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

/// Restores the terminal, once. If the terminal is closed already, this does nothing.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = stdout().flush();
    }
}

/// Makes a panic of any thread restore the terminal before its message is printed.
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
