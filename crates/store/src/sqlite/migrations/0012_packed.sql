-- Entries of the event log and records of attempts are written in a compact form (packed.rs). The column with their text
-- is empty then. Older rows keep their text.
ALTER TABLE events ADD COLUMN packed BLOB;
ALTER TABLE attempts ADD COLUMN packed BLOB;
