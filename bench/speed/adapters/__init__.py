"""A module for each rival, and for stoker: `open(job)` gives batches without end.

A batch is a dict of the tensors that the model takes: `pixel_values`, `image_grid_thw`,
`input_ids`, `attention_mask`, `labels`. Where a rival wants its data in a form of its own,
`prepare(job)` makes it, before anything is measured. The iterator is a generator: closing it ends
what it started.
"""
