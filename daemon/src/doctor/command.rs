//! Runs another program of the machine, such as `systemctl`, with a short timeout.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use weir_system::bounded;

/// The timeout of a program. It may wait for a service that hangs.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often to check whether it has ended.
const PAUSE: Duration = Duration::from_millis(20);
/// The most bytes of the output: a pipe has less.
const OUTPUT_MAX: u64 = 1 << 20;

/// The standard output of a program. `None` if it does not exist, fails, or takes too long. The output must fit into a
/// pipe.
pub fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        match child.try_wait() {
            Ok(Some(status)) => {
                let text = String::from_utf8(bounded::all(child.stdout.take()?, OUTPUT_MAX).ok()?).ok()?;
                return status.success().then_some(text);
            }
            Ok(None) => thread::sleep(PAUSE),
            Err(_) => break,
        }
    }
    // It may have ended just now.
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_hangs_or_is_missing_has_no_output() {
        assert_eq!(output("echo", &["yes"]).as_deref(), Some("yes\n"));
        assert_eq!(output("false", &[]), None);
        assert_eq!(output("sleep", &["600"]), None);
        assert_eq!(output("weir-no-such-program", &[]), None);
    }
}
