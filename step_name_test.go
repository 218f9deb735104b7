package ckptsidecar

import "testing"

func TestStepName(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"search": "search", "search-3": "search", "s1": "s", "fetch_page_12": "fetch_page", "step/7": "step", "call_7": "call",
		"search-018f3a52-7b2c-7e11-9d4e-2b7a61c0ffee": "search", "toolu_01AbCdEf9xyz": "toolu", "report-2026-11-28": "report",
		"report-2026-11-28T10:00:00Z": "report", "17": "step", "018f3a52-7b2c-7e11-9d4e-2b7a61c0ffee": "step", "read file 3": "read file",
		"utf8": "utf", "größe-4": "größe", "try-2-of-3": "try-2-of", "a": "a", "-": "step",
	} {
		if got := StepName(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
