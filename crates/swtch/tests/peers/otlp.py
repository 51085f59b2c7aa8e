"""What the messages of opentelemetry-proto hold of a file of OTLP profiles, as JSON: the sum of
values by profile and thread, functions, and the resource. Fails where a rule of the format is broken.

    PYTHONPATH=READER python3 otlp.py FILE
"""

import json
import sys
from collections import Counter

from opentelemetry.proto.profiles.v1development import profiles_pb2

data = profiles_pb2.ProfilesData()
with open(sys.argv[1], "rb") as file:
    data.ParseFromString(file.read())
tables = data.dictionary
texts = tables.string_table

# The first entry of each table is the empty one. That of links has ids of zeros.
assert texts[0] == ""
for name in ("mapping", "location", "function", "attribute", "stack"):
    assert getattr(tables, f"{name}_table")[0].ByteSize() == 0, name
assert tables.link_table[0].trace_id == bytes(16) and tables.link_table[0].span_id == bytes(8)


def is_unique(table):
    entries = [entry.SerializeToString(deterministic=True) for entry in table]
    return len(entries) == len(set(entries))


def value_of(value):
    return getattr(value, value.WhichOneof("value"))


assert len(texts) == len(set(texts))
for table in (tables.function_table, tables.attribute_table, tables.stack_table):
    assert is_unique(table)

(resource,) = data.resource_profiles
(scope,) = resource.scope_profiles
sums = {}
for profile in scope.profiles:
    kind = texts[profile.sample_type.type_strindex]
    assert texts[profile.sample_type.unit_strindex] == "nanoseconds"
    threads, identities = Counter(), set()
    for sample in profile.samples:
        attributes = {}
        for place in sample.attribute_indices:
            attribute = tables.attribute_table[place]
            attributes[texts[attribute.key_strindex]] = value_of(attribute.value)
        assert len(attributes) == len(sample.attribute_indices)
        assert attributes["swtch.reason"] and attributes["process.title"]
        identity = (sample.stack_index, tuple(sorted(sample.attribute_indices)))
        assert identity not in identities
        identities.add(identity)
        for location in tables.stack_table[sample.stack_index].location_indices:
            for line in tables.location_table[location].lines:
                assert texts[tables.function_table[line.function_index].name_strindex]
        (value,) = sample.values
        assert value > 0
        threads[attributes["thread.id"]] += value
    sums[kind] = threads

print(
    json.dumps(
        {
            "sums": sums,
            "texts": list(texts),
            "duration": scope.profiles[0].duration_nano,
            "began": scope.profiles[0].time_unix_nano,
            "resource": {one.key: value_of(one.value) for one in resource.resource.attributes},
        }
    )
)
