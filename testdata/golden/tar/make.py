"""Fills in `wds` in manifest.jsonl: what webdataset 1.0.2 reads from each archive (python make.py).

A sample is [key, extensions]; `wds_error` is the error that ended the reading, and `wds_partial` how
many samples came before it.
"""

import json
import pathlib

import webdataset

here = pathlib.Path(__file__).parent
cases = []
for line in (here / "manifest.jsonl").read_text().splitlines():
    case = {key: value for key, value in json.loads(line).items() if not key.startswith("wds")}
    samples = []
    dataset = webdataset.WebDataset(str(here / case["file"]), shardshuffle=False)
    try:
        for sample in dataset:
            parts = [name for name in sample if not name.startswith("__")]
            key = sample["__key__"].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            samples.append([key, parts])
        case["wds"] = samples
    except Exception as error:
        case["wds_error"] = f"{type(error).__name__}: {error}".replace(str(here), "…")[:120]
        case["wds_partial"] = len(samples)
    cases.append(json.dumps(case, ensure_ascii=False))
(here / "manifest.jsonl").write_text("\n".join(cases) + "\n")
