-- What is kept in versions. `id` grows with each that is made, so it is their order in time, whatever the clock did.

CREATE TABLE assets (
    id        INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    folded    TEXT NOT NULL,
    version   TEXT NOT NULL,
    hash      TEXT,
    archived  INTEGER NOT NULL,
    doc       TEXT NOT NULL,
    UNIQUE (workspace, kind, folded, version)
) STRICT;
CREATE INDEX assets_in_order ON assets (workspace, kind, folded, id, archived);
CREATE INDEX assets_by_hash ON assets (workspace, kind, hash) WHERE hash IS NOT NULL;

-- Their names.

CREATE TABLE asset_containers (
    workspace INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    folded    TEXT NOT NULL,
    archived  INTEGER NOT NULL,
    anonymous INTEGER NOT NULL,
    doc       TEXT NOT NULL,
    PRIMARY KEY (workspace, kind, folded)
) STRICT, WITHOUT ROWID;
-- Lists leave out the others, of which there may be many more.
CREATE INDEX asset_containers_named ON asset_containers (workspace, kind, folded) WHERE anonymous = 0;

-- Code had a table of its own. Every record of it had these properties; an address was all that it was made of.

INSERT INTO assets (workspace, kind, folded, version, hash, archived, doc)
SELECT workspace, 'Code', folded, version, hash, 0, json_object(
    'workspace', doc -> '$.workspace',
    'kind', 'Code',
    'name', doc ->> '$.name',
    'version', doc ->> '$.version',
    'about', json_object(
        'description', doc -> '$.about.description',
        'tags', doc -> '$.about.tags',
        'properties', doc -> '$.about.properties',
        'is_anonymous', doc -> '$.about.is_anonymous',
        'hash', doc -> '$.about.hash',
        'body', '' || json_object('codeUri', doc -> '$.about.uri'),
        'face', NULL),
    'is_archived', json('false'),
    'created_at', doc -> '$.created_at',
    'created_by', doc -> '$.created_by',
    'changed_at', doc -> '$.created_at',
    'changed_by', doc -> '$.created_by')
FROM codes ORDER BY doc ->> '$.created_at', folded, version;

INSERT INTO asset_containers (workspace, kind, folded, archived, anonymous, doc)
SELECT workspace, 'Code', folded, 0, 1, json_object(
    'workspace', doc -> '$.workspace',
    'kind', 'Code',
    'name', doc ->> '$.name',
    'about', json_object('description', NULL, 'tags', json('{}'), 'properties', NULL),
    'is_archived', json('false'),
    'is_anonymous', json('true'),
    'versions', count(*),
    'highest', max(CASE WHEN version GLOB '[0-9]*' AND version NOT GLOB '*[^0-9]*' AND length(version) <= 18
        THEN CAST(version AS INTEGER) ELSE 0 END),
    'created_at', doc -> '$.created_at',
    'created_by', doc -> '$.created_by',
    'changed_at', doc -> '$.created_at',
    'changed_by', doc -> '$.created_by')
FROM codes GROUP BY workspace, folded;

DROP TABLE codes;
