//! `weir top` on a terminal: it shows the right numbers, and leaves the terminal as it was.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};
use weir_tests::{clock, daemon::weir_binary};

/// How long weir may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The sequences that switch to the alternate screen and hide the cursor, and those that restore both.
const TAKES: [&str; 2] = ["\x1b[?1049h", "\x1b[?25l"];
const GIVES_BACK: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

/// A terminal with `weir top` on it.
struct Screen {
    keyboard: File,
    terminal: OwnedFd,
    shown: String,
    more: Receiver<Vec<u8>>,
    weir: Child,
    before: Termios,
}

impl Screen {
    fn new(arguments: &[&str]) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let terminal: OwnedFd = File::options().read(true).write(true).open(name.to_str()?)?.into();
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
        let before = tcgetattr(&terminal)?;
        let side = || anyhow::Ok(Stdio::from(terminal.try_clone()?));
        let weir = Command::new("setsid")
            .arg(weir_binary()?)
            .arg("top")
            .args(arguments)
            .env_remove("NO_COLOR")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .stdin(side()?)
            .stdout(side()?)
            .stderr(side()?)
            .spawn()?;
        let (mut output, keyboard) = (File::from(master.try_clone()?), File::from(master));
        let (send, more) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = output.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { keyboard, terminal, shown: String::new(), more, weir, before })
    }

    /// Waits until all of these have been written.
    fn has(&mut self, parts: &[&str]) -> Result<()> {
        clock::wait_for(&format!("{parts:?}"), TIMEOUT, || {
            for bytes in self.more.try_iter() {
                self.shown += &String::from_utf8_lossy(&bytes);
            }
            Ok(parts.iter().all(|part| self.shown.contains(part)).then_some(()))
        })
        .with_context(|| format!("shown was {:?}", self.shown))
    }

    /// Waits for the end of weir, and checks that the terminal is as it was.
    fn ends(mut self) -> Result<()> {
        let status = clock::wait_for("the end", TIMEOUT, || Ok(self.weir.try_wait()?))?;
        self.has(&GIVES_BACK)?;
        ensure!(status.success(), "{status}: {:?}", self.shown);
        let after = tcgetattr(&self.terminal)?;
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        ensure!(modes(&after) == modes(&self.before), "{after:?} was {:?}", self.before);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.weir.kill());
        drop(self.weir.wait());
    }
}

const REPLAY: [&str; 4] = ["--replay", "tests/corpus/demo.pcap", "--speed", "1000"];

/// The numbers are those of the README, which `weir replay` prints for the same capture.
pub fn a_key_leaves_the_terminal_as_it_was() -> Result<()> {
    let mut screen = Screen::new(&REPLAY)?;
    screen.has(&TAKES)?;
    screen.has(&["demo.pcap", "capture ended", "kept 100.0 %", "unsampled", "[1 hosts]"])?;
    screen.keyboard.write_all(b"5")?;
    screen.has(&["[5 flows]", "2001:db8:1:82b7:88c8:f8a6:2786:3274"])?;
    screen.keyboard.write_all(b"q")?;
    screen.ends()
}

pub fn a_signal_leaves_the_terminal_as_it_was() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut screen = Screen::new(&REPLAY)?;
        screen.has(&TAKES)?;
        screen.has(&["[1 hosts]"])?;
        let pid = Pid::from_raw(i32::try_from(screen.weir.id())?).context("a process")?;
        kill_process(pid, signal)?;
        screen.ends()?;
    }
    Ok(())
}
