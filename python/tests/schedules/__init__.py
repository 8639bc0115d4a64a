"""Runs that are killed, resumed and rescaled at random, against a model of the order.

A *schedule* follows from a seed: which data, and a row of *attempts* to train on it, each on some
number of ranks, each of which ends badly somewhere. Trainers are processes of their own and really
die. What they were fed must be what `testdata/golden/plan/model.py` says, which was written from
the documentation, and byte for byte what a run was fed that nothing happened to.

| file | says |
|---|---|
| `jobs.py` | what is trained on: tiny datasets, with bad samples in them, and recipes |
| `schedule.py` | what happens to a run: a function of a seed |
| `trainer.py` | a trainer: it trains on nothing, keeps a log and saves checkpoints |
| `broken.py` | trainers and loaders that are wrong in ways that must be noticed |
| `driver.py` | starts the trainers of a schedule, kills them, starts the next ones |
| `oracle.py` | what should have come, and whether it did |

By hand, from `python/tests`: `python -m schedules --first 17 --count 1 --show`.
"""
