-- The children of jobs that consist of other jobs. A child gets a row when it starts; until then everything about it
-- follows from its parent. `doc` has only what differs from one child to the next.
CREATE TABLE children (
    id      INTEGER PRIMARY KEY,
    parent  INTEGER NOT NULL,
    cluster INTEGER NOT NULL,
    phase   TEXT NOT NULL,
    live    INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX children_live ON children (cluster, phase) WHERE live = 1;

-- The parent of the job that a line served, if it has one: tags belong to the parent.
ALTER TABLE ledger ADD COLUMN parent INTEGER;

-- The lines of a parent's children added up, in the same transaction.
CREATE TABLE tree_totals (
    parent                   INTEGER NOT NULL,
    part                     INTEGER NOT NULL,
    price_micro_usd_per_hour INTEGER NOT NULL,
    span_us                  INTEGER NOT NULL,
    PRIMARY KEY (parent, part, price_micro_usd_per_hour)
) STRICT, WITHOUT ROWID;
