-- Version 4 writes the audit log in rows of numbers and bytes, acts, which go on
-- from the last row of the log that was. That one stays as it is, with its chain,
-- under another name. Views and guards that name it are made anew.
DROP VIEW IF EXISTS audit_violations;
DROP VIEW IF EXISTS audit_agents;
DROP VIEW IF EXISTS audit_runs;
DROP VIEW IF EXISTS audit_checkpoints;
DROP VIEW IF EXISTS audit_states;
DROP VIEW IF EXISTS audit_steps;
DROP VIEW IF EXISTS audit_operations;
DROP VIEW IF EXISTS audit_findings;
DROP VIEW IF EXISTS audit_prompts;
DROP VIEW IF EXISTS audit_events;
DROP VIEW IF EXISTS audit_graph_checkpoints;
DROP VIEW IF EXISTS audit_graph_writes;
DROP VIEW IF EXISTS needed_checkpoints;
DROP TRIGGER IF EXISTS audit_log_is_never_changed;
DROP TRIGGER IF EXISTS audit_log_is_never_shortened;
DROP TRIGGER IF EXISTS audit_head_only_moves_on;
DROP TRIGGER IF EXISTS the_database_keeps_its_id;
DROP TRIGGER IF EXISTS the_database_never_loses_its_id;
DROP TRIGGER IF EXISTS the_database_gets_one_id;
ALTER TABLE audit_log RENAME TO audit_log_3;
