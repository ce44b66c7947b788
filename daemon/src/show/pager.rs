//! Shows text that is longer than the screen in the user's pager, as `git` and `man` do.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    process::{Command, Stdio},
};

use weir_system::{signals, terminal};

/// The user's pager: a command for the shell. Empty means none.
const PAGER: &str = "PAGER";
/// Options of `less`, unless the user has some: leave if it fits, keep colours, leave the text on the screen.
const LESS: (&str, &str) = ("LESS", "FRX");
/// What a shell returns for a command that is not there.
const NOT_FOUND: i32 = 127;

/// Writes text to standard output; to the pager if that is a terminal with fewer lines.
///
/// # Errors
///
/// Standard output cannot be written to.
pub fn show(text: &[u8]) -> io::Result<()> {
    let out = io::stdout();
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let is_long = out.is_terminal() && terminal::size(&out).is_some_and(|size| lines >= size.lines);
    if is_long && is_paged(text) {
        return Ok(());
    }
    out.lock().write_all(text)
}

/// Returns whether there is a pager, which has then shown the text.
fn is_paged(text: &[u8]) -> bool {
    let Some(mut command) = command(env::var_os(PAGER)) else { return false };
    if env::var_os(LESS.0).is_none() {
        command.env(LESS.0, LESS.1);
    }
    // The pager handles Ctrl-C itself; without this weir would end and leave the terminal to both it and the shell.
    let _signals = signals::listen(|| {});
    let Ok(mut pager) = command.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = pager.stdin.take() {
        // It need not read all.
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
    fn the_users_pager_goes_first_and_none_is_none() {
        let program =
            |pager: Option<&str>| command(pager.map(OsString::from)).map(|command| command.get_program().to_owned());
        assert_eq!((program(None), program(Some("more -s"))), (Some("less".into()), Some("sh".into())));
        assert_eq!((program(Some("")), program(Some("cat"))), (None, None));
    }
}
