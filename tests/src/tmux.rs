//! A terminal that is a real one: tmux, of which the test sees each line.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{clock, scratch::Scratch};

/// The text that a shell in it writes before each command.
const PROMPT: &str = "ready> ";

/// Checks that there is a tmux.
///
/// # Errors
///
/// There is none: what to install.
pub fn requirements() -> Result<(), String> {
    let is_there = |folder: PathBuf| folder.join("tmux").exists();
    let found = env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(is_there);
    if found { Ok(()) } else { Err("there is no tmux (apt: tmux)".to_owned()) }
}

/// A terminal with a shell in it. It has a server of its own, which ends on drop.
#[derive(Debug)]
pub struct Terminal {
    scratch: Scratch,
}

impl Terminal {
    /// A terminal of so many columns and lines.
    ///
    /// # Errors
    ///
    /// tmux cannot be started.
    pub fn new(columns: u16, lines: u16) -> Result<Self> {
        let terminal = Self { scratch: Scratch::new()? };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let shell = format!("env -u NO_COLOR -u ENV PS1='{PROMPT}' sh");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines, &shell])?;
        terminal.wait_for("the shell", Duration::from_secs(30), |shown| shown.contains(PROMPT.trim_end()))?;
        Ok(terminal)
    }

    fn socket(&self) -> PathBuf {
        self.scratch.file("tmux")
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = command(&self.socket()).args(arguments).output().context("cannot run tmux")?;
        ensure!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Types a command, and Enter.
    ///
    /// # Errors
    ///
    /// tmux does not answer.
    pub fn run(&self, command: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", command])?;
        self.press("Enter")
    }

    /// Presses a key, by its name in tmux.
    ///
    /// # Errors
    ///
    /// tmux does not answer.
    pub fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Gives it another size.
    ///
    /// # Errors
    ///
    /// tmux does not answer.
    pub fn resize(&self, columns: u16, lines: u16) -> Result<()> {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]).map(drop)
    }

    /// Returns the screen, line by line.
    ///
    /// # Errors
    ///
    /// tmux does not answer.
    pub fn shown(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with its colours, as a program writes them.
    ///
    /// # Errors
    ///
    /// tmux does not answer.
    pub fn shown_in_colours(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Waits until it shows something, and returns all that it shows.
    ///
    /// # Errors
    ///
    /// It did not come within this time: what is shown instead.
    pub fn wait_for(&self, what: &str, timeout: Duration, mut is_it: impl FnMut(&str) -> bool) -> Result<String> {
        let mut last = String::new();
        let found = clock::wait_for(what, timeout, || {
            last = self.shown()?;
            Ok(is_it(&last).then(|| last.clone()))
        });
        found.with_context(|| format!("the terminal shows:\n{last}"))
    }

    /// The process in the shell, which is its only child.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn child(&self) -> Result<u32> {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"])?;
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        children.split_whitespace().next().context("nothing runs in the shell")?.parse().context("a process number")
    }

    /// Waits for the shell, and checks that the program before has left the terminal as a shell needs it: the usual
    /// screen, a cursor that is seen, lines, and an echo.
    ///
    /// # Errors
    ///
    /// What is not as it was.
    pub fn expect_clean(&self, timeout: Duration) -> Result<()> {
        self.wait_for("the shell", timeout, |shown| {
            shown.trim_end().lines().next_back().is_some_and(|line| line.starts_with(PROMPT.trim_end()))
        })?;
        let modes = self.tmux(&["display-message", "-p", "alternate #{alternate_on}, cursor #{cursor_flag}"])?;
        ensure!(modes.trim() == "alternate 0, cursor 1", "{modes}");
        self.run(r"clear; echo modes $(stty -a | grep -oE -- '-?\b(icanon|echo|isig|opost)\b')")?;
        let modes = |shown: &str| shown.lines().find(|line| line.starts_with("modes ")).map(str::to_owned);
        let shown = self.wait_for("the modes", timeout, |shown| modes(shown).is_some())?;
        let modes = modes(&shown).unwrap_or_default();
        for mode in ["icanon", "echo", "isig", "opost"] {
            ensure!(modes.split(' ').any(|word| word == mode), "{mode} is off: {modes}");
        }
        self.run("clear")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.tmux(&["kill-server"]));
    }
}

fn command(socket: &Path) -> Command {
    let mut command = Command::new("tmux");
    command.arg("-S").arg(socket).env_remove("TMUX");
    command
}
