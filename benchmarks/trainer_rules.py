"""What it takes to find a rule of TRL's in its source, beside making the config object in another process.

`python benchmarks/trainer_rules.py` counts the rules of every shipped method and takes the CPU time of both.
"""

import ast
import subprocess
import sys
from statistics import median

TIMED = "import resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
PLANNED = "from fmtkit.training.planning import plan; from fmtkit.training.run import checklist"
READ = """
from fmtkit.training.planning import trl_refusals
made = plan.plan({"rl": "grpo", "micro_batch_size": 8}, partial=True)
"""
READ_TWICE = READ + "list(trl_refusals.check(made))\n" * 20
MADE = """
from trl import GRPOConfig
GRPOConfig(output_dir="x", use_cpu=True, bf16=False)
"""


def cpu_seconds(code: str) -> float:
    """Return the median of five processes of their own."""
    command = [sys.executable, "-c", f"{code}\n{TIMED}"]
    return median(
        float(
            subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()[-1]
        )
        for _ in range(5)
    )


def rules(config: str, trainer: str) -> set[tuple[str, int]]:
    """Return the places of the errors that a config class and a trainer raise when they are made."""
    from fmtkit.training.config.trainer_source import find_class

    found: set[tuple[str, int]] = set()
    for name, method in ((config, "__post_init__"), (trainer, "__init__")):
        made = find_class(name)
        for owner in made.lineage() if made else ():
            node = owner.method(method)
            for inner in ast.walk(node) if node else ():
                if isinstance(inner, (ast.Raise, ast.Assert)):
                    found.add((str(owner.module.file), inner.lineno))
    return found


def main() -> None:
    from fmtkit.core.runner import shipped
    from fmtkit.training.config.class_arguments import has_class

    every = {
        one.method: rules(one.config, one.trainer) for one in shipped() if has_class(one.config)
    }
    for method, found in every.items():
        print(f"{method:14} {len(found)} rules")
    print(f"{len(set().union(*every.values()))} different ones, of {len(every)} methods")
    imported = cpu_seconds(PLANNED)
    planned = cpu_seconds(PLANNED + READ)
    print(
        f"a plan, its source read: {planned - imported:.2f} s of CPU after {imported:.2f} s of imports"
    )
    print(
        f"the rules once more: {(cpu_seconds(PLANNED + READ_TWICE) - planned) / 20 * 1000:.1f} ms"
    )
    print(f"a process that makes a GRPOConfig: {cpu_seconds(MADE):.2f} s of CPU")


if __name__ == "__main__":
    main()
