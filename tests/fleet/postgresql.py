"""Runs the statements of docs/collectors/postgresql.md on a server of its own, with a socket in the scratch folder."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import answers

PAGE = Path("docs/collectors/postgresql.md")
PROGRAMS = Path("/usr/lib/postgresql")
USER = "postgres"  # Debian's package makes it; PostgreSQL does not run as root

# What a built folder of the extension has.
EXTENSION = "sql/datasketches_hll_sketch.sql"


def programs() -> Path | None:
    found = sorted(PROGRAMS.glob("*/bin/initdb"))
    return found[-1].parent if found else None


def run(files: list[Path], periods: list[str], scratch: Path, extension: Path | None) -> answers.Answers:
    with Server(scratch / "postgresql") as server:
        tables, load, missing, gaps, fleet, _queries, by_extension = answers.blocks(PAGE, "sql")
        server.sql(tables)
        script = server.folder / "load.sql"
        script.write_text(load)
        for file in files:
            server.psql(["-f", script], file.read_text())
        server.sql(missing)
        server.sql(fleet)
        found = answers.of(periods)
        for period in periods:
            times = f"('{period}', '{answers.until(period)}')"
            images = {
                (row["name"], row["lg_k"], row["key_id"]): bytes(row["ranks"])
                for row in server.rows(
                    "SELECT name, lg_k, key_id, array_agg(rank ORDER BY place) AS ranks"
                    f" FROM fleet_registers{times} GROUP BY name, lg_k, key_id"
                )
            }
            for row in server.rows(f"SELECT * FROM fleet_distinct{times}"):
                found.count(period, row, images[row["name"], row["lg_k"], row["key_id"]])
            for row in server.rows(f"SELECT * FROM fleet_top{times}"):
                found.row(period, row)
        gaps = server.rows(gaps.strip().removesuffix(";"))
        names = server.rows("SELECT DISTINCT observer_id AS id, report #>> '{observer,name}' AS name FROM reports")
        names = {row["id"]: row["name"] for row in names}
        found.missing = [(names[row["observer_id"]], row["first"], row["last"]) for row in gaps]
        if extension:
            server.install(extension)
            compare_with_extension(server, by_extension, found)
        return found


def compare_with_extension(server: "Server", statements: str, found: answers.Answers) -> None:
    """The extension's unions have the same registers."""
    view, _query = statements.split(";\n\n", 1)
    server.sql(view)
    rows = server.rows(
        "SELECT slot AT TIME ZONE 'UTC' AS slot, name, key_id, hll::bytea FROM fleet_distinct_by_extension"
    )
    rows = [row for row in rows if row["slot"] + "Z" in found.periods]
    for row in rows:
        count = found.periods[row["slot"] + "Z"].distinct[row["name"], 12, row["key_id"]]
        assert bytes.fromhex(row["hll"][2:])[40:] == count.registers, f"the extension's registers differ: {row['name']}"
    print(f"PostgreSQL's extension: {len(rows)} unions have the same registers")


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, programs()

    def __enter__(self) -> "Server":
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER, USER)
        data = self.folder / "data"
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--pgdata", data]
        subprocess.run(self.command("initdb", options), check=True, stdout=subprocess.DEVNULL, cwd="/")
        options = ["-D", data, "-k", self.folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(self.command("postgres", options), stdout=self.log, stderr=self.log, cwd="/")
        while subprocess.run(self.command("pg_isready", ["-q", "-h", self.folder])).returncode:
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.1)
        return self

    def __exit__(self, *_) -> None:
        self.process.send_signal(signal.SIGQUIT)  # at once, with all its children
        self.process.wait()
        self.log.close()

    def command(self, program: str, options: list) -> list:
        as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"] if os.geteuid() == 0 else []
        return [*as_user, self.programs / program, *options]

    def psql(self, options: list, text: str = "") -> str:
        always = ["--no-psqlrc", "--quiet", "-At", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-d", "postgres"]
        command = self.command("psql", [*always, *options])
        return subprocess.run(command, check=True, input=text, stdout=subprocess.PIPE, text=True, cwd="/").stdout

    def sql(self, statements: str) -> None:
        self.psql(["-f", "-"], statements)

    def rows(self, query: str) -> list[dict]:
        return [json.loads(line) for line in self.psql(["-c", f"SELECT to_json(t) FROM ({query}) AS t"]).splitlines()]

    def install(self, extension: Path) -> None:
        """Loads the library of a built extension from where it is, instead of installing it."""
        script = (extension / EXTENSION).read_text()
        self.sql(
            "SET client_min_messages = error;\n" + script.replace("$libdir/datasketches", f"{extension}/datasketches")
        )
