package db_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
	copier "github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/db/langgraph"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

func newWay(s *db.Store) *copier.Copier {
	return copier.New(s.Drifts, langgraph.GraphImported, s.Files.Imported)
}

func oldWay(s *db.Store) *archive.Archive {
	return archive.New(s.Drifts, langgraph.GraphImported, s.Files)
}

// dumped are the rows that an import makes, by table, without numbers that differ.
func dumped(t *testing.T, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, query := range map[string]string{
		"agents":      `SELECT owner, name, created_at, policy, policy_own, policy_at FROM agents ORDER BY name`,
		"runs":        `SELECT base, life, ago, status, epoch, attempt, started_at, updated_at, ended_at, last_seq, removed, head, workflow, pid, process_start, boot_id, parent_run, forked_from, segment_at, interrupted_at, accumulated_ms, heartbeat_at, heartbeat_timeout_ms, progress, goal, first_goal, steps_ended, input_tokens, output_tokens, cost_usd, stretch, stretch_seq, stretch_from, back_seq, continuation_prompt, external_session, command, labels, result, error, last_event, source FROM runs ORDER BY base, life`,
		"checkpoints": `SELECT c.id, r.base, r.life, c.seq, c.kind, c.parent, c.created_at, c.size, c.sha256, c.content_type, c.labels, c.metadata, c.step, c.operation, c.pinned, c.suspect, c.state_of, c.program FROM checkpoints c JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id ORDER BY a.name, c.n`,
		"steps":       `SELECT a.name, r.base, r.life, s.key, s.attempt, s.name, s.status, s.args, s.result, s.error, s.started_at, s.ended_at, s.duration_ms, s.input_tokens, s.cost_usd, s.progress, s.after_seq, s.stretch, s.failures, s.sig, s.res, s.cause, s.unparsable, s.turn, s.outcome, s.shape, s.effect, s.calls, s.calls_in, s.called_at FROM steps s JOIN runs r ON r.id = s.run_id JOIN agents a ON a.id = r.agent_id ORDER BY a.name, s.id`,
		"operations":  `SELECT r.base, r.life, s.key, s.attempt, s.name, s.status, s.args, s.result, s.error, s.checkpoint, s.resolution, s.resolved_by, s.left_uncertain FROM operations s JOIN runs r ON r.id = s.run_id ORDER BY r.base, r.life, s.started_at, s.key, s.attempt`,
		"events":      `SELECT r.base, r.life, s.seq, s.at, s.type, s.payload, s.batch FROM events s JOIN runs r ON r.id = s.run_id ORDER BY 1, 2, 3`,
		"findings":    `SELECT r.base, r.life, s.id, s.at, s.rule, s.severity, s.message, s.advice, s.evidence, s.checkpoint, s.about, s.posted, s.since_seq, s.until_seq, s.closed, s.closed_at, s.closed_step, s.earlier, s.dismissed_at, s.dismissed_by FROM findings s JOIN runs r ON r.id = s.run_id ORDER BY s.id`,
		"prompts":     `SELECT r.base, r.life, s.id, s.at, s.question, s.reason, s.checkpoint, s.choice, s.answered_at, s.answered_by, s.kind, s.operation, s.attempt, s.key, s.answer, s.data FROM prompts s JOIN runs r ON r.id = s.run_id ORDER BY s.id`,
		"graph":       `SELECT r.base, t.thread, t.ns, g.id, g.parent, g.channels FROM graph_threads t JOIN runs r ON r.id = t.run_id LEFT JOIN graph_checkpoints g ON g.run_id = r.id ORDER BY 1, 4`,
		"writes":      `SELECT r.base, w.checkpoint, w.task, w.idx, w.path, w.channel, w.type, w.size, w.crc FROM graph_writes w JOIN runs r ON r.id = w.run_id ORDER BY 1, 2, 3, 4`,
		"files":       `SELECT * FROM audit_files ORDER BY 1, 2`,
		"trees":       `SELECT checkpoint, tree, root, git_head, captured_at, complete, files, bytes, left_out FROM audit_trees ORDER BY 1, 2`,
		"labels":      `SELECT r.base, r.life, l.key, l.value FROM run_labels l JOIN runs r ON r.id = l.run_id ORDER BY 1, 2, 3`,
		"words":       `SELECT r.base, r.life, l.word FROM run_words l JOIN runs r ON r.id = l.run_id ORDER BY 1, 2, 3`,
		"acts":        `SELECT action, run, life, CASE WHEN subject LIKE '0%' THEN subject END, outcome, reason, detail FROM audit_log WHERE action LIKE 'import%' OR action = 'set_policy' ORDER BY agent, n`,
	} {
		all[name] = sqlite3(t, path, query)
	}
	return all
}

// TestTheNewWayAnswersAsTheOld exports and imports random histories both ways.
func TestTheNewWayAnswersAsTheOld(t *testing.T) {
	t.Parallel()
	rounds := 6
	if os.Getenv("ROUNDS") != "" {
		_, _ = fmt.Sscan(os.Getenv("ROUNDS"), &rounds)
	}
	for seed := range rounds {
		c, p := newClock(), &processes{dead: map[int]bool{}}
		o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
		o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
		h := &past{saver: &saver{t, openWith(t, o), ann, "a"}, rand: rand.New(rand.NewPCG(uint64(seed), 5)), c: c, p: p, pid: 10}
		for range 150 {
			h.do()
		}
		var was, is bytes.Buffer
		must(t, oldWay(h.Store).ExportAgents(t.Context(), ann, ckpt.ExportRequest{}, &was))
		must(t, newWay(h.Store).ExportAgents(t.Context(), ann, ckpt.ExportRequest{}, &is))
		var dumps [2]map[string]string
		var reports [2]*ckpt.ImportReport
		for i, text := range []string{was.String(), is.String()} {
			o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
			o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
			s := openWith(t, o)
			imports := newWay(s).Import
			if i == 0 {
				old := oldWay(s)
				imports = func(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, b io.Reader) (*ckpt.ImportReport, error) {
					return old.Import(ctx, sc, r, b)
				}
			}
			report, err := imports(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
			must(t, err)
			reports[i] = report
			must(t, s.Close())
			sound(t, o.Path)
			dumps[i] = dumped(t, o.Path)
		}
		if a, b := fmt.Sprintf("%+v", reports[0]), fmt.Sprintf("%+v", reports[1]); a != b {
			t.Errorf("seed %d:\n%s\n%s", seed, a, b)
		}
		for name := range dumps[0] {
			if dumps[0][name] != dumps[1][name] {
				t.Errorf("seed %d: %s\n--- old\n%s\n--- new\n%s", seed, name, dumps[0][name], dumps[1][name])
			}
		}
		t.Logf("seed %d: %d bytes, and %d; %d checkpoints, %v", seed, was.Len(), is.Len(), reports[1].Imported, reports[1].Rows)
		if t.Failed() {
			return
		}
	}
}

var copies = flag.Int("copies", 0, "measure the export and the import of so many checkpoints")
