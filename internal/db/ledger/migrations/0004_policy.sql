-- A policy has layers. What was set for an agent before is its own: the members
-- that are not the defaults of version 3.
ALTER TABLE agents ADD COLUMN policy_own TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(policy_own));
ALTER TABLE agents ADD COLUMN pre_operation_keep_s INTEGER NOT NULL DEFAULT 604800;
CREATE TABLE policies (
    owner  TEXT NOT NULL PRIMARY KEY,
    policy TEXT NOT NULL CHECK (json_valid(policy)),
    set_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
UPDATE agents SET policy_own = (
    SELECT json_group_object(p.key, CASE p.type WHEN 'true' THEN json('true') WHEN 'false' THEN json('false')
                                    WHEN 'object' THEN json(p.value) WHEN 'array' THEN json(p.value) ELSE p.value END)
    FROM json_each(agents.policy) p
    WHERE NOT EXISTS (SELECT 1 FROM json_each('{"routine_keep":3,"recovery_keep":"7d","ended_keep":"30d","max_bytes":0,"max_events":100000,
        "secrets":"warn","autoresume":true,"heartbeat_timeout":"0s","progress_timeout":"0s","sensitivity":"normal","detectors":{},
        "false_alarms":"off","false_alarms_laxest":3,"ignore_tools":[],"no_progress_steps":0,"no_progress_time":"0s","budget":{},
        "checkpoint_interval":"30m","refresh_after":"2h","schema":null,"schema_mode":"refuse","shared_keys":[],"settle":"1m","rules":[]}') d
        WHERE d.key = p.key AND d.type = p.type AND d.value IS p.value))
WHERE policy <> '{}';
