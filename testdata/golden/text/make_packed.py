#!/usr/bin/env python3
"""Makes packed.json: three conversations of chats.json as one packed row of each model.

The form was tried on transformers 5.24: tiny Qwen2-VL, Qwen2.5-VL and Qwen3-VL with sdpa give the
logits of the single conversations to 3e-7, and differ by 0.65 and more where there are only three
rows of positions, an attention mask or a cache.

  python make_packed.py > packed.json
"""

import json
from itertools import accumulate, pairwise
from pathlib import Path

MEMBERS = ["one image", "text only", "system, two images, two turns"]

chats = json.loads((Path(__file__).parent / "chats.json").read_text())
packed = {}
for kind in ("qwen3_vl", "qwen2_5_vl"):
    members = [c for c in chats if c["kind"] == kind and c["note"] in MEMBERS]
    ids, labels, positions, grids = [], [], [[], [], [], []], []
    for chat in members:
        length = range(len(chat["input_ids"]))
        own = chat["position_ids"]
        ids += chat["input_ids"]
        labels += [-100, *chat["labels"][1:]]
        grids += chat["image_grid_thw"]
        for row, values in zip(positions, [length, *([length] * 3 if own == "arange" else own)]):
            row += values
    starts = [0, *accumulate(len(chat["input_ids"]) for chat in members)]
    patches = [0, *accumulate(h * w for t, h, w in grids for _ in range(t))]
    packed[kind] = {
        "members": MEMBERS,
        "input_ids": ids,
        "labels": labels,
        "position_ids_4xL": positions,
        "cu_seq_lens": starts,
        "max_length": max(end - start for start, end in pairwise(starts)),
        "image_grid_thw": grids,
        "image_cu_seqlens": patches,
    }
print(json.dumps(packed, separators=(",", ":")))
