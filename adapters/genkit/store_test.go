package genkit_test

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/adapters/genkit"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/adaptertest"
	"github.com/firebase/genkit/go/core/x/session"
	gk "github.com/firebase/genkit/go/genkit"
)

func TestMain(m *testing.M) {
	adaptertest.Main(m, map[string]func([]string){
		"conform": func([]string) { conform() },
		"counter": func(args []string) { counter(args[0], args[1]) },
	})
}

// progress is the state of the session in these tests.
type progress struct {
	Done  []int          `json:"done,omitempty"`
	Notes map[string]any `json:"notes,omitempty"`
}

var _ session.Store[progress] = (*genkit.Store[progress])(nil)

// TestStoreIsWhatGenkitsOwnIs: our store behaves like Genkit's own.
func TestStoreIsWhatGenkitsOwnIs(t *testing.T) {
	d := adaptertest.Start(t)
	seen := func(store session.Store[progress]) (all []string) {
		look := func(id string) {
			data, err := store.Get(t.Context(), id)
			if data == nil {
				all = append(all, fmt.Sprint(id, " nil ", err))
				return
			}
			all = append(all, fmt.Sprint(id, " ", data.ID, " ", data.State, " ", err))
		}
		look("none")
		data := &session.Data[progress]{ID: "a", State: progress{Done: []int{1}, Notes: map[string]any{"k": []any{"v", 1.5, nil}}}}
		for _, id := range []string{"a", "a/b", "a_b", "日本", "", strings.Repeat("x", 400), strings.Repeat("x", 401)} {
			data.ID = id
			adaptertest.Must(t, store.Save(t.Context(), id, data))
		}
		data.State.Done[0] = 7 // the caller may change it
		look("a")
		adaptertest.Must(t, store.Save(t.Context(), "a", &session.Data[progress]{ID: "a"}))
		for _, id := range []string{"a", "a/b", "a_b", "日本", "", strings.Repeat("x", 400), strings.Repeat("x", 401)} {
			look(id)
		}
		return all
	}
	mine := seen(&genkit.Store[progress]{Agent: d.Client().Agent("same")})
	if theirs := seen(session.NewInMemoryStore[progress]()); !reflect.DeepEqual(mine, theirs) {
		t.Errorf("ours is seen as\n%s\nand theirs as\n%s", strings.Join(mine, "\n"), strings.Join(theirs, "\n"))
	}
}

func TestErrorsAreSaid(t *testing.T) {
	d := adaptertest.Start(t)
	var without genkit.Store[progress]
	if err := without.Save(t.Context(), "a", &session.Data[progress]{}); err == nil || !strings.Contains(err.Error(), "has no Agent") {
		t.Error(err)
	}
	if _, err := without.Get(t.Context(), "a"); err == nil {
		t.Error("Get answers")
	}
	agent := d.Client().Agent("errors")
	if err := (&genkit.Store[progress]{Agent: agent}).Save(t.Context(), "a", nil); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("a session without data: %v", err)
	}
	adaptertest.Must(t, (&genkit.Store[string]{Agent: agent}).Save(t.Context(), "a", &session.Data[string]{ID: "a", State: "text"}))
	if _, err := (&genkit.Store[progress]{Agent: agent}).Get(t.Context(), "a"); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("a session of another type: %v", err)
	}
	d.Kill()
	c := &client.Client{Socket: d.Socket(), SpoolDir: filepath.Join(d.Dir, "spool"), Deadline: -1}
	t.Cleanup(c.Close)
	if _, err := (&genkit.Store[progress]{Agent: c.Agent("errors")}).Get(t.Context(), "a"); err == nil {
		t.Error("a session that cannot be looked up is no error")
	}
}

// counter is a process in which a flow counts in a session until it is killed
// or done. It records each effect, and each number that was kept.
func counter(socket, notes string) {
	note := func(line string) { adaptertest.Note(notes, line) }
	ctx := context.Background()
	sidecar := &client.Client{Socket: socket, Deadline: 30 * time.Second}
	count := gk.DefineFlow(gk.Init(ctx), "count", func(ctx context.Context, id string) (int, error) {
		s, err := opened(ctx, sidecar, id)
		if err != nil {
			return 0, err
		}
		for n := len(s.State().Done) + 1; n <= adaptertest.Numbers; n++ {
			note(fmt.Sprint("effect ", n))
			state := s.State()
			state.Done = append(state.Done, n)
			if err := s.UpdateState(ctx, state); err != nil {
				return 0, err
			}
			note(fmt.Sprint("kept ", n))
		}
		return len(s.State().Done), nil
	})
	done, err := count.Run(ctx, "user/7")
	if err != nil {
		panic(err)
	}
	note(fmt.Sprint("done ", done))
}

// TestKilledFlow: after a flow and its daemon are killed, the flow continues in
// the next process. Nothing that was kept is done again.
func TestKilledFlow(t *testing.T) {
	adaptertest.KilledLives(t, adaptertest.Start(t), "counter", fmt.Sprint("done ", adaptertest.Numbers))
}

func TestConformance(t *testing.T) { adaptertest.Conformance(t) }

func TestDocs(t *testing.T) { adaptertest.Documented(t, "Genkit for Go", 1) }
