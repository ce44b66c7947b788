"""What `weir merge` says of the same reports."""

import json
import subprocess
from pathlib import Path

import reference
from answers import Answers, Period
from checks import Check, periods
from samples import FLEET, OTHER_SECRET, OTHER_SIZE, ROUTERS, Samples
from traffic import MINUTES


def answer(program: Path, files: list[Path]) -> dict:
    """Its answer, with its windows of a minute by their start."""
    command = [program, "--json", "--window", "1m", "--top", "20", *files]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    found = json.loads(output)
    return found | {"windows": {window["start"]: window for window in found["windows"]}}


def check(found: dict, made: Samples) -> Check:
    """Compares it with the truth, with the reference, and with what was done to the reports."""
    checks, expected = Check(), reference.periods(made.files)
    for minute, period in zip(MINUTES, periods()):
        union, sums = expected[period]
        here = [router for router in ROUTERS if (router, minute) != made.missing]
        window = found["windows"][period]
        check_counts(window, union, here, minute, made, checks)
        check_lists(window, sums, here, minute, made, checks)
    defects = {(one["what"], one["name"], one["reports"]) for one in found["defects"]}
    # A report is late if a later one of its router came first.
    done = {("late", "edge-2", 1), ("late", "edge-3", 1), ("duplicate", "edge-1", 1), ("duplicate", "edge-2", 1)}
    done |= {("tombstone", made.missing[0], 1)}
    done |= {("foreign_key", OTHER_SECRET, len(MINUTES)), ("other_lg_k", OTHER_SIZE, len(MINUTES))}
    checks.that("defects", defects == done, f"{defects} are not {done}")
    return checks


def check_counts(
    window: dict, union: reference.Union, here: list[str], minute: int, made: Samples, checks: Check
) -> None:
    counts = {(one["name"], one["lg_k"], one["key_id"]): one for one in window["distinct"]}
    checks.that("counts", set(counts) == set(union), f"{set(counts)} are not {set(union)}")
    for (name, lg_k, _), count in counts.items():
        fleet = [router for router in here if router in FLEET]
        routers = fleet if count["is_fleet"] else [OTHER_SIZE] if lg_k != 12 else [OTHER_SECRET]
        checks.that("defects", count["routers"] == len(routers), f"{count} is not of {routers}")
        true = made.truth.distinct(name, minute, routers)
        checks.that("counts", count["lower"] <= true <= count["upper"], f"{count} has not {true}")


def check_lists(window: dict, sums: reference.Sums, here: list[str], minute: int, made: Samples, checks: Check) -> None:
    lists = {one["name"]: rows_of(one) for one in window["lists"]}
    checks.that("sums", set(lists) == set(sums), f"{set(lists)} are not {set(sums)}")
    for name, rows in sums.items():
        largest = sorted(rows, key=lambda key: (-rows[key][2], key))[:20]
        top = lists.get(name, {})
        checks.that("sums", top == {key: rows[key] for key in largest}, f"{name}: {top}")
    for name in ["sources", "destinations", "pairs", "flows"]:
        true = made.truth.top(name, minute, here)
        for key, (_, _, lower, upper) in lists[name].items():
            checks.that("bounds", lower <= true[key] <= upper, f"{name} {key}: not {lower} <= {true[key]} <= {upper}")
        least = min(row[2] for row in lists[name].values())
        for key, _ in true.most_common(20):
            is_there = key in lists[name] or sums[name].get(key, [0, 0, 0, least])[3] >= least
            checks.that("top 20", is_there, f"{name}: {key}")


def rows_of(one: dict) -> dict[str, list[int]]:
    bounds = [(unit, end) for unit in ["packets", "bytes"] for end in ["lower", "upper"]]
    return {row["key"]: [row[unit][end] for unit, end in bounds] for row in one["by_bytes"]}


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
        for key, expected in rows_of(one).items():
            is_same = top.get(key) == expected
            checks.that("as weir merge", is_same, f"{period} {one['name']} {key}: {top.get(key)} is not {expected}")
