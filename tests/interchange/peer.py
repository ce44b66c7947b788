"""The other side of weir's interchange tests: the official package `datasketches`.

    peer.py write DIRECTORY   writes the images of common/sketch/golden into it
    peer.py read DIRECTORY    reads every image in it and prints what it says, one JSON object a file
    peer.py unite DIRECTORY   merges all images in it, in every order, and prints each result as a JSON object

A sketch's items are integers, as its name says, unless it is of words.
"""

import itertools
import json
import pathlib
import sys

from datasketches import (
    PyLongsSerDe,
    frequent_items_error_type,
    frequent_items_sketch,
    frequent_strings_sketch,
    hll_sketch,
    hll_union,
    tgt_hll_type,
)

FORMS = {4: tgt_hll_type.HLL_4, 6: tgt_hll_type.HLL_6, 8: tgt_hll_type.HLL_8}

# Form, lg of the registers, the items' end, and how a table is written.
HLL = [
    (8, 12, 0, "compact"),
    (8, 12, 5, "compact"),
    (4, 12, 5, "updatable"),
    (8, 21, 7, "compact"),
    (6, 12, 100, "compact"),
    (8, 10, 70, "updatable"),
    (8, 10, 2_000, "compact"),
    (6, 10, 2_000, "compact"),
    (4, 10, 2_000, "compact"),
    (4, 10, 2_000, "updatable"),
    (4, 11, 18_000, "compact"),  # two exceptions
    (4, 10, 30_000, "compact"),  # one, above a least rank of 3
    (4, 10, 30_000, "updatable"),
    (6, 6, 1_000_000, "compact"),
    (4, 4, 1_000_000, "compact"),
]


def main():
    command, directory = sys.argv[1:]
    {"write": write, "read": read, "unite": unite}[command](pathlib.Path(directory))


def write(directory):
    for form, lg_k, end, table in HLL:
        image = getattr(hll(form, lg_k, range(end)), f"serialize_{table}")()
        (directory / f"hll-{form}-lgk-{lg_k}-items-0-to-{end}-{table}.sk").write_bytes(image)

    words = hll(8, 8, (f"host-{n}" for n in range(1_000)))
    (directory / "hll-8-lgk-8-words.sk").write_bytes(words.serialize_compact())

    union = hll_union(10)
    union.update(hll(4, 10, range(2_000)))
    union.update(hll(8, 9, range(1_000, 3_000)))
    (directory / "hll-union.sk").write_bytes(union.get_result(tgt_hll_type.HLL_8).serialize_compact())

    longs = frequent_items_sketch(5)
    (directory / "longs-empty.sk").write_bytes(longs.serialize(PyLongsSerDe()))
    for n in range(10):
        longs.update(n - 3, 100 + n)
    (directory / "longs-exact.sk").write_bytes(longs.serialize(PyLongsSerDe()))
    for n in range(2_000):
        longs.update(n % 100, 1 + 200 // (1 + n % 100))
    (directory / "longs-purged.sk").write_bytes(longs.serialize(PyLongsSerDe()))

    strings = frequent_strings_sketch(6)
    for n in range(1, 20):
        strings.update(f"192.0.2.{n} \N{RIGHTWARDS ARROW} \N{SNOWMAN}" if n % 2 else "", n)
    (directory / "strings-unicode.sk").write_bytes(strings.serialize())


def hll(form, lg_k, items):
    sketch = hll_sketch(lg_k, FORMS[form])
    for item in items:
        sketch.update(item)
    return sketch


def read(directory):
    for path in sorted(directory.glob("*.sk")):
        kind = path.name.split("-")[0]
        said = {"hll": read_hll, "longs": read_longs, "strings": read_strings}[kind](path.read_bytes())
        print(json.dumps({"file": path.name, **said}))


def unite(directory):
    """Every order, in one union; and in two unions that are merged at the end."""
    images = [path.read_bytes() for path in sorted(directory.glob("*.sk"))]
    for order in itertools.permutations(range(len(images))):
        for middle in range(len(order)):
            one, other = hll_union(12), hll_union(12)
            for nth in order[:middle]:
                one.update(hll_sketch.deserialize(images[nth]))
            for nth in order[middle:]:
                other.update(hll_sketch.deserialize(images[nth]))
            one.update(other.get_result(tgt_hll_type.HLL_8))
            result = one.get_result(tgt_hll_type.HLL_8).serialize_updatable()
            print(json.dumps({"order": order, "registers": result[40 : 40 + 4096].hex()}))


def read_hll(image):
    """What the sketch says of itself, and when joined with items 1,000 to 4,000 that the package counted."""
    sketch = hll_sketch.deserialize(image)
    union = hll_union(sketch.lg_config_k)
    union.update(sketch)
    alone = union.get_estimate()
    union.update(hll(8, sketch.lg_config_k, range(1_000, 4_000)))
    return {
        "lg_k": sketch.lg_config_k,
        "is_empty": sketch.is_empty(),
        "estimate": sketch.get_estimate(),
        "lower": sketch.get_lower_bound(3),
        "upper": sketch.get_upper_bound(3),
        "alone_in_a_union": alone,
        "joined": union.get_estimate(),
    }


def read_longs(image):
    return read_items(frequent_items_sketch.deserialize(image, PyLongsSerDe()), absent=-1_000)


def read_strings(image):
    return read_items(frequent_strings_sketch.deserialize(image), absent="absent")


def read_items(sketch, absent):
    rows = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
    return {
        "total": sketch.total_weight,
        "absent": sketch.get_upper_bound(absent),
        "items": [[item, lower, upper] for item, _, lower, upper in rows],
    }


main()
