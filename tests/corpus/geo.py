"""Makes the databases of autonomous systems and countries that the tests read.

All networks, numbers and names in them are for documentation or private use (RFC 5737, RFC 3849, RFC 5398, RFC 1918,
RFC 6598); `XX`, `XY` and `XZ` are codes that ISO 3166 leaves to users.
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
# Networks of the traffic that the tests generate. A part of each has no record.
TRAFFIC_ASN = {
    "10.0.0.0/9": {"autonomous_system_number": 64500, "autonomous_system_organization": "Example Access"},
    "10.128.0.0/10": {"autonomous_system_number": 64501, "autonomous_system_organization": "Example Campus"},
    "100.64.0.0/11": {"autonomous_system_number": 64502, "autonomous_system_organization": "Example Hosting"},
    "100.96.0.0/12": {"autonomous_system_number": 4200000001, "autonomous_system_organization": "Example Cloud"},
    "2001:db8:1::/49": {"autonomous_system_number": 64503, "autonomous_system_organization": "Example Six"},
    "2001:db8:2::/48": {"autonomous_system_number": 64504, "autonomous_system_organization": "Example Seven"},
}
TRAFFIC_COUNTRY = {
    "10.0.0.0/9": {"country": {"iso_code": "XX"}},
    "100.64.0.0/11": {"country": {"iso_code": "XY"}},
    "100.96.0.0/12": {"country": {"iso_code": "XX"}},
    "2001:db8:2::/48": {"country": {"iso_code": "XZ"}},
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
write(str(directory / "traffic-asn.mmdb"), "GeoLite2-ASN", TRAFFIC_ASN, 6)
write(str(directory / "traffic-country.mmdb"), "GeoLite2-Country", TRAFFIC_COUNTRY, 6)
