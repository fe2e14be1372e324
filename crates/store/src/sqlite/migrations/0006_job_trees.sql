-- The files of jobs: what they bring (rank -1), and what each member left last, with its record.

CREATE TABLE job_trees (
    job       INTEGER NOT NULL,
    rank      INTEGER NOT NULL,
    workspace INTEGER NOT NULL,
    tree      TEXT NOT NULL,
    doc       TEXT,
    PRIMARY KEY (job, rank)
) STRICT, WITHOUT ROWID;
