-- Agents that were given to another owner. The rows of the audit log up to row n name
-- the owner before, and those after it the new one. Row n records that the one gave the
-- agent away, and row n + 1 that the other received it. These rows outlive the agent.
CREATE TABLE owner_changes (
    agent_id   INTEGER NOT NULL,
    n          INTEGER NOT NULL, -- the row of the audit log
    uid        TEXT NOT NULL,    -- the agent's; both rows have it as their subject
    agent      TEXT NOT NULL,
    from_owner TEXT NOT NULL,
    to_owner   TEXT NOT NULL,
    PRIMARY KEY (agent_id, n)
) STRICT, WITHOUT ROWID;

-- An agent keeps its owner until it is given to another on record: see agents_change_owners_on_record.
DROP TRIGGER IF EXISTS agents_keep_their_names;
