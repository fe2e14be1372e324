"""A large store opens at once, and is read through for damage behind the server's back."""

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
    # Stopped at once, while the check still reads: the writer closes the file last all the same.
    for _ in range(2):
        assert own(folder=server.folder).stop() == 0
        assert not list(server.state.glob("*.db-wal")), "neither the store's nor the blobs'"

    rows = sqlite3.connect(database)
    root = rows.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'ledger_by_end'")
    root = root.fetchone()[0]
    rows.close()
    with database.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xff" * 64)
    damaged = own(folder=server.folder)
    assert damaged.process.wait(30) == 1
    said = damaged.log.read_text()
    assert "is damaged" in said
    # It may have written before it knew.
    assert "a server was already writing to it" in said and "left as it is" not in said
