-- Users, with the digests of their keys, and the roles that they have.

CREATE TABLE users (
    folded TEXT PRIMARY KEY,
    doc    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE roles (
    folded TEXT PRIMARY KEY,
    doc    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
