"""Explained graphs as one HTML page to explore."""

from softmask.explain.page.page import MOST_BYTES, THRESHOLDS, html_page

__all__ = ["MOST_BYTES", "THRESHOLDS", "html_page"]
