"""Makes the databases of autonomous systems and countries that the unit tests read.

All networks, numbers and names in them are for documentation (RFC 5737, RFC 3849, RFC 5398); `XX` and `XY` are codes
that ISO 3166 leaves to users.
"""

import pathlib
import sys
import time

import mmdb_writer
from netaddr import IPSet

# The writer takes the time of the build from the clock. With another one the files would differ at every run.
time.time = lambda: 1_767_225_600

ASN = {
    "192.0.2.0/24": {"autonomous_system_number": 64496, "autonomous_system_organization": "Example Networks"},
    "198.51.100.0/24": {"autonomous_system_number": 4200000000},
    "203.0.113.0/24": {"autonomous_system_organization": "without a number"},
    "2001:db8::/32": {"autonomous_system_number": 64497, "autonomous_system_organization": "Exämple GmbH"},
}
COUNTRY = {
    "192.0.2.0/24": {"country": {"iso_code": "XX", "names": {"en": "Exampleland"}}, "registered_country": {"iso_code": "XY"}},
    "198.51.100.0/24": {"registered_country": {"iso_code": "XY"}},
    "203.0.113.0/25": {"country": {"iso_code": "x1"}},
    "203.0.113.128/25": {"country": {"iso_code": "XXX"}},
    "2001:db8::/32": {"country": {"iso_code": "XY"}},
}


def write(path, database_type, records, ip_version):
    writer = mmdb_writer.MMDBWriter(
        ip_version, database_type, ["en"], "for weir's tests", ipv4_compatible=ip_version == 6, int_type="u32"
    )
    for network, record in records.items():
        if ip_version == 6 or ":" not in network:
            writer.insert_network(IPSet([network]), record)
    writer.to_db_file(path)


directory = pathlib.Path(sys.argv[1])
write(str(directory / "asn.mmdb"), "GeoLite2-ASN", ASN, 6)
write(str(directory / "asn-ipv4.mmdb"), "Example-ASN", ASN, 4)
write(str(directory / "country.mmdb"), "GeoLite2-Country", COUNTRY, 6)
