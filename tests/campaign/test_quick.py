"""A quick share of every row of the campaign, and the runner itself."""

import os
import signal
import time

import pytest

from campaign import _runner, _table
from campaign._log import Log
from campaign._rows import Row, list_names, load_row
from campaign._runner import Campaign

pytestmark = pytest.mark.slow

# What was tried once by hand, before there was a campaign.
AT_LEAST = {
    "kills": 99,
    "crash_points": 176,
    "malformed": 30_000,
    "codec": 200_000,
    "settings": 700,
    "folders": 310,
    "churn": 297,
    "hostile_answers": 10_000,
    "deployed_answers": 10_000,
}


@pytest.mark.parametrize("name", list_names())
def test_a_share_of_each_row(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a try may go elsewhere; afterwards all is as it was
    row = load_row(name)
    for number in row.list_quick():
        folder = tmp_path / str(number)
        folder.mkdir()
        row.attempt(number, folder)


@pytest.mark.parametrize("name", [name for name in list_names() if name in AT_LEAST])
def test_as_much_is_tried_as_ever_was(name):
    row = load_row(name)
    assert row.count >= AT_LEAST[name]
    assert 0 < row.quick <= row.count


# ------------------------------------------------------------------------------------------- the runner


def bad(number, folder):
    """Of twenty tries one is wrong, one ends its process and one never ends."""
    assert list(folder.iterdir()) == []
    (folder / "mine").write_text("here")
    assert number != 3, "three is wrong"
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 11:
        time.sleep(1000)


def test_the_runner_tries_everything_whatever_happens(tmp_path, monkeypatch):
    monkeypatch.setattr(_runner, "PATIENCE", 1.0)
    rows = [Row("bad", "", 20, 1, bad), Row("good", "", 1000, 1, lambda number, folder: None)]
    log = Log(tmp_path, {"commit": "abc"})
    assert Campaign(rows, log).run(60)
    assert log.of("bad").tried == set(range(20))
    assert set(log.of("bad").failed) == {3, 7, 11}
    assert "three is wrong" in log.of("bad").failed[3]
    assert log.of("bad").failed[7] == "the process ended with -9"
    assert log.of("bad").failed[11] == "no end after 1 s"
    assert (len(log.of("good").tried), log.of("good").failed) == (1000, {})


def test_a_campaign_goes_on_where_it_was(tmp_path):
    seen = tmp_path / "seen"

    def note(number, folder):
        with seen.open("a") as file:
            file.write(f"{number}\n")

    rows, out = [Row("note", "", 10, 1, note)], tmp_path / "out"
    log = Log(out, {"commit": "abc"})
    assert not Campaign(rows, log).run(0.0)  # no time at all
    log.add("note", 2, 5, 0.1, {4: "why"})
    again = Log(out, {"commit": "abc"})
    assert Campaign(rows, again).run(60)
    assert sorted(map(int, seen.read_text().split())) == [0, 1, 5, 6, 7, 8, 9]
    assert again.of("note").failed == {4: "why"}
    assert Log(out, {"commit": "abc"}, afresh=True).of("note").tried == set()


def test_what_another_commit_did_is_not_counted(tmp_path):
    Log(tmp_path, {"commit": "abc"}).add("note", 0, 5, 0.1, {})
    assert Log.stored(tmp_path).of("note").tried == set(range(5))
    assert Log(tmp_path, {"commit": "abd"}).of("note").tried == set()


def test_the_table_takes_its_place_in_a_page(tmp_path):
    log = Log(tmp_path, {"commit": "abc", "date": "2026-01-02", "machine": "1 core of X"})
    log.add("note", 0, 1200, 95.0, {7: "why"})
    page = tmp_path / "page.md"
    page.write_text(f"before\n{_table.BEGIN}\nold\n{_table.END}\nafter\n")
    rows = [Row("note", "things", 1200, 1, bad)]
    for _ in range(2):
        _table.put_into(page, _table.write_markdown(rows, log))
    text = page.read_text()
    assert "Tried on 2026-01-02, at commit abc, on 1 core of X." in text
    assert "| `note` | things | 1,200 | 1 | 1 min 35 s |" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "1,200       1  1 min 35 s" in _table.write_text(rows, log)


def test_the_page_tells_of_every_row():
    page = (_table.ROOT / "docs" / "reliability.md").read_text()
    assert [name for name in list_names() if f"**{name}**" not in page] == []
    assert _table.BEGIN in page
