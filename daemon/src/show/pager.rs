//! Shows text that is longer than the screen in the user's pager, as `git` and `man` do.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    process::{Command, Stdio},
};

use weir_system::{
    screen::{self, Screen},
    signals, terminal,
};

use super::style;

/// The user's pager: a command for the shell. Empty means none.
const PAGER: &str = "PAGER";
/// Options of `less`, unless the user has set some: quit if the text fits, keep colours, leave the text on the screen.
const LESS: (&str, &str) = ("LESS", "FRX");
/// The exit code of a shell for a command that does not exist.
const NOT_FOUND: i32 = 127;

/// Writes text to standard output, or to the pager if the text is longer than the terminal.
///
/// # Errors
///
/// Standard output cannot be written to.
pub fn show(text: &[u8]) -> io::Result<()> {
    let out = io::stdout();
    let mut clean = Vec::with_capacity(text.len());
    let form = if style().color { screen::Form::Colored } else { screen::Form::Text };
    Screen::new(&mut clean, form).write_all(text)?;
    let text = &clean[..];
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let is_long = out.is_terminal() && terminal::size(&out).is_some_and(|size| lines >= size.lines);
    if is_long && is_paged(text) {
        return Ok(());
    }
    out.lock().write_all(text)
}

/// Shows the text in the pager, if there is one. Returns whether there was.
fn is_paged(text: &[u8]) -> bool {
    let Some(mut command) = command(env::var_os(PAGER)) else { return false };
    if env::var_os(LESS.0).is_none() {
        command.env(LESS.0, LESS.1);
    }
    // The pager handles Ctrl-C itself. Without this, Ctrl-C would end weir, and the pager and the shell would share the
    // terminal.
    let _signals = signals::listen(|| {});
    let Ok(mut pager) = command.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = pager.stdin.take() {
        // The pager may end before it has read everything.
        let _ = input.write_all(text);
    }
    pager.wait().is_ok_and(|status| status.code() != Some(NOT_FOUND))
}

/// The pager of the user, or `less`.
fn command(pager: Option<OsString>) -> Option<Command> {
    match pager {
        Some(none) if none.is_empty() || none == "cat" => None,
        Some(own) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(own);
            Some(shell)
        }
        None => Some(Command::new("less")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pager_of_the_user_is_preferred_and_may_be_off() {
        let program =
            |pager: Option<&str>| command(pager.map(OsString::from)).map(|command| command.get_program().to_owned());
        assert_eq!((program(None), program(Some("more -s"))), (Some("less".into()), Some("sh".into())));
        assert_eq!((program(Some("")), program(Some("cat"))), (None, None));
    }
}
