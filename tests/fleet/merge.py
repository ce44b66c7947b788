"""What `weir merge` says of the same reports."""

import json
import subprocess
from pathlib import Path

from answers import Answers, Period
from checks import Check


def answer(program: Path, files: list[Path]) -> dict[str, dict]:
    """Its windows of a minute, by their start."""
    command = [program, "--json", "--window", "1m", *files]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {window["start"]: window for window in json.loads(output)["windows"]}


def compare(windows: dict[str, dict], found: Answers, checks: Check) -> None:
    for period, answers in found.periods.items():
        compare_counts(windows[period], period, answers, checks)
        compare_sums(windows[period], period, answers, checks)


def compare_counts(window: dict, period: str, found: Period, checks: Check) -> None:
    """DataSketches estimates otherwise than weir: counts may differ by a percent, which is less than their error."""
    for count in window["distinct"]:
        own = found.distinct.get((count["name"], count["lg_k"], count["key_id"]))
        is_near = own is not None and abs(own.value - count["value"]) <= 1 + 0.01 * count["value"]
        checks.that("as weir merge", is_near, f"{period}: {own} is not {count}")


def compare_sums(window: dict, period: str, found: Period, checks: Check) -> None:
    for one in window["lists"]:
        top = found.top.get(one["name"], {})
        for row in one["by_bytes"]:
            expected = [row[unit][end] for unit in ["packets", "bytes"] for end in ["lower", "upper"]]
            own = top.get(row["key"])
            checks.that(
                "as weir merge", own == expected, f"{period} {one['name']} {row['key']}: {own} is not {expected}"
            )
