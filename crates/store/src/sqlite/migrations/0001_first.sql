-- Times are microseconds since 1970 (_us). `folded` is a name in lower case: names are compared without case.
-- `doc` is the whole record as JSON; the other columns are what rows are found and counted by.

CREATE TABLE meta (
    one              INTEGER PRIMARY KEY CHECK (one = 1),
    controller_epoch INTEGER NOT NULL,
    next_sequence    INTEGER NOT NULL,
    last_wall_us     INTEGER NOT NULL,
    last_revision    INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES (1, 0, 0, 0, 0);

CREATE TABLE principals (
    id        INTEGER PRIMARY KEY,
    object_id TEXT NOT NULL UNIQUE,
    doc       TEXT NOT NULL
) STRICT;

CREATE TABLE workspaces (
    id             INTEGER PRIMARY KEY,
    subscription   TEXT NOT NULL,
    resource_group TEXT NOT NULL,
    folded         TEXT NOT NULL,
    doc            TEXT NOT NULL,
    UNIQUE (subscription, folded, resource_group)
) STRICT;

CREATE TABLE clusters (
    id        INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL,
    folded    TEXT NOT NULL,
    name      TEXT NOT NULL,
    doc       TEXT NOT NULL,
    UNIQUE (workspace, folded)
) STRICT;

CREATE TABLE nodes (
    id      INTEGER PRIMARY KEY,
    cluster INTEGER NOT NULL,
    phase   TEXT NOT NULL,
    job     INTEGER,
    doc     TEXT NOT NULL
) STRICT;
CREATE INDEX nodes_by_cluster ON nodes (cluster, phase);

CREATE TABLE jobs (
    id        INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL,
    folded    TEXT NOT NULL,
    cluster   INTEGER NOT NULL,
    principal INTEGER NOT NULL,
    spec      TEXT NOT NULL,
    phase     TEXT NOT NULL,
    live      INTEGER NOT NULL,
    doc       TEXT NOT NULL,
    UNIQUE (workspace, folded)
) STRICT;
CREATE INDEX jobs_newest ON jobs (workspace, id);
-- Finished jobs are many, live ones few: loading and counting must not walk the former.
CREATE INDEX jobs_live ON jobs (cluster, phase) WHERE live = 1;

-- What has changed about the members of a live job since its own document was written: a job of a thousand nodes
-- is not written again for each of them.
CREATE TABLE members (
    job  INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    doc  TEXT NOT NULL,
    PRIMARY KEY (job, rank)
) STRICT, WITHOUT ROWID;

-- What each principal has used of each cluster.
CREATE TABLE accounts (
    cluster   INTEGER NOT NULL,
    principal INTEGER NOT NULL,
    doc       TEXT NOT NULL,
    PRIMARY KEY (cluster, principal)
) STRICT, WITHOUT ROWID;

CREATE TABLE quotas (
    subscription TEXT NOT NULL,
    location     TEXT NOT NULL,
    doc          TEXT NOT NULL,
    PRIMARY KEY (subscription, location)
) STRICT, WITHOUT ROWID;

CREATE TABLE specs (
    number INTEGER PRIMARY KEY,
    hash   TEXT NOT NULL UNIQUE,
    doc    TEXT NOT NULL
) STRICT;

CREATE TABLE attempts (
    job   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    doc   TEXT NOT NULL,
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

-- The cluster's name is kept in the line: the line outlives the cluster.
CREATE TABLE ledger (
    number       INTEGER PRIMARY KEY,
    workspace    INTEGER NOT NULL,
    cluster_name TEXT NOT NULL,
    node         INTEGER NOT NULL,
    resource     TEXT NOT NULL,
    category     TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    -- Whom and what it served, if anybody.
    principal    INTEGER,
    job          INTEGER,
    epoch        INTEGER,
    -- The cluster's tags at that time, as JSON; those of the job are in its specification.
    tags         TEXT,
    -- Millionths of a node.
    part         INTEGER NOT NULL,
    price_micro_usd_per_hour INTEGER NOT NULL,
    from_us      INTEGER NOT NULL,
    to_us        INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_by_end ON ledger (workspace, to_us);

-- The lines of `ledger` added up, in the same transaction, so that a bill costs what it shows.
CREATE TABLE ledger_totals (
    workspace                INTEGER NOT NULL,
    cluster_name             TEXT NOT NULL,
    resource                 TEXT NOT NULL,
    category                 TEXT NOT NULL,
    outcome                  TEXT NOT NULL,
    -- 0 where nobody was served.
    principal                INTEGER NOT NULL,
    part                     INTEGER NOT NULL,
    price_micro_usd_per_hour INTEGER NOT NULL,
    span_us                  INTEGER NOT NULL,
    PRIMARY KEY (workspace, cluster_name, resource, category, outcome, principal, part,
                 price_micro_usd_per_hour)
) STRICT, WITHOUT ROWID;

CREATE TABLE operations (
    id       INTEGER PRIMARY KEY,
    ended_us INTEGER,
    doc      TEXT NOT NULL
) STRICT;
CREATE INDEX operations_ended ON operations (ended_us) WHERE ended_us IS NOT NULL;

CREATE TABLE outbox (
    id  INTEGER PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE events (
    revision INTEGER PRIMARY KEY,
    wall_us  INTEGER NOT NULL,
    change   TEXT NOT NULL
) STRICT;
