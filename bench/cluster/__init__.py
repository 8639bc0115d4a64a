"""The scale experiment: several hosts with cards that limit them, on one machine, as root.

Real Ray nodes, the real loader and the real store; only the cables are make-believe. Three
experiments: (A) where three trainers' workers are, (B) what workers on other hosts are worth, over
what is shipped of what is fetched, (C) what a trainer notices when something fails. Prints tables,
writes `cluster.json`, and leaves nothing behind.

    .venv/bin/python -m bench.cluster [A|B|C|all] [--short]
"""
