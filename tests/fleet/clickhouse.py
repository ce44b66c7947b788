"""Runs the statements of docs/collectors/clickhouse.md in ClickHouse as a library (chdb)."""

import json
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import answers

PAGE = Path("docs/collectors/clickhouse.md")


def run(files: list[Path], periods: list[str], scratch: Path) -> answers.Answers:
    from chdb import session  # scripts/setup brings it

    database = session.Session(str(scratch / "clickhouse"))

    def rows(sql: str) -> list[dict]:
        return [json.loads(line) for line in database.query(sql, "JSONEachRow").bytes().decode().splitlines()]

    table, missing, gaps, contested, fleet, results, _ = answers.blocks(PAGE, "sql")
    execute(database, table + missing + contested + fleet)
    for file in files:
        database.query(insert() + file.read_text())
    execute(database, results)
    found = answers.of(periods)
    for period in periods:
        times = f"(since = '{clickhouse_time(period)}', until = '{clickhouse_time(answers.until(period))}')"
        images = {
            (row["name"], row["lg_k"], row["key_id"]): bytes(row["registers"])
            for row in rows(f"SELECT name, lg_k, key_id, registers FROM weir.fleet_registers{times}")
        }
        for row in rows(f"SELECT * FROM weir.fleet_distinct{times}"):
            found.count(period, row, images[row["name"], row["lg_k"], row["key_id"]])
        for row in rows(f"SELECT * FROM weir.fleet_top{times}"):
            found.row(period, row)
    names = "SELECT observer.id AS id, observer.name AS name FROM weir.reports WHERE schema = 'weir.report/1'"
    names = {row["id"]: row["name"] for row in rows(names)}
    found.missing = [
        (names[row["observer_id"]], row["first"], row["last"]) for row in rows(gaps.strip().removesuffix(";"))
    ]
    return found


def execute(database, statements: str) -> None:
    for statement in statements.split(";\n"):
        if statement.strip():
            database.query(statement)


def insert() -> str:
    """The statement that the page's sink sends."""
    yaml = answers.blocks(PAGE, "yaml")[0]
    url = yaml.split('"')[1].replace("\\\n", "").replace(" ", "")
    parameters = dict(parse_qsl(urlsplit(url).query))
    statement, form = parameters.pop("query").split(" FORMAT ")
    settings = ", ".join(f"{name} = '{value}'" for name, value in parameters.items())
    return f"{statement} SETTINGS {settings} FORMAT {form}\n"


def clickhouse_time(period: str) -> str:
    return period.replace("T", " ").removesuffix("Z")
