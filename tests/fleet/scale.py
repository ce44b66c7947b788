"""How long Spark's job on files takes with 1, 2 and 4 cores, on copies of reports under other names."""

import gzip
import json
import resource
import time
from pathlib import Path

from samples import Samples
from spark import Spark

CORES = [1, 2, 4]


def run(made: Samples, copies: int, python: Path, scratch: Path) -> None:
    reports = [json.loads(line) for file in made.files for line in file.read_text().splitlines()]
    reports = list({report["id"]: report for report in reports if report.get("sketches")}.values())
    folder = scratch / "copies"
    folder.mkdir()
    for copy in range(copies):
        (folder / f"{copy}.ndjson").write_text("".join(line_of(report, copy) for report in reports))
    describe(reports, folder)
    tables = scratch / "scaled"
    empty = scratch / "empty"
    empty.mkdir()
    (empty / "none.ndjson").write_text("")
    start, seconds = job(Spark(python, 1, scratch), empty, tables)
    print(f"without reports: {seconds:.1f} seconds, {start:.1f} CPU seconds", flush=True)
    for cores in CORES:
        used, seconds = job(Spark(python, cores, scratch), folder, tables)
        each = 1_000 * (used - start) / (len(reports) * copies)
        print(
            f"{cores} cores: {seconds:.1f} seconds, {used:.1f} CPU seconds, {each:.1f} ms of that for a report",
            flush=True,
        )
    written = {table.name: sum(file.stat().st_size for file in table.glob("*.parquet")) for table in tables.iterdir()}
    print("bytes of the tables: " + ", ".join(f"{name} {size:,}" for name, size in sorted(written.items())))


def line_of(report: dict, copy: int) -> str:
    observer = report["observer"] | {
        "id": f"{report['observer']['id']}-{copy}",
        "name": f"{report['observer']['name']}-{copy}",
    }
    return json.dumps(report | {"id": f"{report['id']}-{copy}", "observer": observer}, separators=(",", ":")) + "\n"


def describe(reports: list[dict], folder: Path) -> None:
    files = list(folder.iterdir())
    whole = sum(file.stat().st_size for file in files)
    sketches = [json.dumps(report["sketches"], separators=(",", ":")).encode() for report in reports]
    plain, packed = [sum(map(len, all)) // len(reports) for all in (sketches, map(gzip.compress, sketches))]
    count = len(reports) * len(files)
    print(f"{count:,} reports with sketches, {whole:,} bytes")
    print(f"the sketches of one are {plain:,} bytes, {packed:,} with gzip")


def job(spark: Spark, folder: Path, tables: Path) -> tuple[float, float]:
    """CPU and other seconds."""
    before, begun = children(), time.monotonic()
    spark.submit(["batch", "--reports", folder, "--tables", tables])
    return children() - before, time.monotonic() - begun


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
