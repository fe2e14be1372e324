-- Names of places where blobs are. Who made one, and when, is told by its first row.

CREATE TABLE datastores (
    workspace INTEGER NOT NULL,
    folded    TEXT NOT NULL,
    doc       TEXT NOT NULL,
    first     TEXT NOT NULL,
    PRIMARY KEY (workspace, folded)
) STRICT, WITHOUT ROWID;

-- Code assets. A version is never changed.

CREATE TABLE codes (
    workspace INTEGER NOT NULL,
    folded    TEXT NOT NULL,
    version   TEXT NOT NULL,
    hash      TEXT,
    doc       TEXT NOT NULL,
    PRIMARY KEY (workspace, folded, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX codes_by_hash ON codes (workspace, hash) WHERE hash IS NOT NULL;
