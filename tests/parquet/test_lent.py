"""What is lent to another thread is waited for."""

from __future__ import annotations

from threading import Event, Thread

from tablecrypt.parquet.lent import lend, wait_until_returned


def test_the_end_waits_until_other_threads_let_go() -> None:
    holder = [lend(b"rows")]
    ending = Event()

    def let_go() -> None:
        ending.wait()
        holder.clear()

    thread = Thread(target=let_go)
    thread.start()
    ending.set()
    wait_until_returned(patience_s=600)
    assert holder == []
    thread.join()


def test_what_a_caller_holds_on_to_does_not_keep_a_process() -> None:
    held = lend(b"rows")
    wait_until_returned(patience_s=0)
    assert held == b"rows"
