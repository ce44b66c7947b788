//! Writes the manual pages and the shell completions of `weir`, from the same definition as `--help`: `pages DIR`.
//!
//! `scripts/package` runs it. It is not a command of weir, so that the router's program does not grow.

use std::{env, fs, io, path::Path, process::ExitCode};

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use weir::cli::Cli;

#[expect(clippy::print_stderr, reason = "it is a program of the build, without a log")]
fn main() -> io::Result<ExitCode> {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: pages DIR");
        return Ok(ExitCode::from(2));
    };
    write(Path::new(&folder)).map(|()| ExitCode::SUCCESS)
}

/// Writes `man/weir.1`, a page for each command beside it, and `completions/`.
fn write(folder: &Path) -> io::Result<()> {
    let [man, completions] = ["man", "completions"].map(|name| folder.join(name));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder)?;
    }
    clap_mangen::generate_to(Cli::command().version(env!("CARGO_PKG_VERSION")), man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Cli::command(), "weir", &completions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_knows_its_options() {
        let folder = env::temp_dir().join(format!("weir-pages-{}", std::process::id()));
        write(&folder).unwrap();
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        for command in Cli::command().get_subcommands().map(|command| command.get_name().to_owned()) {
            let page = text(&format!("man/weir-{command}.1"));
            assert!(page.contains(".SH SYNOPSIS"), "{page}");
        }
        assert!(text("man/weir-report.1").contains(r"\-\-full"));
        assert!(text("man/weir.1").contains(r"weir\-top(1)"));
        for name in ["weir.bash", "_weir", "weir.fish"] {
            let script = text(&format!("completions/{name}"));
            assert!(script.contains("report") && script.contains("full"), "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
