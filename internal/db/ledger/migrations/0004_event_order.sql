-- Version 4 keeps the order of all events of an owner. What is older is not in it.
ALTER TABLE events ADD COLUMN batch INTEGER;
