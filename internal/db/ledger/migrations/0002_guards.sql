-- Version 2 changes no table. It adds the guards, which schema.sql makes where
-- they are missing, and the rules of audit_violations that compare each
-- checkpoint with its row of the audit log. Guards of version 1 whose text is
-- another now are made anew.
DROP TRIGGER IF EXISTS audit_log_is_never_changed;
DROP TRIGGER IF EXISTS audit_log_is_never_shortened;
DROP TRIGGER IF EXISTS audit_head_is_never_removed;
