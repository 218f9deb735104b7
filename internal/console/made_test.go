package console

import (
	"net/url"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// The answers of a daemon from which the golden pages are drawn.

func statusForTests() *ckpt.Status {
	return &ckpt.Status{
		Version: "1.2.3", PID: 412, StartedAt: noon, Now: after(120), State: "degraded", Problems: []string{"The disk is nearly full: 3 % are free."},
		Agents: 2, Runs: 3, Counts: map[ckpt.Kind]int64{ckpt.KindRoutine: 1200, ckpt.KindRecovery: 34}, Stored: 56_100,
		Database: ckpt.DatabaseStatus{
			SchemaVersion: 1, SQLite: "3.53.4", Bytes: 1_200_000, FreeBytes: 40_000, WALBytes: 8_000, WALPending: 4_000, AuditRows: 12_345, AuditHead: "7da71286753abc5b",
		},
		Writer: ckpt.WriterStatus{Commits: 5000, Operations: 9000, Retries: 1, CommitP50: 0.5, CommitP99: 2},
		Worker: ckpt.WorkerStatus{LastRun: after(119), Removed: 321},
		Drift:  ckpt.DriftStatus{Watched: 3},
		Backup: ckpt.BackupStatus{Interval: ckpt.Duration(ckpt.Day), Kept: 7, Last: after(60), LastBytes: 900_000},
	}
}

func agentsForTests(states *int64) *ckpt.AgentPage {
	return &ckpt.AgentPage{Agents: []ckpt.Agent{
		{Agent: "bot", Owner: "uid:1001", Runs: 1, Checkpoints: 34, StoredBytes: 6_100, StateBytes: states},
		{Agent: "coder", Owner: "uid:1001", Runs: 2, Checkpoints: 1200, StoredBytes: 50_000, StateBytes: states},
	}}
}

func policiesForTests() []*ckpt.Policy {
	first, second := ckpt.DefaultPolicy(), ckpt.DefaultPolicy()
	second.RoutineKeep, second.MaxBytes = 50, 100_000
	return []*ckpt.Policy{&first, &second}
}

func forecastForTests() *survey.Forecast {
	const id = "01a20670-2c8b-7833-9dce-19bbbfe4703"
	return &survey.Forecast{
		At: after(120), Guarded: true, MoreGoing: 2, Bytes: 3000,
		Going: []survey.Going{
			{Owner: "uid:1001", Agent: "coder", Run: "one", Checkpoint: id + "0", Kind: ckpt.KindRoutine, Seq: 1, StoredSize: 1000, When: survey.GoesNextSave, Reason: "beyond the newest 3"},
			{Owner: "uid:1001", Agent: "coder", Run: "one", Checkpoint: id + "1", Kind: ckpt.KindRecovery, Seq: 2, StoredSize: 2000, When: survey.GoesByAge, Goes: after(180), Reason: "older than 7d"},
		},
		Keeping: []survey.Keeping{{Rule: "pinned", Checkpoints: 1, Bytes: 10}, {Rule: "among the newest 3 routine checkpoints", Checkpoints: 1000, Bytes: 40_000}},
	}
}

func branchesForTests() []draw.Branch {
	marks := crashed().Checkpoints.Marks
	fork := *runForTests()
	fork.Run, fork.Status, fork.ForkedFrom = "one-fork-2", ckpt.RunRunning, ckpt.Ref(marks[1].ID)
	return []draw.Branch{
		{Run: runForTests(), Marks: marks, From: -1},
		{Run: &fork, Marks: []survey.CheckpointMark{{ID: "01a20670-2c8b-7833-9dce-19bbbfe47099", Seq: 1, Kind: ckpt.KindRoutine, Suspect: true, CreatedAt: after(100)}}, Seq: 2},
	}
}

func auditForTests() []ckpt.AuditRow {
	return []ckpt.AuditRow{
		{N: 9, At: after(110), Who: "uid:1001", Action: "resolve_operation", Owner: "uid:1001", Agent: "coder", Run: "one", Outcome: "done", Reason: "looked at the server", Hash: "0123456789abcdef"},
		{N: 8, At: after(90), Who: "uid:1001", Action: "restore", Owner: "uid:1001", Agent: "coder", Outcome: "denied", Detail: ckpt.JSON(`{"seq":3,"id":"x"}`), Hash: "fedcba9876543210"},
		{N: 7, At: noon, Who: "daemon", Action: "start", Outcome: "done", Hash: "00112233445566778899"},
	}
}

func checksForTests() []Check {
	return []Check{{"socket", "ok", "answers", ""}, {"disk", "warn", "3 % are free", "remove something"}, {"clock", "fail", "is wrong", "set it"}}
}

func settingsForTests() *survey.Settings {
	return &survey.Settings{Settings: []survey.Setting{
		{Key: "database", Value: "/srv/ckpt.db", SetBy: "--db", Env: "CKPTSIDECAR_DB", Doc: "Where the database is. It is made where there is none."},
		{Key: "backup.keep", Value: "7", Live: true, Doc: "How many backups stay."},
		{Key: "log.level", Value: "", SetBy: "/etc/ckptsidecar.toml:3", Live: true, Doc: "What is logged."},
	}}
}

func stateForTests() *stateView {
	v := &stateView{frame: frameForTests(), Seq: 2, Old: 1}
	q := url.Values{"cp": {"x"}, "at": {"/plan"}}
	_ = v.fill([]byte(`{"plan":{"next":"test","done":[1,2],"new":true}}`), []byte(`{"plan":{"next":"read","done":[1,2],"gone":{"a":1}}}`), q, nil)
	v.address("/s/test/o/uid:1001/coder/one", q)
	return v
}

func transcriptForTests(q url.Values) *transcriptView {
	took, tokens, cost := int64(2340), int64(41_000), .12
	failed := survey.TranscriptStep{Key: "s2", Name: "run_tests", Status: ckpt.StepFailed, Attempt: 2, StartedAt: after(3), Error: "2 tests failed: test_total, test_empty", ErrorSize: 38, Result: strings.Repeat("long ", 200), ResultSize: 90_000}
	failed.DurationMS, failed.InputTokens, failed.CostUSD = &took, &tokens, &cost
	page := &survey.Transcript{Earlier: true, Steps: []survey.TranscriptStep{
		{Key: "s1", Name: "read_file", Status: ckpt.StepSucceeded, Attempt: 1, StartedAt: after(1), Args: `{"path":"cart.py"}`, ArgsSize: 18, Result: `"def total():\n  return 0"`, ResultSize: 26},
		failed,
	}, Events: []survey.HeardEvent{{Seq: 7, At: after(2), Type: "said", Payload: `"I will run the tests."`, Size: 23}}}
	if q.Get("hide") != "" {
		page.Steps, page.Events = page.Steps[1:], nil
		page.Causes = []survey.StepCause{{Count: 12, Name: "run_tests", Error: "2 tests failed", Key: "s2", At: after(3)}}
	}
	return viewTranscript(frameForTests(), runForTests(), page, survey.TranscriptQuery{At: "s2", Failed: q.Get("hide") != ""}, nil, q)
}

func findForTests() *findView {
	v := &findView{frame: frameForTests(), More: true, MoreLists: true}
	v.Query = "01a2"
	v.Runs = []listRow{rowOfRun(v.frame, runForTests())}
	v.found(&ckpt.Checkpoint{
		ID: "01a20670-2c8b-7833-9dce-19bbbfe47031", Owner: "uid:1001", Agent: "coder", Run: "one", Seq: 2, Kind: ckpt.KindRecovery, CreatedAt: after(3),
		Labels: ckpt.Labels{"stage": "tested"},
	})
	return v
}

func whatIfForTests() *whatIfView {
	v := &whatIfView{frame: frameForTests(), Rule: "repeat", Warn: "6"}
	row := func(rule, outcome string, fired int) ckpt.EvaluatedRow {
		return ckpt.EvaluatedRow{Rule: rule, Tier: ckpt.SeverityWarn, Outcome: outcome, Fired: fired, Runs: 3}
	}
	v.compare(
		&ckpt.Evaluation{Runs: 6, Steps: 99, Rows: []ckpt.EvaluatedRow{row("", "failed", 2), row("repeat", "failed", 2), row("repeat", "completed", 1)}},
		&ckpt.Evaluation{Runs: 6, Steps: 99, More: true, Rows: []ckpt.EvaluatedRow{row("", "failed", 1), row("repeat", "failed", 1), row("cycle", "failed", 0)}},
	)
	return v
}
