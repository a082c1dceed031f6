"""What is written in the background while others go on."""

import pytest

from jobs.store import Store


def full_disk() -> None:
    raise OSError("no space left on device")


def test_a_write_that_fails_in_the_background_ends_what_waits_for_it(tmp_path):
    store = Store(None, tmp_path)
    store._write("events", full_disk, in_memory=True)
    for waits in (lambda: store.written("events"), store.written, lambda: store.table("events")):
        with pytest.raises(OSError, match="no space left"):
            waits()


def test_a_write_that_fails_in_the_background_is_not_passed_over_at_the_end(tmp_path):
    with pytest.raises(OSError, match="no space left"), Store(None, tmp_path) as store:
        store._write("events", full_disk, in_memory=True)


def test_what_failed_before_is_what_is_raised(tmp_path):
    def broken() -> None:
        with Store(None, tmp_path) as store:
            store._write("events", full_disk, in_memory=True)
            raise ValueError("before")

    with pytest.raises(ValueError, match="before"):
        broken()
