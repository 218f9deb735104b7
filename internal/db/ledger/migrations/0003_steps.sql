-- Steps carry the model's turn and whether the answer was no. The drift detectors
-- keep two more hashes of each.
ALTER TABLE steps ADD COLUMN turn TEXT;
ALTER TABLE steps ADD COLUMN outcome TEXT CHECK (outcome IN ('negative'));
ALTER TABLE steps ADD COLUMN shape TEXT;
ALTER TABLE steps ADD COLUMN effect TEXT;
