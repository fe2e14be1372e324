-- Blobs: their names, what is said about them, and which files of the byte store they are made of. The bytes are not here.

CREATE TABLE meta (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    last_tag INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES (1, 0);

CREATE TABLE containers (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL UNIQUE,
    workspace INTEGER NOT NULL,
    owner     TEXT NOT NULL,
    made_us   INTEGER NOT NULL
) STRICT;
CREATE INDEX containers_by_workspace ON containers (workspace);

-- A name is bytes: compared byte by byte, never folded.
CREATE TABLE blobs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    container  INTEGER NOT NULL,
    name       BLOB NOT NULL,
    tag        INTEGER NOT NULL,
    made_us    INTEGER NOT NULL,
    changed_us INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    UNIQUE (container, name)
) STRICT;

CREATE TABLE segments (
    blob      INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    starts    INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    workspace INTEGER NOT NULL,
    digest    BLOB NOT NULL,
    block     TEXT,
    PRIMARY KEY (blob, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX segments_by_start ON segments (blob, starts);
CREATE INDEX segments_by_block ON segments (blob, block) WHERE block IS NOT NULL;
CREATE INDEX segments_by_digest ON segments (workspace, digest);

CREATE TABLE staged (
    container INTEGER NOT NULL,
    name      BLOB NOT NULL,
    block     TEXT NOT NULL,
    staged_us INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    workspace INTEGER NOT NULL,
    digest    BLOB NOT NULL,
    PRIMARY KEY (container, name, block)
) STRICT, WITHOUT ROWID;
CREATE INDEX staged_by_age ON staged (staged_us);
CREATE INDEX staged_by_digest ON staged (workspace, digest);

-- Files that some row named and perhaps none does any more.
CREATE TABLE unwanted (
    workspace INTEGER NOT NULL,
    digest    BLOB NOT NULL,
    since_us  INTEGER NOT NULL,
    PRIMARY KEY (workspace, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX unwanted_by_age ON unwanted (since_us);
