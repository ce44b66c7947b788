"""The reports of a small fleet as they arrive: made by `weir replay`, then damaged as a network damages them."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from traffic import Truth, capture

ROUTERS = ["edge-1", "edge-2", "edge-3", "edge-4", "edge-5"]
FLEET = ROUTERS[:3]
OTHER_SIZE, OTHER_SECRET = ROUTERS[3:]


@dataclass
class Samples:
    files: list[Path]  # in the order in which they arrive
    truth: Truth
    missing: tuple[str, int]  # the router and the minute of the report that never arrives
    missing_seq: int
    too_late: tuple[str, int]  # of the report for which a stream does not wait
    too_late_lines: int = 2  # with a duplicate


def make(weir: Path, folder: Path) -> Samples:
    truth, lines = Truth(), {}
    for part, router in enumerate(ROUTERS):
        capture(folder / f"{router}.pcap", router, part, truth)
        lines[router] = replay(weir, folder, router)
    arrivals = folder / "reports"
    arrivals.mkdir()
    return arrive(lines, arrivals, truth)


def replay(weir: Path, folder: Path, router: str) -> list[str]:
    secret = folder / ("other.key" if router == OTHER_SECRET else "fleet.key")
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(secret.name.encode().hex().ljust(32, "0")[:32] + "\n")
    config = folder / f"{router}.yaml"
    config.write_text(
        f"observer: {{name: {router}}}\n"
        "report: {interval: 10s}\n"
        f"export: {{views: all, every: 1m, lg_k: {11 if router == OTHER_SIZE else 12}}}\n"
        f"hash_key: {{file: {secret}}}\n"
    )
    command = [weir, "replay", "--json", "--window", "10s", "--config", config, folder / f"{router}.pcap"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return output.splitlines(keepends=True)


def arrive(lines: dict[str, list[str]], folder: Path, truth: Truth) -> Samples:
    """Writes files in the order of arrival. Their times differ, because Spark reads them in that order."""
    exports = {
        (router, minute_of(line)): line for router in ROUTERS for line in lines[router] if minute_of(line) is not None
    }
    missing, late, too_late = ("edge-3", 1), ("edge-3", 0), ("edge-2", 0)
    first = [line for router in ROUTERS for line in lines[router] if not is_of(line, [missing, late, too_late])]
    repeated = [exports["edge-1", 0], exports["edge-2", 1]]
    lost = json.loads(exports[missing])
    seq = lost["observer"]["seq"]
    tombstone = {"schema": "weir.tombstone/1", "id": f"{lost['id']}-{seq}", "observer": lost["observer"]}
    tombstone |= {"first_seq": seq, "last_seq": seq, "reports": 1, "reason": "too_old"}
    early = [line for line in first if json.loads(line)["window"]["start"] < "2026-11-26T12:10"]
    tail = [line for line in first if line not in early]
    parts = [
        early,
        [repeated[0], exports[late], json.dumps(tombstone) + "\n"],
        [line for line in tail if "T12:30" in json.loads(line)["window"]["start"]],
        [line for line in tail if "T12:30" not in json.loads(line)["window"]["start"]],
        [exports[too_late], repeated[1]],
    ]
    files = []
    for n, part in enumerate(parts):
        file = folder / f"{n}.ndjson"
        file.write_text("".join(part))
        os.utime(file, (1_795_700_000 + n, 1_795_700_000 + n))
        files.append(file)
    return Samples(files, truth, missing, seq, too_late)


def minute_of(line: str) -> int | None:
    """The minute that the sketches of a report are of."""
    sketches = json.loads(line).get("sketches")
    return int(sketches["start"][14:16]) if sketches else None


def is_of(line: str, exports: list[tuple[str, int]]) -> bool:
    return (json.loads(line)["observer"]["name"], minute_of(line)) in exports
