"""Adapters between a loader and the trainers people use. None is needed in a loop of one's own.

| trainer | is given |
|---|---|
| a loop, DDP, FSDP2, `torch.distributed.checkpoint` | the loader itself |
| Accelerate | `stoker.trainers.DataLoader` |
| transformers' `Trainer`, TRL's `SFTTrainer` | `stoker.trainers.transformers.TrainerMixin` |
| Lightning | `stoker.trainers.lightning.DataModule` |
| torchtitan, and what else takes pairs | `stoker.trainers.torchtitan.DataLoader` |

All save the state of the batch that was trained on last, not of the one that was taken last. The
trainer's own library is imported by the module that is named like it, and by no other.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    _message = "stoker.trainers needs torch, which is not installed: pip install 'stoker[torch]'"
    raise ModuleNotFoundError(_message, name="torch") from _error

from stoker.trainers.data_loader import Batches, DataLoader

__all__ = ["Batches", "DataLoader"]
