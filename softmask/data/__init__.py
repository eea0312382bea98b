"""Files in, GraphStore out."""

from softmask.data.catalog import open_data
from softmask.data.features import Features
from softmask.data.files import load_store, save_store
from softmask.data.store import GraphStore

__all__ = ["Features", "GraphStore", "load_store", "open_data", "save_store"]
