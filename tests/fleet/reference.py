"""What the engines must find: reports added up in plain Python, as docs/FLEET.md defines it."""

import base64
import json
from collections import defaultdict
from pathlib import Path

Union = dict[tuple, bytes]  # registers by name, lg_k and key_id
Sums = dict[str, dict[str, list[int]]]  # by list and key: packets_lower, packets_upper, bytes_lower, bytes_upper


def periods(files: list[Path], left_out: list[tuple[str, int]] = ()) -> dict[str, tuple[Union, Sums]]:
    """Registers and sums by minute."""
    reports = {}
    for file in files:
        for line in file.read_text().splitlines():
            report = json.loads(line)
            if report["schema"] == "weir.report/1" and report.get("sketches"):
                reports[report["id"]] = report
    minutes = defaultdict(list)
    for report in reports.values():
        start = report["sketches"]["start"][:16]
        if (report["observer"]["name"], int(start[-2:])) not in left_out:
            minutes[f"{start}:00Z"].append(report["sketches"])
    return {minute: (union(sketches), sums(sketches)) for minute, sketches in sorted(minutes.items())}


def union(all_sketches: list[dict]) -> Union:
    found = {}
    for one in [one for sketches in all_sketches for one in sketches["distinct"]]:
        key = (one["name"], one["lg_k"], one["key_id"])
        registers = base64.b64decode(one["hll"])[40:][: 1 << one["lg_k"]]
        found[key] = bytes(map(max, registers, found.get(key, bytes(len(registers)))))
    return found


def sums(all_sketches: list[dict]) -> Sums:
    lists = [one for sketches in all_sketches for one in sketches["lists"]]
    found = defaultdict(dict)
    for name, key in {(one["name"], key) for one in lists for key in one["keys"]}:
        parts = [bounds(one, key, cell_of(lists, name, key)) for one in lists if one["name"] == name]
        found[name][key] = [sum(column) for column in zip(*parts)]
    return found


def cell_of(lists: list[dict], name: str, key: str) -> int:
    return next(one["cells"][one["keys"].index(key)] for one in lists if one["name"] == name and key in one["keys"])


def bounds(one: dict, key: str, cell: int) -> list[int]:
    """What a list says of a key: its row, or its cell."""
    if key in one["keys"]:
        at = one["keys"].index(key)
        return [one[f"{unit}_{end}"][at] for unit in ["packets", "bytes"] for end in ["lower", "upper"]]
    return [0, one["rest_packets"][cell], 0, one["rest_bytes"][cell]]
