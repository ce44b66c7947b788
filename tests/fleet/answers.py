"""What an engine says of the reports: the same form for all."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Count:
    """A distinct count, its bounds, and the routers that are in it."""

    value: float
    lower: float
    upper: float
    routers: list[str]
    registers: bytes


@dataclass
class Period:
    distinct: dict[tuple, Count] = field(default_factory=dict)  # by name, lg_k and key_id
    top: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # by list and key, in order


@dataclass
class Answers:
    periods: dict[str, Period]
    missing: list[tuple[str, int, int]]  # router, first and last number
    left_out: int = 0  # reports that came too late

    def count(self, period: str, row: dict, registers: bytes) -> None:
        bounds = [float(row[name]) for name in ["value", "lower", "upper"]]
        count = Count(*bounds, row["routers"], registers)
        self.periods[period].distinct[row["name"], row["lg_k"], row["key_id"]] = count

    def row(self, period: str, row: dict) -> None:
        sums = [int(row[name]) for name in ["packets_lower", "packets_upper", "bytes_lower", "bytes_upper"]]
        self.periods[period].top.setdefault(row["name"], {})[row["key"]] = sums


def of(periods: list[str]) -> Answers:
    return Answers({period: Period() for period in periods}, [])


def blocks(page: Path, kind: str) -> list[str]:
    """The blocks of code of a page in a language."""
    found = []
    for part in page.read_text().split(f"```{kind}\n")[1:]:
        found.append(part.split("```", 1)[0])
    return found


def until(period: str) -> str:
    """The end of a minute."""
    hour, minute = int(period[11:13]), int(period[14:16]) + 1
    return f"{period[:11]}{hour:02}:{minute:02}:00Z"
