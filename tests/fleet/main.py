"""Adds up the reports of a small fleet with several engines, and compares what they find. scripts/fleet starts it."""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import checks
import clickhouse
import merge
import postgresql
import samples
import scale
from answers import Answers
from samples import Samples
from spark import Spark


@dataclass
class Engine:
    name: str
    run: Callable[[], Answers]
    left_out: list[tuple[str, int]] = field(default_factory=list)  # reports that are too late for it
    names_gaps: bool = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("weir", type=Path)
    parser.add_argument("--quick", action="store_true", help="only ClickHouse")
    parser.add_argument("--spark", type=Path, help="the Python that has PySpark")
    parser.add_argument("--datasketches", type=Path, help="the folder of PostgreSQL's extension, built")
    parser.add_argument(
        "--scale", type=int, metavar="COPIES", help="instead, time Spark with so many copies of the reports"
    )
    options = parser.parse_args()
    if options.datasketches and not (built := options.datasketches / postgresql.EXTENSION).is_file():
        parser.error(f"--datasketches: there is no {built}: build the extension in this folder first")
    with tempfile.TemporaryDirectory(prefix="weir-fleet-") as folder:
        os.chmod(folder, 0o711)  # PostgreSQL runs as another user
        sys.exit(run(options, Path(folder)))


def run(options: argparse.Namespace, scratch: Path) -> int:
    made = samples.make(options.weir, scratch)
    if options.scale:
        scale.run(made, options.scale, options.spark, scratch)
        return 0
    program = options.weir.with_name("weir-merge")
    asked = time.monotonic()
    merged = merge.answer(program, made.files) if program.exists() else None
    if merged is None:
        print(f"weir merge is left out: there is no {program}")
    wrong = []
    print(f"{'':14}" + "".join(f"{column:>15}" for column in checks.COLUMNS) + f"{'seconds':>9}", flush=True)
    if merged:
        wrong += show("weir merge", merge.check(merged, made), time.monotonic() - asked)
    for engine in engines(options, made, scratch):
        begun = time.monotonic()
        found = engine.run()
        seconds = time.monotonic() - begun
        check = checks.check(found, made, engine.left_out)
        check_arrivals(engine, found, made, check)
        if merged and not engine.left_out:
            merge.compare(merged["windows"], found, check)
        wrong += show(engine.name, check, seconds)
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


def show(name: str, check: checks.Check, seconds: float) -> list[str]:
    """Prints a line of the table. Returns what is wrong."""
    print(f"{name:14}" + "".join(f"{cell:>15}" for cell in check.cells()) + f"{seconds:9.1f}", flush=True)
    return [f"{name}: {what}" for what in check.wrong]


def engines(options: argparse.Namespace, made: Samples, scratch: Path) -> list[Engine]:
    periods = checks.periods()
    found = [Engine("ClickHouse", lambda: clickhouse.run(made.files, periods, scratch))]
    if options.quick:
        return found
    if postgresql.programs():
        run = lambda: postgresql.run(made.files, periods, scratch, options.datasketches)
        found.append(Engine("PostgreSQL", run))
    if options.spark:
        spark = Spark(options.spark, os.cpu_count() or 1, scratch)
        found.append(Engine("Spark, files", lambda: spark.batch(made.files, periods)))
        found.append(Engine("Spark, stream", lambda: spark.stream(made.files, periods), [made.too_late], False))
    return found


def check_arrivals(engine: Engine, found: Answers, made: Samples, check: checks.Check) -> None:
    """The report that is missing is named, and those that came too late are counted."""
    if engine.names_gaps:
        gap = [(made.missing[0], made.missing_seq, made.missing_seq)]
        check.that("defects", found.missing == gap, f"missing are {found.missing} instead of {gap}")
    too_late = made.too_late_lines if engine.left_out else 0
    check.that("defects", found.left_out == too_late, f"{found.left_out} lines came too late instead of {too_late}")


main()
