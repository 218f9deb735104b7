-- What the contents of an agent take is asked for at each look at it, and before more is stored.
CREATE INDEX contents_sizes ON contents (agent_id, length(data));
