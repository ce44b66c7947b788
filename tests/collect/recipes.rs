//! Recipes of `docs/collectors/`, with the real programs.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use weir_tests::{
    clock,
    collecting::{TIMEOUT, reports},
    scratch::Scratch,
};

use crate::histories::Histories;

/// The folder of the programs of `PostgreSQL` in Debian, without the version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// The user that Debian's package creates; `PostgreSQL` does not run as root.
const USER: &str = "postgres";
const RECIPE: &str = include_str!("../../docs/collectors/postgresql.md");

/// Checks that the recipe for `PostgreSQL` can be run here.
///
/// # Errors
///
/// What is missing.
pub fn postgresql_is_there() -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("starting PostgreSQL as its user needs root".to_owned());
    }
    programs().map(drop).ok_or_else(|| format!("there is no PostgreSQL in {PROGRAMS} (apt: postgresql)"))
}

fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(PROGRAMS).ok()?.filter_map(Result::ok);
    versions.map(|version| version.path().join("bin")).find(|folder| folder.join("initdb").is_file())
}

/// A server with its own socket and directory; stopped on drop.
struct Server {
    child: Child,
    programs: PathBuf,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT stops the server at once, with all its children.
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let programs = programs().context("it was there")?;
        let (uid, gid) = user()?;
        chown(folder, Some(uid), Some(gid))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        let data = folder.join("data");
        let made = as_user(&programs.join("initdb"))
            .args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--pgdata"])
            .arg(&data)
            .output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let log = fs::File::create(folder.join("log"))?;
        let mut command = as_user(&programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(folder).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let child = command.stdout(Stdio::null()).stderr(log).spawn()?;
        let server = Self { child, programs, folder: folder.to_owned() };
        clock::wait_for("PostgreSQL", TIMEOUT, || Ok(server.sql("SELECT 1", &[]).is_ok().then_some(())))?;
        Ok(server)
    }

    /// Runs statements with psql and this standard input, and returns the output.
    fn sql(&self, statements: &str, input: &[u8]) -> Result<String> {
        let mut child = as_user(&self.programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", "-h"])
            .arg(&self.folder)
            .args(["-d", "postgres", "-c", statements])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("it is piped")?.write_all(input)?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Server {
    /// Runs the page's command for loading files, in the folder of the files.
    fn load(&self, folder: &Path, script: &Path) -> Result<()> {
        let (_, rest) = RECIPE.split_once("\ncd /var/lib/weir && ").context("the page has the command")?;
        let command = rest.split_once("\n").context("it is a line")?.0;
        let psql = format!(
            "'{}' --no-psqlrc --quiet -v ON_ERROR_STOP=1 -d postgres -h '{}' -f '{}'",
            self.programs.join("psql").display(),
            folder.display(),
            script.display()
        );
        let command = format!("cd '{}' && {}", folder.display(), command.replace("psql -f load.sql", &psql));
        let output = as_user(Path::new("/bin/sh")).args(["-c", &command]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// A command that runs as `PostgreSQL`'s user. Its process is the program itself.
fn as_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program).current_dir("/");
    command
}

fn user() -> Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).context("Debian's package makes the user")?;
    let mut fields = line.split(':').skip(2);
    let mut number = || -> Result<u32> { Ok(fields.next().context("a user has numbers")?.parse()?) };
    Ok((number()?, number()?))
}

/// The block of the recipe below this heading.
fn block(heading: &str) -> Result<String> {
    let (_, rest) = RECIPE.split_once(&format!("\n## {heading}\n")).with_context(|| format!("no heading {heading}"))?;
    let (_, rest) = rest.split_once("```sql\n").context("no block below it")?;
    Ok(rest.split_once("```").context("the block has an end")?.0.to_owned())
}

/// The statements of the page: they create the tables, load files repeatedly, and find gaps.
pub fn postgresql() -> Result<()> {
    let scratch = Scratch::new()?;
    // The server's user needs access to this folder.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711))?;
    let folder = scratch.file("postgresql");
    fs::create_dir(&folder)?;
    let server = Server::start(&folder)?;
    server.sql(&block("The tables")?, &[])?;
    let file = folder.join("reports.ndjson");
    let script = folder.join("load.sql");
    fs::write(&script, block("Load the files of reports")?)?;
    let load = || server.load(&folder, &script);
    fs::write(&file, reports(1..=2).0)?;
    load()?;
    // weir writes more reports, and renames and compresses the file before the next load.
    fs::write(&file, reports(1..=3).0)?;
    fs::write(folder.join("reports.ndjson.1.gz"), crate::gzip(&fs::read(&file)?)?)?;
    let (mut lines, _) = reports([4, 8]);
    lines.extend_from_slice(&reports(9..=9).0[..40]);
    fs::write(&file, lines)?;
    load()?;
    load()?;
    fs::rename(&file, folder.join("reports.ndjson.2"))?;
    fs::write(&file, [])?;
    load()?;
    ensure!(
        server.sql("SELECT string_agg(seq::text, ',' ORDER BY seq) FROM reports", &[])? == "1,2,3,4,8",
        "each once"
    );
    server.sql(&block("What is missing")?, &[])?;
    let gaps = server.sql("SELECT * FROM missing", &[])?;
    ensure!(gaps == "7f3c9a52|b41d|5|7|3|unexplained|", "{gaps}");
    let histories = Histories::new();
    fs::remove_file(folder.join("reports.ndjson.2"))?;
    fs::write(&file, histories.text())?;
    load()?;
    let missing = server.sql("SELECT to_json(missing) FROM missing", &[])?;
    let missing = missing.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?;
    histories.check("PostgreSQL", &missing)?;
    let contested = server.sql("SELECT id FROM contested", &[])?;
    histories.check_contested("PostgreSQL", contested.lines().map(str::to_owned))?;
    let cloned = server.sql("SELECT previous FROM cloned", &[])?;
    histories.check_named_twice("PostgreSQL", cloned.lines().map(str::to_owned))
}
