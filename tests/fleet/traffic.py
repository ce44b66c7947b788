"""Captures of a small fleet, and what is true of them."""

import ipaddress
import random
import struct
from collections import Counter, defaultdict
from pathlib import Path

START = 1_795_694_400  # 2026-11-26T12:00:00Z
MINUTES = [0, 1, 2]
TAIL = [30, 31, 32]  # minutes with a few packets of the first router, which tell a stream that time goes on
SIZES = [74, 200, 590, 1500]
PACKETS = 6_000  # of a router in a minute
SOURCES = 8_000


class Truth:
    """What routers saw, by router and minute. Rows of a list are bytes by key, written as weir writes it."""

    def __init__(self) -> None:
        self.rows = defaultdict(lambda: defaultdict(Counter))

    def add(self, router: str, minute: int, packet: "Packet") -> None:
        rows = self.rows[router, minute]
        for name, key in packet.keys().items():
            rows[name][key] += packet.size

    def top(self, name: str, minute: int, routers: list[str]) -> Counter:
        return sum((self.rows[router, minute][name] for router in routers), Counter())

    def distinct(self, name: str, minute: int, routers: list[str]) -> int:
        return len(self.top(LISTS[name], minute, routers))


# Which list has one row for each value of a distinct count.
LISTS = {"unique.src_ip": "sources", "unique.dst_ip": "destinations", "unique.flows": "flows"}


class Packet:
    def __init__(self, chance: random.Random, sources: list[int], weights: list[float]) -> None:
        self.src = chance.choices(sources, cum_weights=weights)[0]
        self.dst = 0xC6336400 + int(1_000 * chance.random() ** 4)
        self.ports = (1024 + (self.src * 7 + self.dst) % 60_000, chance.choice([443, 443, 443, 80, 53]))
        self.size = chance.choice(SIZES)

    def keys(self) -> dict[str, str]:
        src, dst = [str(ipaddress.IPv4Address(address)) for address in (self.src, self.dst)]
        flow = f"{src} {dst} {self.ports[0]} {self.ports[1]} udp"
        return {"sources": src, "destinations": dst, "pairs": f"{src} {dst}", "flows": flow}

    def frame(self) -> bytes:
        """Ethernet, IPv4 and UDP headers; the rest of the packet is cut off."""
        ethernet = struct.pack("!6s6sH", b"\2" * 6, b"\4" * 6, 0x0800)
        ip = struct.pack("!BBHHHBBHII", 0x45, 0, self.size - 14, 0, 0, 64, 17, 0, self.src, self.dst)
        return ethernet + ip + struct.pack("!HHHH", *self.ports, self.size - 34, 0)


def capture(path: Path, router: str, part: int, truth: Truth) -> None:
    """Writes the capture of a router. It has every source but every third one, another third for each `part`."""
    chance = random.Random(part)
    sources = [0x0A000000 + n * 37 for n in range(SOURCES) if n % 3 != part % 3]
    weights = cumulated([1 / (n + 1) for n in range(len(sources))])
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))  # nanoseconds
        for minute, count in [(minute, PACKETS) for minute in MINUTES] + [(m, 30) for m in TAIL if part == 0]:
            for n in range(count):
                packet = Packet(chance, sources, weights)
                truth.add(router, minute, packet)
                frame, nanos = packet.frame(), n * 60_000_000_000 // count
                seconds = START + 60 * minute + nanos // 10**9
                file.write(struct.pack("<IIII", seconds, nanos % 10**9, len(frame), packet.size) + frame)


def cumulated(weights: list[float]) -> list[float]:
    total, sums = 0.0, []
    for weight in weights:
        total += weight
        sums.append(total)
    return sums
