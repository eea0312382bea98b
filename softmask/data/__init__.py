"""Files in, GraphStore out."""

from softmask.data.features import Features
from softmask.data.store import GraphStore

__all__ = ["Features", "GraphStore"]
