package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// acts perform the actions of forms.
var acts = map[string]func(*Console, context.Context, *subject, url.Values) (done, error){
	"resolve": actResolve, "answer": actAnswer, "dismiss": actDismiss, "pin": actPin, "unpin": actPin, "label": actLabel,
	"restore": actRestore, "fork": actFork, "policy": actPolicy, "prune": actPrune,
	"claim": actClaim,
}

// headerForm marks a form that the script has sent: the browser stays on the page.
const headerForm = "Ckpt-Form"

// act performs the action of a form. The console shows nothing as done before the daemon has confirmed it.
func (c *Console) act(w http.ResponseWriter, r *http.Request) {
	what, q := r.PathValue("what"), r.PostForm
	do, ok := acts[what]
	if !ok {
		http.NotFound(w, r)
		return
	}
	// If the same form is sent again with the same key, it gets the first answer, whatever has happened since.
	var acting *subject // nil before the action begins
	page := sessionOf(r).base()
	result, err := sessionOf(r).once(what, q, func() (done, error) {
		s, err := c.subjectOf(r.Context(), sessionOf(r).base(), what, q)
		if err != nil {
			return done{}, err
		}
		page = s.page
		if err := s.moved(q); err != nil && q.Get("again") == "" {
			return done{}, err
		}
		acting = s
		return do(c, r.Context(), s, q)
	})
	if err != nil && acting == nil {
		c.troubleAt(w, r, page, err)
		return
	}
	c.daemon.forget()
	if err != nil {
		c.failed(w, r, acting, what, err)
		return
	}
	if r.Header.Get(headerForm) != "" {
		refuse(w, http.StatusOK, result.said)
		return
	}
	sessionOf(r).note(result.said)
	http.Redirect(w, r, result.page, http.StatusSeeOther)
}

// moved refuses to act on a run that has changed since the operator saw it.
func (s *subject) moved(q url.Values) error {
	if s.run == nil {
		return nil // the form of an agent itself contains what the operator saw
	}
	epoch, status := q.Get("epoch"), q.Get("status")
	if epoch == strconv.FormatInt(s.run.Epoch, 10) && status == string(s.run.Status) {
		return nil
	}
	return ckpt.Errorf(ckpt.CodeConflict,
		"the run has moved on since this form was drawn: it was %s in epoch %s, and is %s in epoch %d now. Nothing was done",
		draw.Dashes(status), epoch, draw.Dashes(string(s.run.Status)), s.run.Epoch)
}

// failed shows the daemon's error. If it is unknown whether the action was done, it offers the same form again,
// with the same key.
func (c *Console) failed(w http.ResponseWriter, r *http.Request, s *subject, what string, err error) {
	var e *ckpt.Error
	if !errors.As(err, &e) || e.Outcome != ckpt.OutcomeUnknown {
		c.troubleAt(w, r, s.page, err)
		return
	}
	again := &askView{What: what, Do: "Ask again with the same key", Key: r.PostForm.Get("key"), Cancel: s.page}
	again.Base, again.CSRF = sessionOf(r).base(), sessionOf(r).csrf
	for name, values := range r.PostForm {
		if name != "csrf" && name != "key" && name != "again" {
			for _, value := range values {
				again.Hidden = append(again.Hidden, pair{name, value})
			}
		}
	}
	again.Hidden = append(again.Hidden, pair{"again", "1"})
	v := troubleView{frame: c.frameOf(r, "It is not known whether this was done", "-"), Back: s.page, Again: again}
	v.What, v.Detail = v.Title, messageOf(err)+". To ask again does it once, whatever became of it."
	c.show(w, r, http.StatusBadGateway, "trouble", v)
}

// why returns the typed reason.
func why(q url.Values) (string, error) {
	text := strings.TrimSpace(q.Get("reason"))
	if text == "" {
		return "", ckpt.Errorf(ckpt.CodeInvalid, "say why: it goes into the audit log with your name")
	}
	return text, ckpt.CheckReason(text)
}

func actResolve(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	reason, err := why(q)
	if err != nil {
		return done{}, err
	}
	key := unpack(q.Get("op"))
	attempt, err := strconv.ParseInt(q.Get("attempt"), 10, 64)
	if err != nil {
		return done{}, ckpt.Errorf(ckpt.CodeInvalid, "the form names no attempt: load the page again")
	}
	o, replayed, err := s.line.ResolveOperation(ctx, s.ref, ckpt.OperationResolution{
		Key: key, Attempt: attempt, Choice: ckpt.PromptChoice(q.Get("found")), Result: ckpt.JSON(strings.TrimSpace(q.Get("result"))), Reason: reason,
		IdempotencyKey: q.Get("key"),
	})
	if err != nil {
		return done{}, err
	}
	word := map[ckpt.OperationStatus]string{
		ckpt.OperationSucceeded: "took effect", ckpt.OperationFailed: "did not take effect", ckpt.OperationSuperseded: "may be repeated",
	}[o.Status]
	said := fmt.Sprintf("Recorded: “%s” %s%s", draw.FirstLine(o.Name, 80), word, before(replayed))
	more, err := s.resolveAlike(ctx, q, reason)
	if err != nil {
		return done{}, ckpt.Wrap(codeOf(err), err, "%s, and for %s too; then: %s", said, draw.Plural(more, "other run"), messageOf(err))
	}
	if more > 0 {
		said += ", and for " + draw.Plural(more, "other run") + " too"
	}
	return done{said + ".", s.page}, nil
}

// resolveAlike gives the same answer for the operations of other runs that the person has chosen.
func (s *subject) resolveAlike(ctx context.Context, q url.Values, reason string) (n int, err error) {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		packed, is := strings.CutPrefix(name, also)
		parts := strings.SplitN(unpack(packed), "\n", 3)
		if !is || len(parts) < 3 {
			continue
		}
		attempt, _ := strconv.ParseInt(parts[1], 10, 64)
		_, _, err := s.line.ResolveOperation(ctx, ckpt.RunRef{Agent: s.ref.Agent, Run: parts[0]}, ckpt.OperationResolution{
			Key: parts[2], Attempt: attempt, Choice: ckpt.PromptChoice(q.Get("found")), Result: ckpt.JSON(strings.TrimSpace(q.Get("result"))), Reason: reason,
			IdempotencyKey: q.Get("key") + "-" + strconv.Itoa(n),
		})
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// before returns a note that a form was sent twice.
func before(replayed bool) string {
	if replayed {
		return " (this was done before; it was done once)"
	}
	return ""
}

func actAnswer(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	reason, err := why(q)
	if err != nil {
		return done{}, err
	}
	p, err := s.line.Prompt(ctx, q.Get("prompt"))
	if err != nil {
		return done{}, err
	}
	answer := ckpt.PromptAnswer{ID: p.ID, Reason: reason, IdempotencyKey: q.Get("key")}
	switch p.Kind {
	case ckpt.PromptQuestion:
		if err := readQuestion(p, q, &answer); err != nil {
			return done{}, err
		}
	case ckpt.PromptOperation:
		answer.Choice, answer.Data = ckpt.PromptChoice(q.Get("choice")), ckpt.JSON(strings.TrimSpace(q.Get("result")))
	default:
		answer.Choice = ckpt.PromptChoice(q.Get("choice"))
	}
	if _, _, err = s.line.AnswerPrompt(ctx, answer); err != nil {
		return done{}, err
	}
	return done{fmt.Sprintf("Answered, for %s.", s.name()), s.page}, nil
}

func actDismiss(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	reason, err := why(q)
	if err != nil {
		return done{}, err
	}
	ids := strings.Split(q.Get("findings"), ",")
	if len(ids) > ckpt.MaxFindings {
		return done{}, ckpt.Errorf(ckpt.CodeTooLarge, "these are more findings than one form may dismiss")
	}
	dismissed, cleaned := 0, 0
	for i, id := range ids {
		f, _, err := s.line.Dismiss(ctx, ckpt.DismissRequest{ID: id, Reason: reason, IdempotencyKey: q.Get("key") + "-" + strconv.Itoa(i)})
		if err != nil {
			if dismissed > 0 {
				err = ckpt.Wrap(codeOf(err), err, "%d of %d were dismissed; then: %s", dismissed, len(ids), messageOf(err))
			}
			return done{}, err
		}
		dismissed, cleaned = dismissed+1, cleaned+len(f.Cleaned)
	}
	said := fmt.Sprintf("Dismissed %s.", draw.Plural(dismissed, "finding"))
	if cleaned > 0 {
		said += fmt.Sprintf(" %s clean again.", becameClean(cleaned))
	}
	return done{said, s.page}, nil
}

func becameClean(n int) string {
	if n == 1 {
		return "1 checkpoint is"
	}
	return draw.Plural(n, "checkpoint") + " are"
}

func codeOf(err error) ckpt.Code {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ckpt.CodeInternal
}

// because returns a context whose calls carry the typed reason.
func because(ctx context.Context, q url.Values) (context.Context, error) {
	reason, err := why(q)
	return client.WithReason(ctx, reason), err
}

func actPin(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	ctx, err := because(ctx, q)
	if err != nil {
		return done{}, err
	}
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return done{}, err
	}
	pinned := q.Get("want") == "pinned"
	cp, err = s.line.Patch(ctx, cp.ID, ckpt.CheckpointPatch{Pinned: &pinned})
	if err != nil {
		return done{}, err
	}
	word := "pinned"
	if !cp.Pinned {
		word = "not pinned any more"
	}
	return done{fmt.Sprintf("Checkpoint %d is %s.", cp.Seq, word), s.at(cp)}, nil
}

// at returns the address of the run's page with this checkpoint chosen.
func (s *subject) at(cp *ckpt.Checkpoint) string { return s.page + "?cp=" + cp.ID }

func actLabel(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	ctx, err := because(ctx, q)
	if err != nil {
		return done{}, err
	}
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return done{}, err
	}
	labels, err := readLabels(q.Get("labels"), cp.Labels)
	if err != nil {
		return done{}, err
	}
	if now := labelText(cp.Labels); now != unpack(q.Get("before")) && now != labelText(labels) {
		return done{}, ckpt.Errorf(ckpt.CodeConflict, "the labels have changed since this form was drawn. Nothing was done")
	}
	if cp, err = s.line.Patch(ctx, cp.ID, ckpt.CheckpointPatch{Labels: &labels}); err != nil {
		return done{}, err
	}
	return done{fmt.Sprintf("Checkpoint %d has %s.", cp.Seq, draw.Plural(len(cp.Labels), "label")), s.at(cp)}, nil
}

// readLabels reads lines of name=value. A line that is as the form showed it keeps its value:
// a page replaces some characters of a value by marks.
func readLabels(text string, was ckpt.Labels) (ckpt.Labels, error) {
	shown := map[string]string{}
	for name, value := range was {
		shown[string(visible([]byte(name+"="+value)))] = name
	}
	labels := ckpt.Labels{}
	for line := range strings.Lines(text) {
		name, same := shown[strings.TrimRight(line, "\r\n")]
		value := was[name]
		if !same {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			var found bool
			if name, value, found = strings.Cut(line, "="); !found {
				return nil, ckpt.Errorf(ckpt.CodeInvalid, "a label has no = in it: write name=value, one a line")
			}
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		}
		if _, twice := labels[name]; twice {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the label %q is there twice: give it one value", draw.FirstLine(name, 40))
		}
		labels[name] = value
	}
	return labels, ckpt.CheckLabels(labels)
}

func actRestore(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	reason, err := why(q)
	if err != nil {
		return done{}, err
	}
	cp, replayed, err := s.line.Restore(ctx, ckpt.RestoreRequest{
		Agent: s.ref.Agent, Run: s.ref.Run, Checkpoint: q.Get("checkpoint"), Reason: reason, IdempotencyKey: q.Get("key"),
	})
	if err != nil {
		return done{}, err
	}
	return done{fmt.Sprintf("Checkpoint %d was restored%s: the next resume will load it.", cp.Seq, before(replayed)), s.at(cp)}, nil
}

func actFork(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	ctx, err := because(ctx, q)
	if err != nil {
		return done{}, err
	}
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return done{}, err
	}
	name := strings.TrimSpace(q.Get("name"))
	if err := ckpt.CheckRunName(name); err != nil {
		return done{}, err
	}
	if q.Get("again") == "" {
		// The daemon would begin a run that has ended anew.
		if taken, err := s.hasRun(ctx, name); err != nil {
			return done{}, err
		} else if taken {
			return done{}, ckpt.Errorf(ckpt.CodeInvalid, "agent %s already has a run %s: choose another name. Nothing was done", s.ref.Agent, name)
		}
	}
	// Browsers send \r\n as line ends.
	text := strings.ReplaceAll(q.Get("state"), "\r\n", "\n")
	edited := q.Get("drawn") != "" && text != "" && hash([]byte(text)) != q.Get("drawn")
	begins := fmt.Sprintf("checkpoint %d", cp.Seq)
	if edited {
		begins = fmt.Sprintf("the changed state of checkpoint %d", cp.Seq)
		err = s.forkEdited(ctx, cp, name, []byte(text), q)
	} else {
		_, _, err = s.line.StartRun(ctx, ckpt.RunRequest{Agent: s.ref.Agent, Run: name, ForkFrom: ckpt.Ref(cp.ID), IdempotencyKey: q.Get("key")})
	}
	if err != nil {
		return done{}, err
	}
	page := strings.TrimSuffix(s.page, url.PathEscape(s.run.Run)) + url.PathEscape(name)
	return done{fmt.Sprintf("The run %s begins with %s. Start its agent with: %s",
		name, begins, ckpt.ExecCommand(s.ref.Agent, name, s.run.Command)), page}, nil
}

// hasRun reports whether the agent has a run of this name.
func (s *subject) hasRun(ctx context.Context, name string) (bool, error) {
	_, err := s.line.Run(ctx, ckpt.RunRef{Agent: s.ref.Agent, Run: name})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// labelEdited is the label of a state that a person changed.
const labelEdited = "edited"

// forkEdited saves a changed state as the first state of a new run. One call creates both. A save has no
// reason, so a label says where the state comes from.
func (s *subject) forkEdited(ctx context.Context, cp *ckpt.Checkpoint, name string, state []byte, q url.Values) error {
	if !json.Valid(state) {
		return ckpt.Errorf(ckpt.CodeInvalid, "the changed state is not JSON. Nothing was done")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, state); err != nil {
		return err
	}
	saved, err := s.line.Save(ctx, &ckpt.SaveRequest{
		ID: q.Get("key"), Agent: s.ref.Agent, Run: name, Kind: ckpt.KindRoutine, ForkFrom: ckpt.Ref(cp.ID),
		ContentType: ckpt.ContentTypeJSON, State: compact.Bytes(), Metadata: json.RawMessage(`{"edited":"in the console"}`),
	})
	if err != nil {
		return err
	}
	_, err = s.line.Patch(ctx, saved.ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{labelEdited: "in-the-console"}})
	return err
}
