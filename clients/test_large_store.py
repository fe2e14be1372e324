"""A large store opens at once, and is checked for damage before it is written to."""

import sqlite3

from own_server import own  # noqa: F401  (a fixture)

PAGE = 4096


def test_a_large_store_is_at_peace_after_a_stop_and_damage_stops_a_server(own):  # noqa: F811
    server = own()
    assert server.stop() == 0
    database = server.state / "muster.db"
    with sqlite3.connect(database) as rows:
        rows.execute("CREATE TABLE filler (data)")
        rows.executemany("INSERT INTO filler VALUES (randomblob(?))", [(1_000_000,)] * 60)
    rows.close()
    # Stopped at once, during the check or just after it: everything is in the file.
    for _ in range(2):
        assert own(folder=server.folder).stop() == 0
        logs = server.state.glob("*.db-wal")
        assert all(log.stat().st_size == 0 for log in logs), "neither file has a log left"

    rows = sqlite3.connect(database)
    root = rows.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'ledger_by_end'")
    root = root.fetchone()[0]
    rows.close()
    with database.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xff" * 64)
    before = database.read_bytes()
    damaged = own(folder=server.folder)
    assert damaged.process.wait(30) == 1
    said = damaged.log.read_text()
    assert "is damaged" in said
    assert "it was not changed" in said
    assert database.read_bytes() == before
