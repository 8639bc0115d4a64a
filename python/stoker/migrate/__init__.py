"""Recipes from what other loaders are set up with.

    python -m stoker.migrate energon metadataset.yaml --model models/qwen3-vl > recipe.toml
    python -m stoker.migrate mosaic streams.yaml > recipe.toml
    python -m stoker.migrate webdataset 's3://bucket/train-{000000..000127}.tar' > recipe.toml

Translated is what data there is and how it is mixed. What code does with samples (cookers, `map`,
collators) is not: a recipe says it in its own keys. What has no translation is an error that lists
all such places, and what is left out without harm is a warning; nothing is passed over in silence.
"""

from stoker.migrate.energon import from_energon
from stoker.migrate.mosaic import from_mosaic
from stoker.migrate.recipe import MigrationError, to_toml
from stoker.migrate.webdataset import from_webdataset

__all__ = ["MigrationError", "from_energon", "from_mosaic", "from_webdataset", "to_toml"]
