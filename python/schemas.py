"""The JSON schemas of everything that swtch prints as JSON: one table here, one file each there.

    python schemas.py        writes docs/schemas/ anew

A row of ANSWERS is an answer by its `schema` word, as a shape:

    {"key": shape}       an object with these keys and no others; a key with `?` may be absent,
                         and the key "" stands for columns beside the others
    [shape]              a list
    "text"               a named kind of KINDS; `text?` is that or null
    "@host"              a shape that several answers share, of SHARED

A string of several words is an object whose keys are columns. What a column holds follows from its
name: COLUMNS says it once for all answers, and names that end in a unit need no row there. Column
names that end in `?` may be null, and columns that begin with `~` may be absent.

`tests/test_schemas.py` compares real answers of all commands with the written files: a key that is
renamed, added or left out in the program fails there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swtch.schema import REASONS

Shape = str | dict[str, Any] | list[Any]

PLACE = Path(__file__).resolve().parents[1] / "docs/schemas"

# Columns of a line in the written files.
WIDTH = 160

DIALECT = "https://json-schema.org/draft/2020-12/schema"

KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "count": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "share": {"type": "number", "minimum": 0},
    "yes": {"type": "boolean"},
    "address": {"type": "string", "pattern": "^0x[0-9a-f]+$"},
    "reason": {"enum": [reason for reason, _ in REASONS]},
    "category": {"enum": list(dict.fromkeys(category for _, category in REASONS))},
    "any": {},
}

# What the columns of reports hold and mean: the program's own words, which its tests keep there.
WORDS = json.loads((PLACE / "columns.json").read_text())

# The program's words for what a column holds: the kind, and the unit in words.
HOLDS = {
    "text": ("text", ""),
    "texts": ("texts", ""),
    "count": ("count", ""),
    "id": ("count", ""),
    "address": ("address", ""),
    "time": ("count", ", in ns"),
    "percent": ("number", ", in percent"),
    "number": ("number", ""),
}

# Columns whose text is one of a list.
LISTED = {"reason": "reason", "main_reason": "reason", "category": "category"}


def _word(key: str, word: dict[str, str]) -> tuple[str, str]:
    kind, unit = HOLDS[word["holds"]]
    return LISTED.get(key, kind), word["help"] + unit


# A column that the end of its name does not tell, or that needs words: its kind, and what it means.
COLUMNS: dict[str, tuple[str, str]] = {key: _word(key, word) for key, word in WORDS.items()} | {
    # who
    "comm": ("text", "name of the thread or process; a process may choose any name, so it is data"),
    "preemptor_process": ("text", ""),
    "preempted_process": ("text", ""),
    # why
    "blocked_on": ("reason", "the reason of most blocked time"),
    "waits_for": ("reason", "what it is blocked on at the end of the frame"),
    "lock": ("text", "the futex word that threads wait for, as 0x…"),
    "relation": (
        "text",
        "whether both are of one process, of one cgroup, or foreign to each other",
    ),
    # how many
    "threads": ("count", ""),
    "waiting_threads": ("count", "threads of it that are blocked at the end of the frame"),
    "hops": ("count", ""),
    # prices
    "between": ("text", "threads or processes"),
    "where": ("text", "on which CPUs"),
    "policy": ("text", "scheduling policy"),
    "what": ("text", "what was done to the program, and what of it the row is about"),
    "touched_bytes": ("count", "memory that the task touches which takes the CPU"),
    "moments": ("count", "moments at which this was done, and a unit of work was met"),
    "change": ("text", ""),
    "ratio": ("number", ""),
    "ratio_low": ("number", ""),
    "ratio_high": ("number", ""),
    "quota_cpus": ("number", "how many CPUs the cgroup may use"),
    "quota_of": ("text", "the cgroup that has this quota: it, or one above it"),
    # user-mode schedulers
    "mode": ("text", "how the scheduler runs its workers"),
    "state": ("text", ""),
    "task": ("text", "name of the task; a program may choose any name, so it is data"),
    "task_state": ("text", ""),
    "io_driver": ("text", ""),
    "wait_type": ("text", ""),
    "last_wait_type": ("text", ""),
    "wait_resource": ("address", ""),
    "resource": ("address", ""),
    "histogram": ("texts", "how many waits were that long or longer: 1024ns:7"),
    "consistency": ("text", "whole, rows or torn: how the counters were read"),
    "os_per_user_switch": ("number", ""),
}

# Numbers whose names say enough.
NUMBERS = """scheduler runtime scheduler_id cpu_id is_idle accounting load_factor
    failed_to_create_worker active_worker active_thread worker task_id parent_task_id
    signal_worker stack_bytes_used os_thread_id run stack_bytes last_signal_task_id
    workers schedulers os_voluntary os_involuntary"""
COLUMNS |= dict.fromkeys(NUMBERS.split(), ("count", ""))

# Ends of names that say what a column holds. The first that fits counts.
ENDS = (
    ("_pct", "number", "percent"),
    ("_per_s", "number", "each second"),
    ("_ns", "count", "nanoseconds"),
    ("_count", "count", ""),
)

TALLY = """switches share_pct? voluntary involuntary main_reason? main_reason_pct?
    ran_ns waits off_ns blocked_ns? runq_ns? open_waits open_ns"""
# A scheduler has a `runtime`, too, which is a number.
OWNER = "pod_uid? runtime:text? container_id? pod_qos?"
NEIGHBOURS_OWNER = " ".join(f"neighbour_{column}" for column in OWNER.split())
LENGTHS = " ".join(
    f"{length}_{point}_ns?"
    for length in ("run", "runq", "off")
    for point in ("p50", "p90", "p99", "p99_9", "max")
)
REASON_TALLY = """reason category switches share_pct? certain_pct? voluntary involuntary
    ran_ns waits off_ns blocked_ns? runq_ns? open_waits open_ns"""
BILLED = """switches direct_ns? direct_low_ns? direct_high_ns? indirect_high_ns?
    share_of_wall_pct? share_of_cpu_pct? measured_pct? ran_ns unpriced"""
LIVE_RUNQ = "runq_p50_below_ns? runq_p99_below_ns? runq_pct?"
LIVE_COST = "cost_pct? cost_low_pct? cost_high_pct? cost_per_s_ns:number? switches switches_per_s"
LIVE_SPENT = "on_cpu_pct? own_process_per_s own_cgroup_per_s foreign_per_s blocked_pct?"
LIVE = f"""main_reason? {LIVE_COST} {LIVE_RUNQ} {LIVE_SPENT} blocked_on?
    involuntary_per_s voluntary_per_s"""

ROWS: dict[str, str] = {
    "reason": f"{REASON_TALLY} {LENGTHS}",
    "process": f"process pid? command? earlier_names {TALLY}",
    "thread": f"thread tid? pid? process? earlier_names {TALLY}",
    "preemptor": "preemptor kind tid? pid? switches? by_its_wakeup? waits runq_ns share_pct?",
    "waker": """waker kind waker_tid? waker_pid? woken woken_tid? woken_pid?
        switches share_pct? blocked_ns runq_ns""",
    "syscall": f"syscall number? {TALLY}",
    "wait": """wait_key kind process? pid? switches share_pct? waits off_ns blocked_ns runq_ns
        waiters woken_by_waiters_pct? last_wakers woken_from?""",
    "stack": """switches share_pct? off_ns off_low_ns off_high_ns blocked_ns runq_ns
        reasons processes user_frames kernel_frames folded""",
    "cpu": f"cpu ~node? ~core_cpus? {TALLY}",
    "cgroup": f"cgroup cgroup_id {OWNER} {TALLY}",
    "neighbour": f"""neighbour kind neighbour_id? {NEIGHBOURS_OWNER} cgroup? cgroup_id?
        {OWNER} waits? runq_ns share_pct?""",
    "span": """span trace_id? thread tid? began_ns length_ns ran_ns runq_ns blocked_ns switches
        reason? longest_wait_ns? waited_in? waker? longest_runq_ns taker?""",
    "level": """level switches per_s:number? voluntary involuntary main_reason? main_reason_pct?
        ran_ns run_mean_ns? run_p50_ns? run_p99_ns? waits off_ns blocked_ns runq_ns""",
    "bill.reason": f"reason category {BILLED}",
    "bill.process": f"process pid? command? earlier_names {BILLED}",
    "bill.thread": f"thread tid? pid? process? earlier_names {BILLED}",
    "bill.stack": f"user_frames kernel_frames folded {BILLED}",
    "bill.pair": f"thread tid? pid? next next_tid? next_pid? {BILLED}",
}

# Reports with a last line of sums.
SUMMED = {*ROWS} - {"wait", "stack", "span", "level"}

VIEWS_OF_TOP: dict[str, str] = {
    "processes": f"process pid? waiting_threads? user_switches_per_s? {LIVE}",
    "threads": f"""thread tid? process? pid? waits_for? wait_lasts_ns? user_switches_per_s?
        {LIVE}""",
    "cgroups": f"cgroup quota_cpus? quota_of? throttled_per_s? throttled_pct? {LIVE}",
    "reasons": f"reason category {LIVE_COST} {LIVE_RUNQ} {LIVE_SPENT}",
    "preemptions": f"""preemptor preemptor_tid? preempted preempted_tid? relation reason
        preemptor_process? preempted_process? {LIVE_COST} {LIVE_RUNQ}""",
    "locks": f"""lock process? pid? mean_blocked_ns? blocked_pct? on_cpu_pct?
        {LIVE_COST} {LIVE_RUNQ}""",
    "cpus": "cpu switches_per_s from_idle_per_s switches",
}

VIEWS_OF_FIBER: dict[str, str] = {
    "processes": "pid comm mode:texts schedulers workers context_switches_count age_ns?",
    "schedulers": """scheduler runtime scheduler_id mode cpu_id? is_idle accounting
        context_switches_count yield_count self_reselect_count preemptive_switches_count
        idle_switches_count total_scheduler_delay_ns runnable_tasks_count current_tasks_count
        current_workers_count active_workers_count work_queue_count queued_preemptive_count
        io_driver? pending_io_count load_factor failed_to_create_worker active_worker?
        active_thread? quantum_ns current_run_ns? total_running_ns total_idle_ns
        tasks_completed_count os_interrupted_quanta_count quantum_expired_count
        stolen_tasks_count stalls_count consistency""",
    "workers": """worker scheduler? thread:count? state state_ns task_id? task? parent_task_id?
        task_age_ns running_ns runnable_ns suspended_ns preemptive_ns context_switch_count
        yield_count last_wait_type? wait_resource signal_worker? boost_count stack_bytes_used?
        tasks_processed_count os_interrupted_quanta_count age_ns consistency""",
    "tasks": "task_id task? task_state scheduler? worker parent_task_id? age_ns",
    "threads": """os_thread_id kind scheduler? task_id? run cpu_time_ns? run_queue_time_ns?
        stack_bytes age_ns""",
    "wait_stats": """scheduler wait_type waiting_tasks_count completed_count wait_time_ns
        max_wait_time_ns signal_wait_time_ns histogram""",
    "waiting_tasks": """task_id task? worker scheduler? wait_type? resource wait_duration_ns
        last_signal_task_id?""",
    "os_switches": """scheduler mode threads context_switches_count yield_count
        self_reselect_count os_voluntary? os_involuntary? os_interrupted_quanta_count
        cpu_time_ns? run_queue_time_ns?""",
    "rates": """at_ns scheduler mode user_switches_per_s? yields_per_s? self_reselects_per_s?
        user_switch_ns:number? user_switching_pct? os_voluntary_per_s? os_involuntary_per_s?
        os_switch_ns:number? os_switching_pct? cpu_pct? runnable_tasks_count
        scheduler_delay_ns_per_s? os_per_user_switch?""",
}

SHARED: dict[str, Shape] = {
    # The machine that a trace was recorded on.
    "traced_host": {
        "hostname": "text",
        "kernel_release": "text",
        "machine": "text",
        "cpus": "count",
        "usable_cpus": "count?",
        "topology": ["null", {"nodes": [{"node": "count", "cpus": "text"}], "cores": "texts"}],
    },
    # The machine that answers.
    "host": {
        "hostname": "text",
        "kernel_release": "text",
        "kernel_version": "text",
        "machine": "text",
        "cpus": "count",
    },
    "short_host": {
        "hostname": "text",
        "kernel_release": "text",
        "machine": "text",
        "cpus": "count",
    },
    # The machine that prices were measured on.
    "origin": {
        "hostname": "text",
        "kernel_release": "text",
        "kernel_version": "text",
        "machine": "text",
        "cpu_model": "text",
        "cpus": "count",
        "boot_id": "text",
        "measured_at": "text",
        "swtch_version": "text",
    },
    "trace": {
        "path": "text",
        "command": "texts?",
        "scope": "text",
        "imported": [
            "null",
            {
                "format": "text",
                "file": "text",
                "events": "texts",
                "runs_without_start": "count",
                "unreadable_records": "count",
            },
        ],
        "duration_ns": "count",
        "switches": "count",
        "rows": "count",
        "rows_out_of_scope": "count",
        "filter": "text?",
        "lost": "count",
        "untraced": "count",
        "untraced_in_scope": "count?",
        "complete": "yes",
        "gaps": [{"cpu": "count", "start_ns": "count", "end_ns": "count", "lost": "count"}],
        "incomplete": "text?",
        "stop_reason": "text?",
        "rules_version": "count",
        "missing_hooks": "texts",
        "left_out_hooks": "texts",
        "overhead": {
            "recorder_cpu_ns": "count",
            "recorder_peak_rss_bytes": "count",
            "bytes": "count",
            "kernel_ns_per_switch": "number?",
            "kernel_runs_per_switch": "number?",
            "kernel_cost_switches": "count",
        },
    },
    "balance": {
        "switches_seen": "count",
        "stored": "count",
        "filtered": "count",
        "lost": "count",
        "unnamed": "count",
        "storage_failed": "count",
        "storage_refused": "count",
        "lost_names": "count",
        "idle": "count",
        "kernel_ctxt_before": "count?",
        "kernel_ctxt_after": "count?",
    },
    "prices": {
        "origin": "@origin",
        "session": "text",
        "effort": "text",
        "warnings": "texts",
        "tariffs": [
            "either",
            {
                "reason": "reason",
                "successor": "text",
                "switches": "count",
                "direct_ns": "share",
                "direct_low_ns": "share",
                "direct_high_ns": "share",
                "source": "text",
                "estimated_because": "texts?",
            },
            {
                "reason": "reason",
                "successor": "text",
                "switches": "count",
                "unpriced_because": "text",
            },
        ],
        "indirect": {"most_ns": "count?", "source": "text"},
    },
    "estimate": {
        "point": "number?",
        "low": "number?",
        "high": "number?",
        "confidence": "number",
        "trees": "count",
        "rounds": "count",
    },
    "contrast": {
        "name": "text",
        "about": "text",
        "difference_ns": "@estimate",
        "ratio": "@estimate",
        "p": "number",
        "control_of": "text?",
        "proof": "text?",
        "verdict": "text",
    },
    "dropped": {"foreign_switch": "count", "too_long": "count"},
    "target": {
        "pid": "count",
        "comm": "text",
        "has_ended": "yes",
        "taken_monotonic_ns": "count",
        "counted_for_ns": "count",
        "schedulers": "count",
        "schedulers_ended": "count",
    },
    "fact": {
        "name": "text",
        "value?": "text",
        "unknown?": "text",
        "source": "text",
        "note": "text",
    },
    "obstacle": {"why": "text", "remedies": "texts"},
    "runs": {
        "runs": [
            {
                "path": "text",
                "hostname": "text",
                "kernel_release": "text",
                "preemption": "text?",
                "cpus": "count",
                "usable_cpus": "count?",
                "cpu_model": "text?",
                "command": "texts?",
                "scope": "text",
                "duration_ns": "count",
                "lost": "count",
                "cpu_pressure_ns": "count?",
                "steal_ns": "count?",
                "missing": "texts",
            }
        ]
    },
    "experiment": {
        "schema": "text",
        "host": "@origin",
        "experiment": "text",
        "title": "text",
        "parameters": {"*": "any"},
        # Each experiment has tables of its own, by name: rows of texts and numbers.
        "tables": {"*": [{"*": "any"}]},
        "sentences": "texts",
        "answers": [{"claim": "text", "ours": "text", "verdict": "text", "why?": "text?"}],
        "notes": "texts",
        "was_interrupted": "yes",
    },
    # One sentence for what a finding would save.
    "saving": {
        "words": "text",
        "what": "text",
        "switches_per_s": "number",
        "direct_share_of_wall_pct": "number",
        "direct_low_share_of_wall_pct": "number",
        "direct_high_share_of_wall_pct": "number",
        "indirect_high_share_of_wall_pct": "number?",
        "measured_pct": "number?",
        "unpriced": "count",
    },
}


def total_of(columns: str) -> str:
    """The last line of a table: a word in its first column, and null where there is no sum."""
    first, *others = columns.split()
    name = first.partition(":")[0].removesuffix("?")
    return " ".join([f"{name}:text", *(one if one.endswith("?") else f"{one}?" for one in others)])


# What an answer says of the columns of its rows.
DESCRIBED: Shape = [
    {"key": "text", "head": "text", "holds": "text", "help": "text", "tables": "texts"}
]


def report(name: str) -> Shape:
    """An answer of `swtch report`."""
    rows = ROWS[name]
    # The sums of no rows, and of reports without sums, are null.
    total: Shape = ["null", total_of(rows)] if name in SUMMED else "null"
    answer: dict[str, Any] = {
        "host": "@traced_host",
        "trace": "@trace",
        "columns": DESCRIBED,
        "rows": [rows],
        "total": total,
        "notes": "texts",
    }
    if name.startswith("bill."):
        answer["prices"] = "@prices"
    if name == "level":
        answer |= {
            "reasons": [
                {"reason": "reason", "category": "category", "os": "count", "user": "count"}
            ],
            "attribution": {
                "os_switches_of_scheduler_threads": "count",
                "with_worker": "count",
                "without_worker": "count",
                "with_worker_pct": "share?",
            },
            # Further tables and facts of a trace with user-mode schedulers.
            "user": "any",
            "os_switches_in_user_run?": "any",
            "user_switches_in_os_run?": "any",
        }
    return answer


def table(columns: str, *, notes: bool = False) -> Shape:
    """A table among others of an answer."""
    shape: dict[str, Any] = {"rows": [columns], "total": ["null", total_of(columns)]}
    return {**shape, "notes": "texts"} if notes else shape


PREEMPTIONS = """preemptor tid? pid? preempted preempted_tid? reason cause switches share_pct?"""
SUMMARY_REASONS = f"""{REASON_TALLY} irq_ns run_max_ns? off_p50_below_ns? off_p99_below_ns?
    off_max_ns? runq_p50_below_ns? runq_p99_below_ns? runq_max_ns?"""

COUNTED_SPANS = [{"span": "text", "count": "count", "p50_ns": "count?", "p99_ns": "count?"}]

# Threads of a program that were blocked alike from before the recording until its end.
LASTING = """program threads process_count state syscall? kernel_function? last_ran_before_ns?
    first_ran_before_ns? pids tids"""

# Sums over turns; the times sum to their lengths.
TURNS: Shape = {
    "turns": "count",
    "switches": "count",
    "length_ns": "count",
    "ran_ns": "count",
    "no_cpu_ns": "count",
    "blocked_ns_by_reason": {"*": "count"},
}

ANSWERS: dict[str, Shape] = {
    **{f"swtch.report.{name}/1": report(name) for name in ROWS},
    "swtch.explain/1": {
        "host": "@traced_host",
        "trace": "@trace",
        "balance": "@balance",
        "reasons": [ROWS["reason"]],
        "reasons_total": ["null", total_of(ROWS["reason"])],
        "processes": [ROWS["process"]],
        "threads": [ROWS["thread"]],
        "preemptors": [ROWS["preemptor"]],
        "preemptors_total": ["null", total_of(ROWS["preemptor"])],
        "waits": [ROWS["wait"]],
        "wakers": [ROWS["waker"]],
        # Null in a trace without stacks.
        "stacks": ["null", [ROWS["stack"]]],
        # Null where the recorder did not look for them.
        "lasting": ["null", [LASTING]],
        # Null without prices.
        "bill": ["null", [ROWS["bill.reason"]]],
        "bill_total": ["null", total_of(ROWS["bill.reason"])],
        "bill_notes": "texts?",
        "prices": ["null", "@prices"],
        "summary": {
            "switches_by_reason": {"*": "count"},
            "runq_ns_by_reason": {"*": "count"},
            "blocked_ns_by_reason": {"*": "count"},
        },
        "fired": "text?",
        "lost": {
            "ran_ns": "count",
            "no_cpu_ns": "count",
            "no_cpu_at_end_ns": "count",
            "in_work_ns": "count",
            "workers_ns": "count",
            "for_own_ns": "count",
            "for_others_ns": "count",
            "until_a_time_ns": "count",
            "untold_ns": "count",
        },
        "findings": [
            {
                "name": "text",
                "number": "count?",
                "kind": "text",
                "reason": "reason?",
                "switches": "count",
                "share_pct": "share?",
                "time_ns": "count",
                "time_share_pct": "share?",
                "seen": "text",
                "places": "texts",
                "advice": "text?",
                "advice_unless": "text?",
                "worth": ["null", "@saving"],
                "longest": ["null", {"task": "count", "from_ns": "count", "to_ns": "count"}],
            }
        ],
        "without_findings": "text?",
        # Spans that were asked for, then turns (from a message to the next wait for one).
        "turns": [
            {
                "program": "text",
                "from": "text",
                "span": "text?",
                "cause_of_slowest": "text?",
                "all": TURNS,
                "slowest": TURNS,
                "p50_ns": "count?",
                "p99_ns": "count?",
                "longest_ns": "count?",
                "longest_at_ns": "count?",
                "longest_thread": "text",
                "perhaps_more": "count",
                "broken": "count",
                "without_message": "count",
            }
        ],
        # Sums, to be divided by `--unit N`; null without it.
        "per_unit": [
            "null",
            {
                "units": "count",
                "switches": "count",
                "ran_ns": "count",
                "no_cpu_ns": "count",
                "in_work_ns": "count",
            },
        ],
    },
    "swtch.summary/1": {
        "host": "@traced_host",
        "summary": "@trace",
        "balance": "@balance",
        "reasons": table(SUMMARY_REASONS, notes=True),
        "threads": table(ROWS["thread"], notes=True),
        "preemptions": table(PREEMPTIONS, notes=True),
        "spans": COUNTED_SPANS,
        "not_known": "texts",
    },
    "swtch.counters/1": {
        "host": "@host",
        "trace": {
            "source": "text",
            "command": "texts?",
            "exit_code": "count?",
            "left_running": "count?",
            "pids": ["null", ["count"]],
            "ended": "count?",
            "duration_ns": "count",
            "switches": "count",
            "voluntary": "count",
            "involuntary": "count",
            "is_exact": "yes",
            "user_ns": "count?",
            "system_ns": "count?",
            "sampled_switches": "count",
            "sampled_ran_ns": "count?",
            "sampled_runq_ns": "count?",
            "samples": "count",
            "longest_gap_ns": "count",
            "threads_ended": "count",
            "threads_unreadable": "count",
            "overhead_cpu_ns": "count",
        },
        "rows": ["pid tid comm switches voluntary involuntary ran_ns? runq_ns? ended:yes"],
        "waits": {
            "looks": "count",
            "longest_gap_ns": "count",
            "looks_refused": "count",
            "looks_moved_on": "count",
            "blocked_ns": "count?",
            "rows": [
                {
                    "comm": "text",
                    "reason": "reason",
                    "syscall": "text?",
                    "looks": "count",
                    "about_ns": "count",
                    "on": [{"object": "text", "looks": "count", "about_ns": "count"}],
                    "waited_in": [
                        {"frames": "texts", "ended": "text?", "looks": "count", "about_ns": "count"}
                    ],
                }
            ],
        },
        "cannot_tell": "texts",
        "obstacles": ["@obstacle"],
    },
    "swtch.diff/1": {
        "a": "@runs",
        "b": "@runs",
        "per": "text",
        "span": "text?",
        "filter": "text?",
        "differences": [{"what": "text", "a": "text", "b": "text", "why": "text"}],
        "method": "text",
        "judged_together": "count",
        "confidence_of_all": "number",
        "verdict": "text",
        "hidden_in_half_pct": "number?",
        "fail_over_pct": "number?",
        "regressions": "texts",
        "columns": DESCRIBED,
        "rows": [
            {
                "": """verdict figure kind reason? taker? victim? stack? unit before? after?
                    change_pct? low_pct? high_pct? adjusted_p? scale? worse_is is_regression
                    not_judged_because?""",
                "before_runs": ["number?"],
                "after_runs": ["number?"],
            }
        ],
        "notes": "texts",
    },
    "swtch.top/1": {
        "host": "@short_host",
        "scope": "text",
        "frame": {
            "at_ns": "count",
            "interval_ns": "count",
            "switches": "count",
            "voluntary": "count",
            "involuntary": "count",
            "from_idle": "count",
            "lost": "count",
            "untraced": "count",
            "lost_names": "count",
            "threads": "count",
            "switches_per_s": "number",
            "cost_pct": "number?",
            "cost_low_pct": "number?",
            "cost_high_pct": "number?",
            "unpriced": "count?",
            "own_cpu_pct": "number",
            "kernel_ns_per_switch": "number?",
            "groups": "count",
            "groups_in_use": "count",
            "spans": COUNTED_SPANS,
        },
        "absent_hooks": "texts",
        **{name: table(columns) for name, columns in VIEWS_OF_TOP.items()},
    },
    "swtch.prices/1": {
        "version": "count",
        "origin": "@origin",
        "facts": [{"name": "text", "value": "text?", "source": "text"}],
        "session": {
            "effort": "text",
            "id": "text",
            "seed": "count",
            "took_s": "number",
            "reference": "text",
            "twins": ["@contrast"],
            "contrast_policy": "text?",
            "cpu": "count?",
            "was_interrupted": "yes",
            "noise": {
                "trees": "count",
                "blocks": "count",
                "dropped": "@dropped",
                "sentinel_iqr_pct": "number?",
                "regimes": [
                    "null",
                    {
                        "count": "count",
                        "gap_pct": "number",
                        "fast_share_pct": "number",
                        "slow_share_pct": "number",
                    },
                ],
                "lag1": "number?",
                "effective_n": "number?",
                "steal_pct": "number?",
                "throttled": "count?",
                "interrupts_per_s": "number?",
                "foreign_switches": "count?",
                "was_steady": "yes",
                "a_a": [
                    "null",
                    {"difference": "@estimate", "ratio": "@estimate", "p": "number"},
                ],
            },
            # Why it is not quiet: each reason with figures of its own.
            "verdict": {"verdict": "text", "reasons?": [{"reason": "text", "*": "any"}]},
            "is_resolved": "yes",
        },
        "prices": [
            {
                "kind": "text",
                "section": "text",
                "members": "text?",
                "count": "count?",
                "place": "text?",
                "policy": "text?",
                "hand_off_ns": "@estimate",
                "baseline_ns": ["null", "@estimate"],
                "net_ns": ["null", "@estimate"],
                "voluntary_per_op": "number",
                "involuntary_per_op": "number",
                "per": {"per": "text", "because?": "text"},
                "system_calls": "number",
                "relative": ["null", "@estimate"],
                "dropped_rounds": "count",
            }
        ],
        "contrasts": ["@contrast"],
        "curves": [
            {
                "name": "text",
                "label": "text",
                "figure": "text",
                "size_is": "text",
                "points": [
                    {"size": "number", "net_ns": "@estimate", "hot_ns": ["null", "@estimate"]}
                ],
            }
        ],
        "cliff": [
            "null",
            {"last_before": "number", "first_behind": "number", "rise_ns": "number"},
        ],
        "kernel_share": [
            {
                "kind": "text",
                "members": "text",
                "policy": "text",
                "switches": "count",
                "share_ns": "@estimate",
                "probe_ns": "@estimate",
                "p50_ns": "number?",
                "p99_ns": "number?",
                "net_ns": "@estimate",
                "hand_off_ns": "@estimate",
            }
        ],
        "missing": [{"kind": "text", "why": "text"}],
    },
    "swtch.report.cost-compare/1": {
        "rows": [
            """kind between? where? policy? before_ns:number after_ns:number
            ratio ratio_low ratio_high change"""
        ],
        "notes": "texts",
    },
    "swtch.report.cost-of/1": {
        "origin": "@origin",
        "took_s": "number",
        "budget_pct": "number",
        "slowed_pct": "number",
        "load_before_pct": "number",
        "moments_drawn": "count",
        "moments": "count",
        "moments_late": "count",
        "units": "count",
        "unit_ns": "number",
        "spans": "texts",
        "spans_in_unit": "count?",
        "program_ran_ns": "count",
        "intruders_ran_ns": "count",
        "recording_ns": "number?",
        "steal_ns": "count?",
        "lost": "count",
        "was_interrupted": "yes",
        "rows": [
            "what touched_bytes? cost_ns:number cost_low_ns:number cost_high_ns:number moments?"
        ],
        "notes": "texts",
    },
    "swtch.report.cost-tails/1": {
        "origin": "@origin",
        "cpu": "count",
        "took_s": "number",
        "was_interrupted": "yes",
        "rows": [
            """kind between where policy p50_ns? p90_ns? p99_ns? p99_9_ns? longest_ns?
            hops clock_ns?"""
        ],
        "notes": "texts",
    },
    "swtch.doctor/1": {
        "host": "@host",
        "can_record": "yes",
        "abilities": [
            {"name": "text", "what": "text", "possible": "yes", "why": "texts", "remedies": "texts"}
        ],
        "hooks": [
            {
                "hook": "text",
                "need": "text",
                "present": "yes?",
                "can_crash": "yes",
                "without": "text",
            }
        ],
        # Null where the caller may not list programs.
        "foreign_programs": [
            "null",
            [{"tracepoint": "text", "program": "text", "count": "count"}],
        ],
        "kernel": ["@fact"],
        "facts": ["@fact"],
    },
    **{
        f"swtch.fiber.{name}/1": {
            "host": "@short_host",
            "target": "null" if name == "processes" else "@target",
            "rows": [columns],
            "notes": "texts",
        }
        for name, columns in VIEWS_OF_FIBER.items()
    },
    "swtch.lab.claims/1": {
        "host": "@origin",
        "took_s": "number",
        "was_interrupted": "yes",
        "claims": [
            {
                "claim": "text",
                "source": "text",
                "machine": "text?",
                "says": "text",
                "theirs": "text?",
                "doubt": "text?",
                "holds_when": "text?",
                "experiment": "text?",
                "verdict": "text",
                "why": "text?",
                "answers": "any",
            }
        ],
        "notes": "texts",
        "experiments": ["either", "@experiment", {"experiment": "text", "error": "text"}],
    },
    # Of any experiment: swtch.lab.launch/1, swtch.lab.quantum/1, …
    "swtch.lab.*/1": SHARED["experiment"],
    # Of `swtch lake query`.
    "swtch.query/1": {"columns": "texts", "rows": [{"*": "any"}]},
}


def schema_of(word: str) -> dict[str, Any]:
    """The JSON schema of the answers whose `schema` is this word."""
    shape = ANSWERS[word]
    assert isinstance(shape, dict)
    used: set[str] = set()
    body = _object({"schema": "text", **shape}, used)
    if "*" in word:
        body["properties"]["schema"] = {"type": "string", "pattern": _pattern(word)}
    else:
        body["properties"]["schema"] = {"const": word}
    made: dict[str, Any] = {}
    # A shared shape may name others.
    while missing := sorted(used - made.keys()):
        for name in missing:
            made[name] = _schema(SHARED[name], used)
    definitions = {"$defs": dict(sorted(made.items()))} if made else {}
    return {"$schema": DIALECT, "title": word, **body, **definitions}


def text_of(word: str) -> str:
    """The contents of that file."""
    return _text(schema_of(word), "") + "\n"


def _text(value: Any, indent: str) -> str:
    """JSON with as much on a line as fits: a column is one line."""
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or len(indent) + len(short) <= WIDTH:
        return short
    inner = indent + " "
    parts = [f"{inner}{json.dumps(key)}: {_text(one, inner)}" for key, one in value.items()]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def file_of(word: str) -> str:
    """The name of the file that holds the schema of this word."""
    name = word.removeprefix("swtch.").removesuffix("/1").replace(".*", "")
    return f"{name}.schema.json"


def _pattern(word: str) -> str:
    return "^" + word.replace(".", r"\.").replace("*", "[a-z0-9_-]+") + "$"


def _schema(shape: Shape, used: set[str]) -> dict[str, Any]:
    if isinstance(shape, dict):
        return _object(shape, used)
    if isinstance(shape, list):
        return _list(shape, used)
    words = shape.split()
    if len(words) > 1:
        return _columns(words)
    if shape.startswith("@"):
        used.add(shape[1:])
        return {"$ref": f"#/$defs/{shape[1:]}"}
    return _kind(shape)


def _list(shape: list[Any], used: set[str]) -> dict[str, Any]:
    """`[shape]` is a list, `["null", shape]` a choice, `["either", a, b]` a list of either."""
    match shape:
        case ["null", one]:
            return {"anyOf": [{"type": "null"}, _schema(one, used)]}
        case ["either", *choices]:
            return {"type": "array", "items": {"anyOf": [_schema(one, used) for one in choices]}}
        case [one]:
            return {"type": "array", "items": _schema(one, used)}
    raise ValueError(f"no shape: {shape}")


def _object(shape: dict[str, Any], used: set[str]) -> dict[str, Any]:
    others = shape.get("*")
    columns = _columns(shape.get("", "").split())
    known = {key: value for key, value in shape.items() if key not in {"", "*"}}
    own = {key.removesuffix("?"): _schema(one, used) for key, one in known.items()}
    return {
        "type": "object",
        "properties": columns["properties"] | own,
        "required": columns["required"] + [key for key in known if not key.endswith("?")],
        "additionalProperties": False if others is None else _schema(others, used),
    }


def _columns(words: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(_column(word) for word in words),
        "required": [_column(word)[0] for word in words if not word.startswith("~")],
        "additionalProperties": False,
    }


def _column(word: str) -> tuple[str, dict[str, Any]]:
    """The name and schema of a column: `name`, `name?`, `name:kind` or `name:kind?`."""
    nullable = word.endswith("?")
    name, _, given = word.removeprefix("~").removesuffix("?").partition(":")
    kind, meaning = COLUMNS[name] if name in COLUMNS else _by_end(name, given)
    schema = _kind((given or kind) + "?" * nullable)
    return name, {**schema, "description": meaning} if meaning else schema


def _by_end(name: str, given: str) -> tuple[str, str]:
    for end, kind, unit in ENDS:
        if name.endswith(end):
            return kind, unit
    if given:
        return given, ""
    raise ValueError(f"COLUMNS does not say what {name} holds")


def _kind(word: str) -> dict[str, Any]:
    if word == "null":
        return {"type": "null"}
    kind = KINDS[word.removesuffix("?")]
    if not word.endswith("?"):
        return dict(kind)
    if "enum" in kind:
        return {"enum": [*kind["enum"], None]}
    return {**kind, "type": [kind["type"], "null"]}


def main() -> None:
    """Writes a file for each answer, and removes files of answers that are no more."""
    PLACE.mkdir(exist_ok=True)
    for file in PLACE.glob("*.schema.json"):
        file.unlink()
    for word in ANSWERS:
        (PLACE / file_of(word)).write_text(text_of(word), encoding="utf-8")


if __name__ == "__main__":
    main()
