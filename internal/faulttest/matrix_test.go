//go:build unix

package faulttest

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// The matrix of faults runs only on request: make faults-short and make faults.
var (
	matrix = flag.String("faults", "", "run the matrix of faults: short or all")
	only   = flag.String("rows", "", "of the matrix only these, as in F8,F9")
	from   = flag.String("from", "", "of the matrix only this row and those after it")
)

// row is one fault of the matrix, and the function that causes it.
type row struct {
	name, fault string
	short       bool // whether the short run includes it
	run         func(*testing.T)
}

// rows are in the order of the matrix. The rows of one platform add themselves.
var rows []row

func addRow(name, fault string, short bool, run func(*testing.T)) {
	rows = append(rows, row{name, fault, short, run})
}

// figures are the results of one row of the matrix.
type figures struct {
	rounds, points, acked, lost int
	notes                       []string
}

// tally adds up the figures of the running row. Nobody reads it for a test outside the matrix.
var tally struct {
	mu sync.Mutex
	figures
}

// count adds to the figures of the row. A loss also fails the test.
func count(t *testing.T, f figures) {
	t.Helper()
	tally.mu.Lock()
	defer tally.mu.Unlock()
	tally.rounds += f.rounds
	tally.points += f.points
	tally.acked += f.acked
	tally.lost += f.lost
	if f.lost > 0 {
		t.Errorf("%d acknowledged saves are lost or damaged", f.lost)
	}
}

// note adds a result in words to the table and the log.
func note(t *testing.T, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	t.Log(text)
	tally.mu.Lock()
	defer tally.mu.Unlock()
	tally.notes = append(tally.notes, text)
}

// beside makes a test that mostly waits run in parallel with others, and leaves it out of the short run. A row of the
// matrix runs alone.
func beside(t *testing.T) {
	t.Helper()
	if *matrix != "" {
		return
	}
	if testing.Short() {
		t.Skip("-short: it kills, blocks or floods a daemon, which takes seconds")
	}
	t.Parallel()
}

// isShort reports whether the tests do less, for a run of a few minutes.
func isShort() bool { return *matrix != "all" }

// TestFaults is the matrix of faults as a program. It reports the result of each row as soon as the row has ended,
// and prints a table at the end.
func TestFaults(t *testing.T) {
	if *matrix == "" {
		t.Skip("make faults-short and make faults run the matrix of faults")
	}
	fmt.Printf("seed %d\n", *seed)
	var table []string
	began := time.Now()
	for _, r := range chosen(t) {
		tally.mu.Lock()
		tally.figures = figures{}
		tally.mu.Unlock()
		start, skipped := time.Now(), false
		ok := t.Run(r.name, func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			r.run(t)
		})
		line := r.line(ok, skipped, time.Since(start))
		fmt.Println(line)
		for _, n := range tally.notes {
			fmt.Println("      " + n)
		}
		table = append(table, line)
	}
	summary = fmt.Sprintf("\n%s\n%s\nseed %d, %v in all\n", heading, strings.Join(table, "\n"), *seed, time.Since(began).Round(time.Second))
}

// summary is printed after the output of all tests.
var summary string

const heading = "row  fault                                          rounds  points   acked  losses    time  result"

func (r row) line(ok, skipped bool, took time.Duration) string {
	result := "ok"
	switch {
	case !ok:
		result = fmt.Sprintf("FAILED, again with FAULTS=%s SEED=%d", r.name, *seed)
	case skipped:
		result = "skipped"
	}
	return fmt.Sprintf("%-4s %-46s %6d  %6d  %6d  %6d  %5.0fs  %s", r.name, r.fault, tally.rounds, tally.points, tally.acked, tally.lost, took.Seconds(), result)
}

// chosen returns the requested rows.
func chosen(t *testing.T) (list []row) {
	slices.SortStableFunc(rows, func(a, b row) int { return number(a.name) - number(b.name) })
	names := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' || r == ' ' })
	for _, r := range rows {
		switch {
		case len(names) > 0 && !slices.Contains(names, r.name):
		case number(r.name) < number(*from):
		case isShort() && !r.short && len(names) == 0:
		default:
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		t.Fatalf("there is no row %s%s", *only, *from)
	}
	return list
}

func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "F"))
	return n
}

// several runs tests of this package as one row, each under its own name.
func several(tests map[string]func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, test)
			count(t, figures{rounds: 1})
		}
	}
}

// named holds the tests of other packages that rows run, by package.
var named = map[string][]string{}

// elsewhere runs tests of other packages: the rows of the matrix that need the inside of a package are tested in
// that package. If there is time, it runs them often. A package includes the packages below it.
func elsewhere(tests map[string]string, often int) func(*testing.T) {
	for name, pattern := range tests {
		named[name] = append(named[name], strings.Split(pattern, "|")...)
	}
	return func(t *testing.T) {
		if isShort() && *only == "" {
			t.Skip("go test ./... has this; make faults does it often")
		}
		for name, pattern := range tests {
			args := []string{"test", "-count", strconv.Itoa(often), "-timeout", "10m", "-v", "-run", "^(" + pattern + ")$", "../" + name + "/..."}
			cmd := exec.Command("go", args...)
			cmd.Env = testenv.Environ()
			out, err := cmd.CombinedOutput()
			passed := strings.Count(string(out), "\n--- PASS")
			count(t, figures{rounds: passed})
			if err != nil || passed == 0 {
				t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, tail(string(out), 4000))
			}
			if n := strings.Count(string(out), "--- SKIP"); n > 0 {
				note(t, "internal/%s skipped %d", name, n)
			}
		}
	}
}

// TestTestsOfOtherPackagesExist: each name that a row passes to go test is the name of a test. Otherwise a row
// whose test was renamed would pass unnoticed.
func TestTestsOfOtherPackagesExist(t *testing.T) {
	for name, patterns := range named {
		var tests []string
		err := filepath.WalkDir("../"+name, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				tests = append(tests, string(m[1]))
			}
			return err
		})
		must(t, err)
		for _, pattern := range patterns {
			if !slices.ContainsFunc(tests, regexp.MustCompile("^("+pattern+")$").MatchString) {
				t.Errorf("no test of internal/%s is named %s", name, pattern)
			}
		}
	}
}
