"""Tries of several rows in a few processes, each of which may die or hang and is replaced then."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import tempfile
import time
import traceback
from pathlib import Path

SPAN = 2.0  # seconds after which a process reports what it has tried so far
CHUNK = 500  # numbers that it is given at a time
PATIENCE = 300.0  # seconds of one try, after which it counts as failed


def try_once(row, number, place):
    """What came of one try: the text of its failure, or None."""
    folder = Path(tempfile.mkdtemp(dir=place))
    before = os.getcwd()
    try:
        row.attempt(number, folder)
        return None
    except (Exception, SystemExit):
        return traceback.format_exc()
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def work(pipe, at, rows, place):
    """In a process of its own: try what is asked for, as long as somebody asks."""
    os.setsid()  # Ctrl-C is the parent's, who lets what is tried come to its end
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(EOFError):
        while True:
            name, first, last = pipe.recv()
            begun, number, failed = time.monotonic(), first, {}
            while number < last and time.monotonic() - begun < SPAN:
                at[0], at[1] = float(number), time.monotonic()
                if (text := try_once(rows[name], number, place)) is not None:
                    failed[number] = text
                number += 1
            pipe.send((number, time.monotonic() - begun, failed))


def _work_alone(pipe, parents, at, rows, place):
    """Without the parent's end of the pipe, so that its end is heard here."""
    parents.close()
    work(pipe, at, rows, place)


class Worker:
    """A process, and what it was asked for."""

    def __init__(self, rows, place):
        self.rows, self.place, self.asked = rows, place, None
        self._start()

    def _start(self):
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.at = context.RawArray("d", 2)  # the number that is tried, and since when
        self.process = context.Process(
            target=_work_alone, args=(other, self.pipe, self.at, self.rows, self.place)
        )
        self.process.start()
        other.close()

    def ask(self, name, first, last):
        self.asked = (name, first, last)
        self.at[0], self.at[1] = float(first), time.monotonic()
        self.pipe.send(self.asked)

    def read(self):
        """(name, first, last, seconds, failed) once something was tried, else None."""
        if self.asked is None:
            return None
        name, first, _ = self.asked
        if self.pipe.poll():
            try:
                last, seconds, failed = self.pipe.recv()
                self.asked = None
                return name, first, last, seconds, failed
            except EOFError:
                self.process.join()
        if not self.process.is_alive():
            why = f"the process ended with {self.process.exitcode}"
        elif time.monotonic() - self.at[1] > PATIENCE:
            why = f"no end after {PATIENCE:.0f} s"
        else:
            return None
        number, seconds = int(self.at[0]), time.monotonic() - self.at[1]
        self.close()
        self._start()
        return name, number, number + 1, seconds, {number: why}

    def close(self):
        """End the process and those that it started, whatever they do."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # should it not have made a group of its own yet
        self.process.join()
        self.pipe.close()
        self.asked = None


class Campaign:
    """Rows that are tried at the same pace, so that each has its share whenever the time is over."""

    def __init__(self, rows, log, jobs=2):
        self.rows, self.log, self.jobs = {row.name: row for row in rows}, log, jobs
        self.given = {name: set(log.of(name).tried) for name in self.rows}

    def run(self, seconds, watch=lambda: None):
        """Whether everything was tried before the time was over."""
        until = time.monotonic() + seconds
        place = tempfile.mkdtemp(prefix="campaign-")
        workers = [Worker(self.rows, place) for _ in range(self.jobs)]
        try:
            while True:
                for worker in workers:
                    self._hear(worker)
                    if worker.asked is None and time.monotonic() < until and (span := self._choose()):
                        worker.ask(*span)
                if not any(worker.asked for worker in workers):
                    return all(len(self.given[name]) >= row.count for name, row in self.rows.items())
                watch()
                multiprocessing.connection.wait([w.pipe for w in workers if w.asked], 0.2)
        finally:
            for worker in workers:
                worker.close()
            shutil.rmtree(place, ignore_errors=True)

    def _hear(self, worker):
        before = worker.asked
        if (told := worker.read()) is not None:
            name, first, last, seconds, failed = told
            self.log.add(name, first, last, seconds, failed)
            tried = self.log.of(name).tried
            self.given[name] -= {n for n in range(before[1], before[2]) if n not in tried}

    def _choose(self):
        """Numbers of the row that is furthest behind."""
        missing = {name: row.count - len(self.given[name]) for name, row in self.rows.items()}
        name = max(missing, key=lambda each: missing[each] / self.rows[each].count)
        if missing[name] <= 0:
            return None
        count, given = self.rows[name].count, self.given[name]
        most = max(1, min(CHUNK, missing[name] // (2 * self.jobs)))
        first = last = next(number for number in range(count) if number not in given)
        while last < count and last - first < most and last not in given:
            last += 1
        given.update(range(first, last))
        return name, first, last
