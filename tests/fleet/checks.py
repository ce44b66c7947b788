"""Compares what an engine says with the reference and with the truth."""

import reference
from answers import Answers
from samples import FLEET, OTHER_SECRET, OTHER_SIZE, ROUTERS, Samples
from traffic import MINUTES

COLUMNS = ["registers", "sums", "counts", "bounds", "top 20", "defects", "as weir merge"]


class Check:
    """Counts what is right, and remembers what is not."""

    def __init__(self) -> None:
        self.right, self.wrong = {}, []

    def that(self, column: str, is_right: bool, what: str) -> None:
        right, all = self.right.get(column, (0, 0))
        self.right[column] = (right + is_right, all + 1)
        if not is_right:
            self.wrong.append(f"{column}: {what}")

    def cells(self) -> list[str]:
        return ["{} of {}".format(*self.right[column]) if column in self.right else "-" for column in COLUMNS]


def periods() -> list[str]:
    return [f"2026-11-26T12:0{minute}:00Z" for minute in MINUTES]


def check(found: Answers, made: Samples, left_out: list[tuple[str, int]]) -> Check:
    checks, expected = Check(), reference.periods(made.files, left_out)
    for minute, period in zip(MINUTES, periods()):
        union, sums = expected[period]
        here = [router for router in ROUTERS if (router, minute) not in [made.missing, *left_out]]
        check_unions(union, period, found, checks)
        check_counts(minute, period, found, made, checks)
        check_groups(here, period, found, checks)
        check_sums(sums, period, found, checks)
        check_top(sums, here, minute, period, found, made, checks)
    return checks


def check_unions(union: reference.Union, period: str, found: Answers, checks: Check) -> None:
    """All registers are the same, byte for byte."""
    distinct = found.periods[period].distinct
    checks.that("registers", set(union) == set(distinct), f"{period}: {set(union)} are not {set(distinct)}")
    for key, registers in union.items():
        is_same = key in distinct and distinct[key].registers == registers
        checks.that("registers", is_same, f"{period} {key}")


def check_counts(minute: int, period: str, found: Answers, made: Samples, checks: Check) -> None:
    """The truth is within the bounds."""
    for (name, _, _), count in found.periods[period].distinct.items():
        true = made.truth.distinct(name, minute, count.routers)
        is_within = count.lower <= true <= count.upper
        checks.that(
            "counts", is_within, f"{period} {name} of {count.routers}: not {count.lower} <= {true} <= {count.upper}"
        )


def check_groups(here: list[str], period: str, found: Answers, checks: Check) -> None:
    """Routers with another size or secret are set apart and named."""
    expected = sorted([[router for router in here if router in FLEET], [OTHER_SIZE], [OTHER_SECRET]])
    for name in ["unique.src_ip", "unique.flows"]:
        groups = sorted(count.routers for key, count in found.periods[period].distinct.items() if key[0] == name)
        checks.that("defects", groups == expected, f"{period} {name}: {groups} are not {expected}")


def check_sums(sums: reference.Sums, period: str, found: Answers, checks: Check) -> None:
    """The largest keys and their bounds are those of the reference."""
    for name, rows in sums.items():
        largest = sorted(rows, key=lambda key: (-rows[key][2], key))[:20]
        top = found.periods[period].top.get(name, {})
        checks.that("sums", top == {key: rows[key] for key in largest}, f"{period} {name}: {top}")


def check_top(
    sums: reference.Sums, here: list[str], minute: int, period: str, found: Answers, made: Samples, checks: Check
) -> None:
    """The true sums are within the bounds, and no key that is truly among the largest is left out."""
    for name in ["sources", "destinations", "pairs", "flows"]:
        true, top = made.truth.top(name, minute, here), found.periods[period].top[name]
        for key, (_, _, lower, upper) in top.items():
            checks.that("bounds", lower <= true[key] <= upper, f"{period} {key}: not {lower} <= {true[key]} <= {upper}")
        # Keys that are almost as large as each other may change places: their bounds say so.
        least = min(row[2] for row in top.values())
        for key, _ in true.most_common(20):
            checks.that("top 20", key in top or sums[name][key][3] >= least, f"{period} {name}: {key}")
