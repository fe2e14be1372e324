-- Templates that were carried out.

CREATE TABLE deployments (
    id             INTEGER PRIMARY KEY,
    subscription   TEXT NOT NULL,
    resource_group TEXT NOT NULL,
    folded         TEXT NOT NULL,
    doc            TEXT NOT NULL,
    UNIQUE (subscription, resource_group, folded)
) STRICT;
