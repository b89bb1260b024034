"""An event file for TensorBoard in the folder `log`: `tensorboard --logdir runs` shows all runs below.

It is written record by record, without the thread that TensorBoard's own writer starts: runs fork.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from potluck.core import safe_files
from potluck.experiment import toml
from potluck.experiment.run_events import Callback, Ended, Evaluated, Started
from potluck.experiment.sinks.log_folder import LOG, make_log_folder

_OWN = "events.out.tfevents."


class TensorBoardLog(Callback):
    """A scalar for every number of an evaluation, over rounds; the settings as text.

    A resumed run begins a new file with all that was before, in place of the old one. A TensorBoard that
    has read that one is told to forget it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file: BinaryIO | None = None

    def on_start(self, event: Started) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_log_folder(self.root)
        for name in safe_files.list_names(self.root, LOG):
            if name.startswith(_OWN):
                safe_files.remove_file(self.root, f"{LOG}/{name}")
        self.file = safe_files.open_file(self.root, f"{LOG}/{_OWN}{int(time.time()):010d}.potluck", "ab")
        self.writer, self.make = RecordWriter(self.file), Event
        self._write(file_version="brain.Event:2")
        self._write(session_log=SessionLog(status=SessionLog.START), step=0)
        self._write(summary=_make_text("experiment", toml.write(event.settings)), step=0)
        for each in event.history:
            self._write_numbers(each)
        self.file.flush()

    def on_evaluate(self, event: Evaluated) -> None:
        self._write_numbers(event)
        if self.file is not None:
            self.file.flush()

    def on_end(self, event: Ended) -> None:
        if self.file is not None:
            self.file.close()

    def _write_numbers(self, event: Evaluated) -> None:
        numbers = {**event.numbers, "virtual_seconds": event.time}
        self._write(summary=_make_scalars(numbers), step=event.round)

    def _write(self, **content: object) -> None:
        self.writer.write(self.make(wall_time=time.time(), **content).SerializeToString())


def _make_scalars(numbers: Mapping[str, float]) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=n) for name, n in numbers.items()])


def _make_text(tag: str, text: str) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.metadata import create_summary_metadata

    shown = "".join(f"    {line}\n" for line in text.splitlines())  # as code: it is shown as Markdown
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[shown.encode()], tensor_shape=shape)
    about = create_summary_metadata(display_name="", description="")
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=tensor)])
