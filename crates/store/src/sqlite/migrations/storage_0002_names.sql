-- Bytes that no row references any more.
ALTER TABLE unwanted RENAME TO unreferenced;
