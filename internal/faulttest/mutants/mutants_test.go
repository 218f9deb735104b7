package mutants

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	plantAll = flag.Bool("plant", false, "plant the mutants and run the test that is named for each")
	only     = flag.String("only", "", "of the mutants only those whose list or name fits this pattern")
	jobs     = flag.Int("jobs", 2, "how many to plant at a time")
)

// TestEveryMutantFits fails if the text that a mutant replaces is no longer in
// the source.
func TestEveryMutantFits(t *testing.T) {
	all, root := read(t)
	if len(all) < 60 {
		t.Errorf("there are only %d mutants", len(all))
	}
	for i := range all {
		if _, err := all[i].Plant(root, t.TempDir()); err != nil {
			t.Error(err)
		}
		if m := &all[i]; m.Test != "" && !hasTest(t, filepath.Join(root, m.Package), m.Test) {
			t.Errorf("mutant %s: %s has no test %s", m.Name, m.Package, m.Test)
		}
	}
}

// hasTest reports whether the files of a folder define a test.
func hasTest(t *testing.T, folder, test string) bool {
	t.Helper()
	test, _, _ = strings.Cut(strings.Trim(test, "^$"), "/")
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "func "+test)
	})
}

func read(t *testing.T) ([]Mutant, string) {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	return all, root
}

// TestParseRefuses checks that the parser refuses lists with mistakes.
func TestParseRefuses(t *testing.T) {
	const good = "mutant a\nwhat w\nfile f.go\n- x\nfound ./p TestX\n"
	if _, err := parse("list", good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"what w\n",
		strings.Replace(good, "what w\n", "", 1),
		strings.Replace(good, "- x\n", "", 1),
		strings.Replace(good, "found ./p TestX\n", "", 1),
		strings.Replace(good, "f.go", "f_test.go", 1),
		good + "stays and is found\n",
		good + "unknown word\n",
	} {
		if _, err := parse("list", bad); err == nil {
			t.Errorf("accepted:\n%s", bad)
		}
	}
}

// TestApply checks that a text is found once, with any indentation.
func TestApply(t *testing.T) {
	const text = "func f() {\n\tif a {\n\t\tb()\n\t}\n\tc(a)\n}\n"
	for _, c := range []struct {
		find, put []string
		want      string
	}{
		{[]string{"if a {", "b()"}, []string{"if !a {", "b()"}, "func f() {\n\tif !a {\nb()\n\t}\n\tc(a)\n}\n"},
		{[]string{"c(a)"}, nil, "func f() {\n\tif a {\n\t\tb()\n\t}\n\t\n}\n"},
		{[]string{"a"}, nil, ""},
		{[]string{"z"}, nil, ""},
	} {
		got, err := (&Edit{File: "f.go", Find: c.find, Put: c.put}).apply(text)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q -> %q: %q, %v", c.find, c.put, got, err)
		}
	}
}

// result is the result of planting one mutant.
type result struct {
	Mutant
	end  string // found, survived, stays, skipped, hung or broken
	sign string // the output line that found it, or what went wrong
	took time.Duration
}

// TestMutants plants every mutant and fails for each one that survives without
// an explanation.
func TestMutants(t *testing.T) {
	if !*plantAll {
		t.Skip("make mutants plants them")
	}
	all, root := read(t)
	pattern := regexp.MustCompile(*only)
	all = slices.DeleteFunc(all, func(m Mutant) bool { return !pattern.MatchString(m.List + "/" + m.Name) })
	soundWithout(t, root, all)

	results := make([]result, len(all))
	var wait sync.WaitGroup
	turns := make(chan struct{}, *jobs)
	for i := range all {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			results[i] = plant(root, all[i])
			fmt.Println(results[i])
		})
	}
	wait.Wait()

	ends := map[string]int{}
	for _, r := range results {
		ends[r.end]++
		if r.end == "survived" || r.end == "broken" || r.end == "hung" {
			t.Errorf("%s/%s %s: %s %s", r.List, r.Name, r.end, r.What, r.sign)
		}
	}
	fmt.Printf("planted %d: found %d, survivors %d", len(all), ends["found"], ends["survived"]+ends["stays"])
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		if end != "found" && end != "survived" {
			fmt.Printf(", %s %d", end, ends[end])
		}
	}
	fmt.Println()
}

func (r result) String() string {
	by := r.Test
	if r.end == "stays" {
		by, r.sign = "", r.Stays
	}
	return fmt.Sprintf("%-8s %4.0fs  %s/%s  %s  %s", r.end, r.took.Seconds(), r.List, r.Name, by, r.sign)
}

// soundWithout runs the tests without a mutant. A test that fails anyway finds
// nothing.
func soundWithout(t *testing.T, root string, all []Mutant) {
	t.Helper()
	tests := map[string][]string{}
	for _, m := range all {
		if m.Test != "" && !slices.Contains(tests[m.Package], m.Test) {
			tests[m.Package] = append(tests[m.Package], m.Test)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout", "10m", "-v", "-run", "^("+strings.Join(tests[pkg], "|")+")$", pkg)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("without a mutant: %v: %v\n%s", cmd.Args, err, tail(string(out)))
		}
		for _, test := range tests[pkg] {
			if !strings.Contains(string(out), "=== RUN   "+test+"\n") {
				t.Errorf("%s has no test %s", pkg, test)
			}
		}
	}
}

// plant builds and runs the test of one mutant. The test has one minute. The
// time of the build comes on top, because it depends on the machine.
func plant(root string, m Mutant) (r result) {
	r = result{Mutant: m}
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	folder, err := os.MkdirTemp("", "mutant")
	if err != nil {
		r.end, r.sign = "broken", err.Error()
		return r
	}
	defer os.RemoveAll(folder)
	overlay, err := m.Plant(root, folder)
	if err != nil {
		r.end, r.sign = "broken", err.Error()
		return r
	}
	if m.Stays != "" {
		r.end = "stays"
		return r
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // more than a test waits for anything
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-ldflags=-w", "-overlay", overlay, "-count=1", "-failfast", "-timeout", "8m", "-v", "-run", "^"+m.Test+"$", m.Package)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), OverlayVariable+"="+overlay)
	out, err := cmd.CombinedOutput()
	r.end, r.sign = judge(string(out), errors.Join(err, ctx.Err()))
	return r
}

var (
	failLine  = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: .*|^panic: .*`)
	brokenEnd = regexp.MustCompile(`\[(build|setup) failed\]|does not build`)
)

// judge interprets the output of go test.
func judge(out string, err error) (end, sign string) {
	switch {
	case brokenEnd.MatchString(out):
		return "broken", tail(out)
	case strings.Contains(out, "no tests to run"):
		return "broken", "there is no such test"
	case strings.Contains(out, "panic: test timed out"):
		return "hung", ""
	case err != nil && (strings.Contains(out, "--- FAIL") || strings.Contains(out, "panic:") || strings.Contains(out, "fatal error:")):
		sign = strings.TrimSpace(failLine.FindString(out))
		return "found", sign[:min(len(sign), 150)]
	case err != nil:
		return "broken", fmt.Sprint(err, tail(out))
	case strings.Contains(out, "--- SKIP") && !strings.Contains(out, "--- PASS"):
		return "skipped", tail(out)
	}
	return "survived", ""
}

func tail(out string) string {
	out = strings.TrimSpace(out)
	return out[max(0, len(out)-600):]
}
