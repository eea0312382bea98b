"""A study told to people: on the terminal, as Markdown, as one HTML page, and as TensorBoard's event files."""

from softmask.study.report.markdown import markdown_report
from softmask.study.report.page import html_report
from softmask.study.report.tensorboard import write_events
from softmask.study.report.terminal import print_report

__all__ = ["html_report", "markdown_report", "print_report", "write_events"]
