-- What waits for a person is counted at each scrape of the metrics and at each look of
-- a console: these indexes hold nothing else.
CREATE INDEX operations_uncertain ON operations (run_id) WHERE status = 'uncertain';
CREATE INDEX prompts_waiting ON prompts (run_id) WHERE answered_at IS NULL;
