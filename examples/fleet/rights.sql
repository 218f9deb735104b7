-- One role for each host of a fleet, on PostgreSQL. Run it in the fleet's database as the
-- role that has run `ckptsidecar fleet migrate`, and again after each `fleet migrate`. The
-- role needs CREATEROLE. Without it, a superuser must first CREATE ROLE ckpt_hosts NOLOGIN,
-- and must create the roles of the hosts too:
--
--   psql -f rights.sql fleet
--   psql fleet -c "CREATE ROLE ckpt_build1 LOGIN PASSWORD '…' IN ROLE ckpt_hosts"
--   psql fleet -c "INSERT INTO fleet_roles (role, db) VALUES ('ckpt_build1', 'DATABASE')"
--
-- DATABASE is what `ckptsidecar fleet status` shows on that host. Connect with the role
-- itself, not by SET ROLE.
--
-- A host that begins with an empty database has another DATABASE: change the host's row, and then start the daemon.
--
-- `fleet forget` and `fleet check --accept` change the rows of other hosts: run them with the URL of the role that has migrated.
--
-- A host may read everything, because it may take over every run; a host without the
-- keys reads only names, sizes, times and statuses. It writes its own rows only. Of other hosts
-- it may take runs and agents over, which leaves a claim. It may do nothing
-- else.

\set ON_ERROR_STOP on

DO $$ BEGIN
	IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'ckpt_hosts') THEN CREATE ROLE ckpt_hosts NOLOGIN; END IF;
END $$;

CREATE TABLE IF NOT EXISTS fleet_roles (role text NOT NULL, db text NOT NULL, PRIMARY KEY (role));

-- fleet_me is the database of the host that is connected.
CREATE OR REPLACE FUNCTION fleet_me() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
	AS $$ SELECT db FROM fleet_roles WHERE role = session_user $$;

-- A claim locks the rows of the former owner, and changes nothing that counts in them.
CREATE OR REPLACE FUNCTION fleet_same_mark(of text, n bigint, hash text, gone timestamptz) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
	AS $$ SELECT EXISTS (SELECT 1 FROM fleet_marks m WHERE m.db = of AND m.mark_n = n AND m.mark_hash = hash
		AND m.forgotten IS NOT DISTINCT FROM gone) $$;
CREATE OR REPLACE FUNCTION fleet_same_host(of text, number bigint, until timestamptz, back timestamptz) RETURNS boolean
	LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
	AS $$ SELECT EXISTS (SELECT 1 FROM fleet_hosts h WHERE h.db = of AND h.incarnation = number
		AND h.lease_until IS NOT DISTINCT FROM until AND h.went_back IS NOT DISTINCT FROM back) $$;

GRANT SELECT ON fleet_meta TO ckpt_hosts;
GRANT SELECT, INSERT ON fleet_erasures, fleet_erased, fleet_confirmations TO ckpt_hosts;
GRANT SELECT, INSERT, UPDATE ON fleet_hosts, fleet_marks, fleet_audit, fleet_claims TO ckpt_hosts;
GRANT SELECT, INSERT, UPDATE, DELETE ON fleet_agents, fleet_runs, fleet_checkpoints, fleet_segments, fleet_rows TO ckpt_hosts;

DO $$
DECLARE
	t text;
	own text;
	p record;
BEGIN
	FOR t, own IN VALUES
		('fleet_hosts', 'db = fleet_me()'), ('fleet_marks', 'db = fleet_me()'), ('fleet_audit', 'db = fleet_me()'),
		('fleet_erasures', 'db = fleet_me()'), ('fleet_erased', 'db = fleet_me()'), ('fleet_confirmations', 'host = fleet_me()'),
		('fleet_claims', 'to_db = fleet_me() OR from_db = fleet_me()'),
		('fleet_agents', 'host = fleet_me()'), ('fleet_runs', 'host = fleet_me()'),
		('fleet_checkpoints', 'db = fleet_me()'), ('fleet_segments', 'db = fleet_me()'),
		('fleet_rows', 'run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = fleet_me())')
	LOOP
		FOR p IN SELECT policyname FROM pg_policies WHERE tablename = t LOOP EXECUTE format('DROP POLICY %I ON %I', p.policyname, t); END LOOP;
		EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
		EXECUTE format('CREATE POLICY reads ON %I FOR SELECT TO ckpt_hosts USING (true)', t);
		EXECUTE format('CREATE POLICY adds ON %I FOR INSERT TO ckpt_hosts WITH CHECK (%s)', t, own);
	END LOOP;
END $$;

CREATE POLICY changes ON fleet_audit FOR UPDATE TO ckpt_hosts USING (db = fleet_me());
CREATE POLICY changes ON fleet_claims FOR UPDATE TO ckpt_hosts USING (from_db = fleet_me() OR to_db = fleet_me());
CREATE POLICY changes ON fleet_checkpoints FOR UPDATE TO ckpt_hosts USING (db = fleet_me());
CREATE POLICY changes ON fleet_segments FOR UPDATE TO ckpt_hosts USING (db = fleet_me());
CREATE POLICY changes ON fleet_rows FOR UPDATE TO ckpt_hosts USING (run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = fleet_me()));
-- A run or an agent of another host may become this host's.
CREATE POLICY changes ON fleet_runs FOR UPDATE TO ckpt_hosts USING (true) WITH CHECK (host = fleet_me());
CREATE POLICY changes ON fleet_agents FOR UPDATE TO ckpt_hosts USING (true) WITH CHECK (host = fleet_me());
CREATE POLICY changes ON fleet_marks FOR UPDATE TO ckpt_hosts USING (true) WITH CHECK (db = fleet_me() OR fleet_same_mark(db, mark_n, mark_hash, forgotten));
CREATE POLICY changes ON fleet_hosts FOR UPDATE TO ckpt_hosts USING (true)
	WITH CHECK (db = fleet_me() OR fleet_same_host(db, incarnation, lease_until, went_back));
-- What belongs to a run goes with the run, whoever has shipped it.
CREATE POLICY removes ON fleet_runs FOR DELETE TO ckpt_hosts USING (host = fleet_me());
CREATE POLICY removes ON fleet_agents FOR DELETE TO ckpt_hosts USING (host = fleet_me());
CREATE POLICY removes ON fleet_rows FOR DELETE TO ckpt_hosts USING (run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = fleet_me()));
CREATE POLICY removes ON fleet_checkpoints FOR DELETE TO ckpt_hosts
	USING (db = fleet_me() OR run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = fleet_me()));
CREATE POLICY removes ON fleet_segments FOR DELETE TO ckpt_hosts
	USING (db = fleet_me() OR run_uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host = fleet_me()));
