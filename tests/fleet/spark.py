"""Runs tests/fleet/spark_fleet.py, the jobs of docs/collectors/spark.md, with Spark in a process of its own."""

import json
import os
import subprocess
from pathlib import Path

import answers

JOB = Path("tests/fleet/spark_fleet.py")
QUIET = [
    "--conf",
    "spark.log.level=ERROR",
    "--conf",
    "spark.ui.enabled=false",
    "--conf",
    "spark.sql.shuffle.partitions=4",
    # The default, snappy, takes a machine that also has musl for one that has nothing else, and fails.
    "--conf",
    "spark.sql.parquet.compression.codec=zstd",
]


class Spark:
    def __init__(self, python: Path, cores: int, scratch: Path) -> None:
        self.python, self.cores, self.scratch = python, cores, scratch

    def batch(self, files: list[Path], periods: list[str]) -> answers.Answers:
        return self.run("batch", files, periods, [])

    def stream(self, files: list[Path], periods: list[str]) -> answers.Answers:
        return self.run("stream", files, periods, ["--once", "--files", "1", "--late", "2 minutes"])

    def run(self, job: str, files: list[Path], periods: list[str], options: list[str]) -> answers.Answers:
        tables = self.scratch / job
        said = self.submit([job, "--reports", files[0].parent, "--tables", tables, *options])
        said += self.submit(["show", "--tables", tables, "--per", "1 minute"])
        found = answers.of(periods)
        for line in said:
            if "registers" in line and line["period"] in found.periods:
                found.count(line["period"], line, bytes.fromhex(line["registers"]))
            elif "key" in line and line["period"] in found.periods:
                found.row(line["period"], line)
            elif line.get("defect") == "missing":
                found.missing.append((line["router"], line["first"], line["last"]))
            elif line.get("defect") == "later than the watermark":
                found.left_out = line["count"]
        return found

    def submit(self, arguments: list) -> list[dict]:
        bin = self.python.parent
        environment = os.environ | {
            "PATH": f"{bin}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.scratch),
        }
        command = [bin / "spark-submit", "--master", f"local[{self.cores}]", *QUIET, JOB, *arguments]
        log = self.scratch / "spark.log"
        with log.open("a") as errors:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        if done.returncode:
            raise RuntimeError(log.read_text()[-4_000:])
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
