package daemon

import "testing"

func TestJournalNames(t *testing.T) {
	for key, want := range map[string]string{"error": "CKPT_ERROR", "request.route": "CKPT_REQUEST_ROUTE", "a-ü1": "CKPT_A__1"} {
		if got := journalName(key); got != want {
			t.Errorf("%s became %s, want %s", key, got, want)
		}
	}
}
