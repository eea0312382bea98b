"""Questions asked of data sets, and answers that can be defended: protocols, tuning, records, reports, executors."""

from softmask.study.ask import ask
from softmask.study.executors import Local
from softmask.study.record import Record, read_record
from softmask.study.settings import Settings
from softmask.study.study import Study

__all__ = ["Local", "Record", "Settings", "Study", "ask", "read_record"]
