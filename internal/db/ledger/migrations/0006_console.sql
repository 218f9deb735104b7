-- A run's flight recorder counts steps by when they began, without reading them.
CREATE INDEX steps_by_time ON steps (run_id, started_at);
CREATE INDEX steps_failed ON steps (run_id, started_at) WHERE status IN ('failed', 'interrupted');
-- Runs whose states may hold secrets wait for a person.
CREATE INDEX findings_secrets ON findings (run_id) WHERE rule = 'secret' AND closed IS NULL;
-- Who ran a run, and when. Of what was before, the present segment is known.
CREATE TABLE run_segments (
    run_id   INTEGER NOT NULL,
    n        INTEGER NOT NULL, -- 1, 2, … in its run; the newest 1,000 are kept
    attempt  INTEGER NOT NULL,
    pid      INTEGER,          -- of the owner
    began_at TEXT NOT NULL,
    ended_at TEXT,             -- the last sign of life in it; NULL while it lasts
    how      TEXT,             -- the status that the run got by its end
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER segments_come_with_their_run AFTER INSERT ON runs WHEN NEW.segment_at IS NOT NULL
BEGIN INSERT INTO run_segments (run_id, n, attempt, pid, began_at) VALUES (NEW.id, 1, NEW.attempt, NEW.pid, NEW.segment_at); END;
CREATE TRIGGER segments_begin AFTER UPDATE OF segment_at ON runs WHEN OLD.segment_at IS NULL AND NEW.segment_at IS NOT NULL
BEGIN INSERT INTO run_segments (run_id, n, attempt, pid, began_at)
SELECT NEW.id, 1 + coalesce(max(n), 0), NEW.attempt, NEW.pid, NEW.segment_at FROM run_segments WHERE run_id = NEW.id;
DELETE FROM run_segments WHERE run_id = NEW.id AND n <= (SELECT max(n) - 1000 FROM run_segments WHERE run_id = NEW.id); END;
CREATE TRIGGER segments_change_owners AFTER UPDATE OF segment_at ON runs
WHEN OLD.segment_at IS NOT NULL AND NEW.segment_at IS NOT NULL AND (NEW.segment_at <> OLD.segment_at OR NEW.pid IS NOT OLD.pid OR NEW.attempt <> OLD.attempt)
BEGIN UPDATE run_segments SET attempt = NEW.attempt, pid = NEW.pid, began_at = NEW.segment_at
WHERE run_id = NEW.id AND n = (SELECT max(n) FROM run_segments WHERE run_id = NEW.id) AND ended_at IS NULL; END;
CREATE TRIGGER segments_end AFTER UPDATE OF segment_at ON runs WHEN OLD.segment_at IS NOT NULL AND NEW.segment_at IS NULL
BEGIN UPDATE run_segments SET how = NEW.status,
    ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', OLD.segment_at, printf('+%.3f seconds', max(0, NEW.accumulated_ms - OLD.accumulated_ms) / 1000.0))
WHERE run_id = NEW.id AND n = (SELECT max(n) FROM run_segments WHERE run_id = NEW.id) AND ended_at IS NULL; END;
CREATE TRIGGER runs_take_segments_with_them AFTER DELETE ON runs
BEGIN DELETE FROM run_segments WHERE run_id = OLD.id; END;
INSERT INTO run_segments (run_id, n, attempt, pid, began_at) SELECT id, 1, attempt, pid, segment_at FROM runs WHERE segment_at IS NOT NULL;
