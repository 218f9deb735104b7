package main

import "github.com/alecthomas/kong"

// helpVars are parts of the help of commands: texts that other programs replace, texts that several
// commands share, and texts that are too long for a tag.
var helpVars = kong.Vars{
	"disk": "where your database is or would be",
	"checkpoint": "its id or the beginning of it, AGENT (its newest), AGENT@SEQ, AGENT/RUN/SEQ, AGENT/RUN@-1 " +
		"(the one before the newest), or latest",

	"color_when": "auto (on a terminal; honors NO_COLOR and CLICOLOR_FORCE), always or never",
	"template": "Write what this Go template chooses from the JSON, for each entry of a list: " +
		"'{{.id}} {{.kind}}'. With import: what the files are.",

	"run_statuses": "starting, running, suspended, awaiting_continuation, interrupted, timed_out, " +
		"completed or failed",
	"end_statuses":       "completed or failed for good; suspended, awaiting_continuation, interrupted or timed_out to be resumed.",
	"step_statuses":      "started, succeeded, failed or interrupted",
	"operation_statuses": "open, succeeded, failed (known not to have happened), uncertain or superseded",
	"run_order":          "updated: the last changed first; started: the last started first, which no change moves.",
	"bad_run": "Only runs with a finding of this severity or a worse one that nobody has dismissed: " +
		"info, warn or critical.",

	"owner_default": "Default: the script that calls this; typed at a terminal, " +
		"nobody for longer than this command.",
	"heartbeat_timeout": "The run is timed_out after this time without a heartbeat or a write. " +
		"Default: the agent's policy.",
	"progress_timeout":       "The run is also timed_out after this time without progress. Default: the agent's policy.",
	"max_restarts":           "Give up after so many restarts in a row. Ten minutes of good health reset the count.",
	"exec_heartbeat_timeout": "The run is timed_out after this time without a heartbeat; 0 for never.",
	"restart": "When to start the command again: never, on-failure (it failed, crashed or froze), or on-drift " +
		"(also when critical drift was found: then from the newest clean checkpoint).",
	"answer": "The answer. To a decision resume (go on as it is), reinitialize (begin anew) or abandon " +
		"(give the run up); about an operation it_did, it_did_not or repeat (it may then happen twice); to a question one of its choices.",
	"operation_choices": "What became of it: it_did, it_did_not, or repeat where nobody can know: it may then happen twice.",

	"against_log": "Also check that the audit log still has what its daemon logged: NUMBER:HASH, " +
		"a file with lines of the daemon's log, or - for standard input.",
	"policy_settings": "key=value, for example routine_keep=10 detectors.repeat.tier=off budget.steps=500 " +
		"ignore_tools=sleep,wait schema=@FILE; key= sets it no more, so that the policy for all agents or the " +
		"default counts.",
	"import_files": "The file that export wrote; - or nothing for standard input. With another --format its " +
		"files, or the folder that has .running and .history.",
	"engine_url": "The engine, such as postgres://USER@HOST/DATABASE. Default: what the settings name. " +
		"A password in it shows in the list of processes: better put it into a file, or into PGPASSWORD.",
}
