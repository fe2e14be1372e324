-- Resource groups, locks, and the activity log.

CREATE TABLE resource_groups (
    subscription TEXT NOT NULL,
    folded       TEXT NOT NULL,
    doc          TEXT NOT NULL,
    PRIMARY KEY (subscription, folded)
) STRICT, WITHOUT ROWID;

-- Until now a group was there with its first workspace; the oldest one says how it is spelled and where it is.
INSERT INTO resource_groups
SELECT subscription, resource_group, json_object(
    'subscription', json_extract(doc, '$.key.subscription'),
    'name', json_extract(doc, '$.key.resource_group'),
    'location', json_extract(doc, '$.location'),
    'tags', json_object(),
    'created_at', json_extract(doc, '$.created_at'),
    'deletion', NULL)
FROM workspaces WHERE id IN (SELECT min(id) FROM workspaces GROUP BY subscription, resource_group);

CREATE TABLE locks (
    -- Where it is, as Azure writes it, in lower case.
    scope  TEXT NOT NULL,
    folded TEXT NOT NULL,
    doc    TEXT NOT NULL,
    PRIMARY KEY (scope, folded)
) STRICT, WITHOUT ROWID;

-- Operations say where they are by name, as they may outlive what they are about.
UPDATE operations SET doc = json_remove(json_set(doc, '$.scope', json((
    SELECT json_object('Workspace', json_object(
        'subscription', w.subscription, 'resource_group', w.resource_group, 'name', w.folded))
    FROM workspaces w WHERE w.id = json_extract(operations.doc, '$.workspace')))), '$.workspace');

-- Each digest is that of the one before and this record's text: nothing can be changed, put in or taken out
-- without all that follow.
CREATE TABLE activity (
    number       INTEGER PRIMARY KEY,
    at_us        INTEGER NOT NULL,
    -- Empty for what belongs to the whole server.
    subscription TEXT NOT NULL,
    doc          TEXT NOT NULL,
    previous     TEXT NOT NULL,
    digest       TEXT NOT NULL
) STRICT;
CREATE INDEX activity_by_time ON activity (subscription, at_us);
