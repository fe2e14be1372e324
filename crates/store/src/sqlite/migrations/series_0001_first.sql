-- Time series for charts. Nothing else depends on them.

CREATE TABLE subjects (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster INTEGER NOT NULL,
    -- Empty for the cluster as a whole.
    node    TEXT NOT NULL,
    -- The seconds between which there may be points.
    first_s INTEGER NOT NULL,
    last_s  INTEGER NOT NULL,
    -- The size of the subject's blocks, including an allowance for their rows.
    bytes   INTEGER NOT NULL,
    UNIQUE (cluster, node)
) STRICT;

-- The key consists of the level, the beginning of the block and the subject, in this order, so that the blocks of all
-- subjects that are being written are next to each other and a commit changes few pages.
CREATE TABLE blocks (
    key    INTEGER PRIMARY KEY,
    points BLOB NOT NULL
) STRICT;
