"""The tables of a lake: `switches`, `contention`, `segments`. `docs/LAKE.md` describes the columns.

Columns are only added. A file that lacks some was written by an older package: they are null in its
rows. A file with more was written by a newer one: they are left out. Types are those that every
engine reads: no unsigned numbers, words as text.
"""

from __future__ import annotations

# Column -> type in the engine.
SWITCH_COLUMNS: dict[str, str] = {
    "segment": "VARCHAR",
    "host": "VARCHAR",
    "time_ns": "BIGINT",
    "cpu": "INTEGER",
    "tid": "INTEGER",
    "pid": "INTEGER",
    "comm": "VARCHAR",
    "cgroup": "VARCHAR",
    "category": "VARCHAR",
    "reason": "VARCHAR",
    "certainty": "VARCHAR",
    "class": "VARCHAR",
    "is_voluntary": "BOOLEAN",
    "ran_ns": "BIGINT",
    "wait_reason": "VARCHAR",
    "off_ns": "BIGINT",
    "blocked_ns": "BIGINT",
    "runq_ns": "BIGINT",
    "after_runq_ns": "BIGINT",
    "need_resched_delay_ns": "BIGINT",
    "irq_ns": "BIGINT",
    "stolen_ns": "BIGINT",
    "object_kind": "VARCHAR",
    "next_tid": "INTEGER",
    "next_pid": "INTEGER",
    "next_comm": "VARCHAR",
    "next_cgroup": "VARCHAR",
    "nominator_pid": "INTEGER",
    "nominator_comm": "VARCHAR",
    "waker_kind": "VARCHAR",
    "waker_pid": "INTEGER",
    "waker_comm": "VARCHAR",
}

# Run-queue time of a segment by who had the CPU meanwhile. The rows of a cgroup sum to its waits,
# but for tasks that change their cgroup in a run: these had waited in the one before.
CONTENTION_COLUMNS: dict[str, str] = {
    "segment": "VARCHAR",
    "host": "VARCHAR",
    "cgroup": "VARCHAR",
    "neighbour": "VARCHAR",
    "kind": "VARCHAR",
    "waits": "BIGINT",
    "runq_ns": "BIGINT",
    "container_id": "VARCHAR",
    "pod_uid": "VARCHAR",
    "neighbour_container_id": "VARCHAR",
    "neighbour_pod_uid": "VARCHAR",
}

# The columns that contention had when the manifest did not say which it has.
FIRST_CONTENTION_COLUMNS = "segment,host,cgroup,neighbour,kind,waits,runq_ns"

SEGMENT_COLUMNS: dict[str, str] = {
    "segment": "VARCHAR",
    "host": "VARCHAR",
    "date": "VARCHAR",
    "start_ns": "BIGINT",
    "end_ns": "BIGINT",
    "duration_ns": "BIGINT",
    "switches": "BIGINT",
    "lost": "BIGINT",
    "cpus": "INTEGER",
    "kernel": "VARCHAR",
    "machine": "VARCHAR",
    "preemption": "VARCHAR",
    "backend": "VARCHAR",
    "instance_type": "VARCHAR",
    "release": "VARCHAR",
    "price_ns": "DOUBLE",
    "price_low_ns": "DOUBLE",
    "price_high_ns": "DOUBLE",
    "booted_ns": "BIGINT",
    "clock": "VARCHAR",
    "source": "VARCHAR",
    "swtch_version": "VARCHAR",
    "added_ns": "BIGINT",
    "file": "VARCHAR",
    "file_bytes": "BIGINT",
    "file_crc32": "BIGINT",
    "file_columns": "VARCHAR",
    "contention_bytes": "BIGINT",
    "contention_crc32": "BIGINT",
    "rules_version": "BIGINT",
    "contention_columns": "VARCHAR",
}
