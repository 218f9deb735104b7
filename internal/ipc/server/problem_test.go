package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

func TestEveryCodeHasAStatusOfTheContract(t *testing.T) {
	want := map[ckpt.Code]int{
		"invalid": 400, "denied": 403, "not_found": 404, "conflict": 409, "uncertain_operation": 409, "fenced": 409, "base_missing": 409, "files_missing": 409, "too_large": 413,
		"idempotency_mismatch": 422, "schema_mismatch": 422, "quota": 429, "busy": 503, "corrupt": 500, "storage_full": 507, "not_replicated": 503,
		"internal": 500,
	}
	expect.Equal(t, "codes in the table", len(ipc.Kinds), len(ckpt.Codes))
	for _, code := range ckpt.Codes {
		expect.Equal(t, "the status of "+string(code), ipc.Kinds[code].Status, want[code])
	}
}

func TestProblemRoundTrip(t *testing.T) {
	for _, code := range ckpt.Codes {
		for _, outcome := range []ckpt.Outcome{"", ckpt.OutcomeSaved, ckpt.OutcomeNotSaved, ckpt.OutcomeUnknown} {
			for _, after := range []time.Duration{0, 3 * time.Second} {
				e := &ckpt.Error{Code: code, Message: `what "is" wrong`, Outcome: outcome, RetryAfter: after, Err: errors.New("canary-cause")}
				rec := httptest.NewRecorder()
				writeProblem(rec, ipc.NewProblem(e))
				if strings.Contains(rec.Body.String(), "canary") {
					t.Fatalf("the cause is in the reply: %s", rec.Body)
				}
				got := ipc.ReadProblem(rec.Code, rec.Result().Header, rec.Body.Bytes(), true)
				expect.Equal(t, "code", got.Code, e.Code)
				expect.Equal(t, "message", got.Message, e.Message)
				expect.Equal(t, "outcome", got.Outcome, e.OutcomeOrDefault())
				expect.Equal(t, "retryable", got.Retryable(), e.Retryable())
				if after == 0 && (code == ckpt.CodeBusy || code == ckpt.CodeQuota) {
					after = time.Second
				}
				expect.Equal(t, "retry after of "+string(code), got.RetryAfter, after)
			}
		}
	}
}

func TestRetryAfterIsNeverShorterThanAsked(t *testing.T) {
	p := ipc.NewProblem(&ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: 1200 * time.Millisecond})
	expect.Equal(t, "Retry-After", p.RetryAfter, 2*time.Second)
}

func TestAnyOtherErrorIsInternalAndSaysNothing(t *testing.T) {
	p := ipc.NewProblem(errors.New("canary: SQL logic error in payload"))
	expect.Equal(t, "status", p.Status, 500)
	expect.Equal(t, "code", p.Code, ckpt.CodeInternal)
	if strings.Contains(p.Detail, "canary") {
		t.Errorf("the detail is %q", p.Detail)
	}
}

func TestRepliesThatAreNoProblemOfOurs(t *testing.T) {
	for _, c := range []struct {
		status  int
		write   bool
		code    ckpt.Code
		outcome ckpt.Outcome
	}{
		{431, true, ckpt.CodeInvalid, ckpt.OutcomeNotSaved},
		{400, true, ckpt.CodeInvalid, ckpt.OutcomeNotSaved},
		{502, true, ckpt.CodeInternal, ckpt.OutcomeUnknown},
		{502, false, ckpt.CodeInternal, ckpt.OutcomeNotSaved},
		{302, true, ckpt.CodeInternal, ckpt.OutcomeUnknown},
	} {
		e := ipc.ReadProblem(c.status, http.Header{}, []byte("<html>"), c.write)
		expect.Equal(t, "code", e.Code, c.code)
		expect.Equal(t, "outcome", e.OutcomeOrDefault(), c.outcome)
	}
}
