-- What is written on a job now, as JSON, if not what it was submitted with.
ALTER TABLE jobs ADD COLUMN face TEXT;
ALTER TABLE jobs ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
-- Lists show either the archive or the rest, and neither must walk the other.
CREATE INDEX jobs_by_archive ON jobs (workspace, archived, id);
-- A specification goes with the last of its jobs.
CREATE INDEX jobs_by_spec ON jobs (spec);

-- The tags of jobs that were deleted, as JSON: the ledger is added up by them.
CREATE TABLE gone_job_tags (
    job  INTEGER PRIMARY KEY,
    tags TEXT NOT NULL
) STRICT;
