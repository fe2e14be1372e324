-- The machines that nodes are made on, and tickets to join.

CREATE TABLE hosts (
    name TEXT PRIMARY KEY,
    doc  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tickets (
    digest TEXT PRIMARY KEY,
    doc    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
