-- Version 4 lets runs ask people, and keeps the answers. The guard of prompts is made anew with the new columns.
DROP TRIGGER IF EXISTS prompts_are_never_changed;
ALTER TABLE prompts ADD COLUMN kind TEXT NOT NULL DEFAULT 'decision' CHECK (kind IN ('decision', 'question'));
ALTER TABLE prompts ADD COLUMN key TEXT;
ALTER TABLE prompts ADD COLUMN choices TEXT;
ALTER TABLE prompts ADD COLUMN schema TEXT;
ALTER TABLE prompts ADD COLUMN expires_at TEXT;
ALTER TABLE prompts ADD COLUMN asked_seq INTEGER;
ALTER TABLE prompts ADD COLUMN answered_seq INTEGER;
ALTER TABLE prompts ADD COLUMN answer TEXT;
ALTER TABLE prompts ADD COLUMN data TEXT;
ALTER TABLE prompts ADD COLUMN retired INTEGER NOT NULL DEFAULT 0 CHECK (retired IN (0, 1));
