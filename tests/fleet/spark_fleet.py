"""Adds up the reports of a fleet with Apache Spark 4. docs/collectors/spark.md explains it.

    spark-submit spark_fleet.py batch --reports FOLDER --tables FOLDER     all files of reports, once
    spark-submit spark_fleet.py stream --reports FOLDER --tables FOLDER    new files as they come; --once: until no more
    spark-submit spark_fleet.py show --tables FOLDER                       distinct counts, the largest keys

Reports are NDJSON files, packed with gzip or not. The tables are Parquet, with a slot for each minute: `distinct` has
the unions of distinct counts, `rows` and `cells` have the sums of lists. Those of an hour are sums of its slots, so it
needs no job of its own. The program prints JSON lines.
"""

import argparse
import json

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

SLOT = "1 minute"  # `export.every` of the routers
LG_K = 12  # `export.lg_k` of the routers
TOP = 20
# The relative standard error of a count is 1.04 / sqrt(registers). 99.9 % are within 3.29 of these.
MARGIN = 3.29 * 1.04 / (1 << LG_K) ** 0.5

REPORT = """
    schema STRING, id STRING, previous STRING, window STRUCT<start: TIMESTAMP>, totals STRUCT<packets: STRING, bytes: STRING>,
    first_seq BIGINT, last_seq BIGINT, reason STRING,
    observer STRUCT<id: STRING, boot_id: STRING, seq: BIGINT, name: STRING, site: STRING>,
    sketches STRUCT<start: TIMESTAMP,
        distinct: ARRAY<STRUCT<name: STRING, question: STRING, key_id: STRING, lg_k: INT, missing_packets: BIGINT,
            hll: STRING>>,
        lists: ARRAY<STRUCT<name: STRING, question: STRING, by: ARRAY<STRING>, confidence: DOUBLE, width: INT,
            depth: INT, seed: INT, keys: ARRAY<STRING>, cells: ARRAY<INT>, packets_lower: ARRAY<BIGINT>, packets_upper: ARRAY<BIGINT>,
            bytes_lower: ARRAY<BIGINT>, bytes_upper: ARRAY<BIGINT>,
            rest_packets: ARRAY<BIGINT>, rest_bytes: ARRAY<BIGINT>>>>
"""


def reports(lines: DataFrame) -> DataFrame:
    """The reports that have sketches, with the time when these began."""
    is_report = (f.col("schema") == "weir.report/1") & f.col("sketches").isNotNull()
    router = f.coalesce("observer.name", "observer.id").alias("router")
    return lines.where(is_report).select("id", "observer", router, f.col("sketches.start").alias("start"), "sketches")


def slot() -> Column:
    return f.window("start", SLOT).alias("slot")  # it keeps the watermark of a stream


def question() -> Column:
    """The fingerprint of the question. Reports of earlier versions do not state it."""
    return f.coalesce("s.question", f.lit("")).alias("question")


def distinct(reports: DataFrame) -> DataFrame:
    """The union of each count by slot. Only sketches of the same question, key and size are joined."""
    sketches = reports.select("start", "router", f.explode("sketches.distinct").alias("s"))
    return sketches.groupBy(slot(), "s.name", question(), "s.lg_k", "s.key_id").agg(
        f.hll_union_agg(f.unbase64("s.hll")).alias("hll"),  # refuses another lg_k, which no group has
        f.sum("s.missing_packets").alias("missing_packets"),
        f.array_sort(f.collect_set("router")).alias("routers"),
    )


def lists(reports: DataFrame) -> DataFrame:
    lists = reports.select("start", f.explode("sketches.lists").alias("s"))
    return lists.where("s.width = 256 AND s.depth = 1 AND s.seed = 9001")  # others have other cells


def rows(reports: DataFrame) -> DataFrame:
    """The sums of listed keys: the least that is certain, and what their rows allow more than their cells do."""
    row = f.expr("""inline(transform(sequence(1, size(s.keys)), n -> named_struct(
        'key', s.keys[n - 1], 'cell', s.cells[n - 1],
        'packets_lower', s.packets_lower[n - 1],
        'packets_beyond', s.packets_upper[n - 1] - s.rest_packets[s.cells[n - 1]],
        'bytes_lower', s.bytes_lower[n - 1],
        'bytes_beyond', s.bytes_upper[n - 1] - s.rest_bytes[s.cells[n - 1]])))""")
    listed = lists(reports).where(f.size("s.keys") > 0).select("start", "s.name", question(), "s.by", row)
    return listed.groupBy(slot(), "name", "question", "by", "key", "cell").agg(*sums(OF_ROWS))


def cells(reports: DataFrame) -> DataFrame:
    """The sums of the cells, and of the probabilities that the bounds of a list fail."""
    rest = f.posexplode(f.arrays_zip("s.rest_packets", "s.rest_bytes")).alias("cell", "rest")
    each = lists(reports).select("start", "s.name", question(), "s.by", (1 - f.col("s.confidence")).alias("failure"), rest)
    return each.select("*", "rest.*").groupBy(slot(), "name", "question", "by", "cell").agg(*sums(OF_CELLS))


OF_ROWS = ["packets_lower", "packets_beyond", "bytes_lower", "bytes_beyond"]
OF_CELLS = ["rest_packets", "rest_bytes", "failure"]


def sums(names: list[str]) -> list[Column]:
    return [f.sum(name).alias(name) for name in names]


TABLES = {"distinct": distinct, "rows": rows, "cells": cells}


def slots(table: DataFrame) -> DataFrame:
    return table.withColumn("slot", f.col("slot.start"))


def batch(spark: SparkSession, options: argparse.Namespace) -> None:
    lines = spark.read.schema(REPORT).json(options.reports).cache()
    for name, table in TABLES.items():
        slots(table(reports(lines).dropDuplicates(["id"]))).write.mode("overwrite").parquet(f"{options.tables}/{name}")
    content = f.xxhash64(f.to_json(f.struct("*")))  # of the fields of REPORT
    came = lines.groupBy("id").agg(f.count("*").alias("count"), f.count_distinct(content).alias("contents"))
    for repeated in came.where("count > 1").orderBy("id").collect():
        say(defect="duplicate" if repeated.contents == 1 else "contested", id=repeated.id)
    after = lines.dropDuplicates(["id"]).where("previous IS NOT NULL").groupBy("observer.id", "previous").count()
    for clone in after.where("count > 1").orderBy("previous").collect():
        say(defect="cloned", after=clone.previous)
    for gap in gaps(spark, lines).collect():
        say(defect="missing", router=gap.router, first=gap.first, last=gap.last)


def gaps(spark: SparkSession, lines: DataFrame) -> DataFrame:
    """The numbers that are missing, as `weir collect query gaps` finds them."""
    observer = [f.col("observer.id").alias("observer_id"), f.col("observer.boot_id").alias("boot_id")]
    is_report = f.col("schema") == "weir.report/1"
    start = f.col("window.start").alias("window_start")
    came = lines.where(is_report).select(*observer, f.col("observer.seq").alias("seq"), "previous", start)
    came.dropDuplicates().createOrReplaceTempView("reports")
    told = lines.where(~is_report).select(*observer, "first_seq", "last_seq", "reason")
    told.dropDuplicates().createOrReplaceTempView("tombstones")
    names = lines.groupBy(f.col("observer.id").alias("observer_id")).agg(f.max("observer.name").alias("name"))
    router = f.coalesce("name", "observer_id").alias("router")
    missing = spark.sql(MISSING).where("status <> 'before_first'").join(names, "observer_id", "left")
    return missing.select(router, "first", "last").orderBy("router", "first")


# An observer numbers its reports without gaps, also over restarts. Only one that lost its state begins again at 1,
# which begins another sequence.
MISSING = """
WITH known AS (
    SELECT observer_id, boot_id, seq AS first, seq AS last, window_start AS start,
           nullif(split_part(previous, '/', 2), boot_id) AS named,
           CASE WHEN previous IS NULL THEN seq END AS first_of_all
    FROM reports
    UNION ALL
    SELECT observer_id, boot_id, first_seq, last_seq, NULL, NULL, NULL FROM tombstones
), runs AS (
    SELECT observer_id, boot_id, min(first) AS first, max(last) AS last, max(start) AS latest,
           min(first) = min(first_of_all) AS is_start
    FROM known GROUP BY observer_id, boot_id
), ordered AS ( -- Runs by time. Numbers that are not above those before begin another sequence.
    SELECT *, sum(CASE WHEN before IS NOT NULL AND (is_start OR first <= before) THEN 1 ELSE 0 END)
                  OVER (PARTITION BY observer_id ORDER BY latest, boot_id) AS sequence
    FROM (SELECT *, lag(last) OVER (PARTITION BY observer_id ORDER BY latest, boot_id) AS before
          FROM runs WHERE latest IS NOT NULL) AS runs
), fitting AS ( -- Where the numbers of a run are free of which only tombstones came.
    SELECT silent.observer_id, silent.boot_id, silent.first, sequence,
           max(CASE WHEN others.first <= silent.last AND others.last >= silent.first THEN 1 ELSE 0 END) AS is_taken,
           max(CASE WHEN others.last < silent.first THEN others.last ELSE -1 END) AS nearest
    FROM runs AS silent LEFT JOIN ordered AS others ON others.observer_id = silent.observer_id
    WHERE silent.latest IS NULL
    GROUP BY silent.observer_id, silent.boot_id, silent.first, sequence
), placed AS ( -- With the last number of each run of which reports came.
    SELECT observer_id, boot_id, first, is_start, sequence, last AS reported FROM ordered
    UNION ALL
    SELECT observer_id, boot_id, first, NULL, CASE WHEN is_taken = 0 THEN coalesce(sequence, 0) ELSE highest + 1 END, -1
    FROM (SELECT *, max(sequence) OVER (PARTITION BY observer_id, boot_id) AS highest,
                 row_number() OVER (PARTITION BY observer_id, boot_id
                                    ORDER BY is_taken, nearest DESC, sequence DESC) AS place
          FROM fitting) AS fitting
    WHERE place = 1
), numbered AS (
    SELECT known.observer_id, coalesce(named, known.boot_id) AS boot_id, sequence, known.first,
           coalesce(placed.is_start, false) AND known.first = placed.first AS is_start,
           placed.reported < 0 AND known.first = placed.first AS begins_silent,
           max(placed.reported) OVER (PARTITION BY known.observer_id, sequence) AS reported,
           coalesce(followed.last, 0) AS followed,
           coalesce(max(known.last) OVER (PARTITION BY known.observer_id, sequence
                                          ORDER BY known.first, known.start IS NULL, known.last, known.boot_id
                                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM known
    JOIN placed ON placed.observer_id = known.observer_id AND placed.boot_id = known.boot_id
    LEFT JOIN runs AS followed ON followed.observer_id = known.observer_id AND followed.boot_id = named
), holes AS (
    SELECT observer_id, boot_id, sequence, first, is_start, begins_silent, reported,
           CASE WHEN before < followed THEN followed ELSE before END AS before
    FROM numbered
), told AS ( -- Of tombstones that overlap, the first one explains.
    SELECT observer_id, boot_id, reason, last_seq AS last,
           CASE WHEN first_seq <= before THEN before + 1 ELSE first_seq END AS first
    FROM (SELECT *, coalesce(max(last_seq) OVER (PARTITION BY observer_id, boot_id
                                                 ORDER BY first_seq, last_seq, reason
                                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1) AS before
          FROM tombstones) AS tombstones
), dropped AS (
    SELECT told.observer_id, told.boot_id, told.first, told.last, told.reason,
           told.last - told.first + 1 - count(DISTINCT seq) AS reports
    FROM told LEFT JOIN reports ON reports.observer_id = told.observer_id AND reports.boot_id = told.boot_id
        AND reports.seq BETWEEN told.first AND told.last
    WHERE told.first <= told.last
    GROUP BY told.observer_id, told.boot_id, told.first, told.last, told.reason
)
SELECT DISTINCT observer_id, boot_id, before + 1 AS first, first - 1 AS last, first - 1 - before AS reports,
       CASE WHEN before = 0 AND (sequence = 0 OR reported < 0) THEN 'before_first' ELSE 'unexplained' END AS status, NULL AS reason
FROM holes
WHERE before < first - 1 AND NOT is_start AND NOT (begins_silent AND before > 0 AND reported < first)
UNION ALL
SELECT observer_id, boot_id, first, last, reports, 'dropped', reason FROM dropped WHERE reports > 0
"""


def stream(spark: SparkSession, options: argparse.Namespace) -> None:
    """A query for each table. Each slot is written once, when no report of it is waited for any longer."""
    queries = []
    for name, table in TABLES.items():
        source = spark.readStream.schema(REPORT).option("maxFilesPerTrigger", options.files)
        fresh = reports(source.json(options.reports)).withWatermark("start", options.late)
        writer = slots(table(fresh.dropDuplicatesWithinWatermark(["id"]))).writeStream.outputMode("append")
        writer = writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime=SLOT)
        writer = writer.option("checkpointLocation", f"{options.tables}/checkpoints/{name}")
        queries.append(writer.start(f"{options.tables}/{name}", "parquet"))
    for query in queries:
        query.awaitTermination()
    states = [state for progress in queries[0].recentProgress for state in progress["stateOperators"]]
    say(defect="later than the watermark", count=sum(state["numRowsDroppedByWatermark"] for state in states))


def show(spark: SparkSession, options: argparse.Namespace) -> None:
    """Prints what the tables say of each period."""
    period = f.window("slot", options.per)["start"].alias("period")
    for row in counts(spark.read.parquet(f"{options.tables}/distinct").select(period, "*")).collect():
        lower, upper = int(row.value * (1 - MARGIN)), int(row.value / (1 - MARGIN)) + 1 + row.missing_packets
        say(**row.asDict(), lower=lower, upper=upper)
    rows, cells = [spark.read.parquet(f"{options.tables}/{name}").select(period, "*") for name in ["rows", "cells"]]
    for row in top(rows, cells).collect():
        say(**row.asDict())


def counts(unions: DataFrame) -> DataFrame:
    """Distinct counts. A router with another question, key or size than most is set apart, with its name."""
    groups = unions.groupBy("period", "name", "question", "lg_k", "key_id").agg(
        f.hll_union_agg("hll").alias("hll"),
        f.sum("missing_packets").alias("missing_packets"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_set("routers")))).alias("routers"),
    )
    largest = Window.partitionBy("period", "name").orderBy((f.col("lg_k") == LG_K).desc(), f.size("routers").desc())
    registers = f.lower(f.hex(f.substring("hll", 41, 1 << LG_K))).alias("registers")
    is_apart = (f.row_number().over(largest) > 1).alias("is_apart")
    value = f.hll_sketch_estimate("hll").alias("value")
    kind = ["question", "lg_k", "key_id"]
    named = groups.select("period", "name", is_apart, *kind, "routers", value, "missing_packets", registers)
    return named.orderBy("period", "name", "is_apart")


def top(rows: DataFrame, cells: DataFrame) -> DataFrame:
    """The largest keys of each list, with bounds."""
    place = ["period", "name", "question", "by"]
    keys = rows.groupBy(*place, "key", "cell").agg(*sums(OF_ROWS))
    largest = Window.partitionBy(*place).orderBy(f.desc("bytes_lower"), "key")
    keys = keys.withColumn("place", f.row_number().over(largest)).where(f.col("place") <= TOP)
    rest = cells.groupBy(*place, "cell").agg(*sums(OF_CELLS))
    packets = f.greatest("packets_lower", f.col("rest_packets") + f.col("packets_beyond")).alias("packets_upper")
    bytes = f.greatest("bytes_lower", f.col("rest_bytes") + f.col("bytes_beyond")).alias("bytes_upper")
    confidence = f.greatest(f.lit(0.0), 1 - f.col("failure")).alias("confidence")
    bounds = ["packets_lower", packets, "bytes_lower", bytes, confidence]
    joined = keys.join(rest, [*place, "cell"])
    return joined.select(*place, "place", "key", *bounds).orderBy(*place, "place")


def say(**fields) -> None:
    print(json.dumps(fields, default=lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ")), flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Adds up the reports of a fleet.")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--reports", help="the folder of the reports")
    parser.add_argument("--tables", required=True, help="the folder of the tables")
    parser.add_argument("--per", default="1 hour", help="the periods to show")
    parser.add_argument("--late", default="10 minutes", help="a stream waits so long for late reports")
    parser.add_argument("--files", type=int, default=1000, help="a stream reads at most so many new files at once")
    parser.add_argument("--once", action="store_true", help="a stream ends when it has read all files")
    return parser.parse_args()


COMMANDS = {"batch": batch, "stream": stream, "show": show}

if __name__ == "__main__":
    chosen = options()
    session = SparkSession.builder.appName("weir fleet").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    COMMANDS[chosen.command](session, chosen)
    session.stop()
