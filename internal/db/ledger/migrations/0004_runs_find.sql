-- What runs are found by. Indexes and triggers come with schema.sql.
CREATE TABLE run_labels (
    run_id INTEGER NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE run_words (
    run_id INTEGER NOT NULL,
    word   TEXT NOT NULL,
    PRIMARY KEY (run_id, word)
) STRICT, WITHOUT ROWID;
INSERT INTO run_labels (run_id, key, value)
SELECT r.id, l.key, l.value FROM runs r, json_each(r.labels) l WHERE l.type = 'text';
INSERT OR IGNORE INTO run_words (run_id, word)
SELECT run_id, word FROM (
    SELECT r.id AS run_id, substr(trim(w.value, ';!?()[]{}<>|''`#*+=&%$@~^'), 1, 64) AS word
    FROM runs r, json_each('[' || replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(json_quote(lower(substr(r.goal, 1, 2000))), '\\', ' '), '\"', ' '), '\n', ' '), '\r', ' '), '\t', ' '), '/', ' '), '-', ' '), '_', ' '), '.', ' '), ',', ' '), ':', ' '), ' ', '","') || ']') w WHERE r.goal IS NOT NULL)
WHERE word <> '';
