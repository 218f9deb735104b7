package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// TestTranscriptPages reads a run from its end to its beginning and back. Several steps began at the same time.
func TestTranscriptPages(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	start(t, s, 1)
	var all, failed []string
	times := map[string]ckpt.Time{}
	for i := range 47 {
		r := ckpt.StepRequest{Key: fmt.Sprintf("s%d", i), Name: "test", Args: ckpt.JSON(`"` + strings.Repeat("é", 50) + `"`), Status: ckpt.StepSucceeded, Result: ckpt.JSON(`1`)}
		if i%5 == 0 {
			r.Status, r.Result, r.Error = ckpt.StepFailed, nil, ckpt.Ref(fmt.Sprintf("%d tests failed", i%2))
			failed = append(failed, r.Key)
		}
		_, _, err := s.BeginStep(t.Context(), as(1), mainRun, r)
		must(t, err)
		_, _, err = s.Append(t.Context(), as(1), mainRun, []ckpt.NewEvent{{Type: "said", Payload: ckpt.JSON(`"of ` + r.Key + `"`)}}, "")
		must(t, err)
		all, times[r.Key] = append(all, r.Key), ckpt.At(c.Now())
		if i%3 == 0 {
			c.add(time.Second)
		}
	}
	for _, only := range []bool{false, true} {
		want := all
		if only {
			want = failed
		}
		page := transcribe(t, s, survey.TranscriptQuery{Failed: only, Limit: 7, Text: 10})
		keys := keysOf(page)
		for page.Earlier {
			if len(page.Steps) != 7 {
				t.Fatalf("a page has %d steps", len(page.Steps))
			}
			page = transcribe(t, s, survey.TranscriptQuery{Failed: only, Limit: 7, Before: keys[0]})
			keys = append(keysOf(page), keys...)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("backwards: %q, want %q", keys, want)
		}
		page = transcribe(t, s, survey.TranscriptQuery{Failed: only, Limit: 7, At: want[0]})
		keys = keysOf(page)
		for page.Later {
			page = transcribe(t, s, survey.TranscriptQuery{Failed: only, Limit: 7, After: keys[len(keys)-1]})
			keys = append(keys, keysOf(page)...)
			if !page.Earlier {
				t.Error("a later page has nothing before it")
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("forwards: %q, want %q", keys, want)
		}
	}
	page := transcribe(t, s, survey.TranscriptQuery{From: times["s20"], Limit: 3, Text: 10})
	if page.Steps[0].Key != "s19" || !page.Earlier || !page.Later { // s19, s20 and s21 began at that time
		t.Errorf("from a time: %+v", page)
	}
	if step := page.Steps[0]; step.Args != `"ééééééééé` || step.ArgsSize != 52 || step.ResultSize != 1 {
		t.Errorf("the texts are %+v", step)
	}
	if heard := page.Events; len(heard) != 3 || heard[0].Payload != `"of s19"` || heard[2].Payload != `"of s21"` {
		t.Errorf("the events are %+v", heard)
	}
	causes := transcribe(t, s, survey.TranscriptQuery{Failed: true}).Causes
	if len(causes) != 2 || causes[0].Count != 5 || causes[1].Count != 5 || causes[0].Error == causes[1].Error {
		t.Errorf("the causes are %+v", causes)
	}
	// The oldest events go; their steps stay.
	_, err := s.SetOwnPolicy(t.Context(), as(1), mainRun.Agent, []byte(`{"max_events":20}`))
	must(t, err)
	_, _, err = s.Append(t.Context(), as(1), mainRun, []ckpt.NewEvent{{Type: "said", Payload: ckpt.JSON(`"the last"`)}}, "")
	must(t, err)
	if page := transcribe(t, s, survey.TranscriptQuery{At: "s4", Limit: 3}); len(page.Steps) != 3 || len(page.Events) != 0 {
		t.Errorf("beside events that are gone: %+v", page)
	}
	if page := transcribe(t, s, survey.TranscriptQuery{At: "s40", Limit: 3}); len(page.Events) != 3 || page.Events[0].Payload != `"of s40"` {
		t.Errorf("beside events that are there: %+v", page.Events)
	}
	_, err = s.Transcript(t.Context(), ann, mainRun, survey.TranscriptQuery{At: "none"})
	wantCode(t, err, ckpt.CodeNotFound)
}

func transcribe(t *testing.T, s *db.Store, f survey.TranscriptQuery) *survey.Transcript {
	t.Helper()
	page, err := s.Transcript(t.Context(), ann, mainRun, f)
	must(t, err)
	return page
}

func keysOf(page *survey.Transcript) (keys []string) {
	for i := range page.Steps {
		keys = append(keys, page.Steps[i].Key)
	}
	return keys
}
