// Package clitest has commands for stories of the command line that testscript runs. Only
// tests import it.
//
// This package may import the standard library and testscript.
package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Command is a command of a story.
type Command = func(ts *testscript.TestScript, neg bool, args []string)

// Commands are the commands of all stories, and more:
//
//	exits 3 ckptsidecar show …      runs a command and checks its exit code
//	capture NAME                    puts the last standard output into a variable
//	soon test -e file               repeats a command until it succeeds
//	fields stdout bench=save cells.0.size
//	                                checks fields of a JSON document
func Commands(more map[string]Command) map[string]Command {
	all := map[string]Command{"exits": exits, "capture": capture, "soon": soon, "fields": fields}
	maps.Copy(all, more)
	return all
}

// exits runs a command and checks its exit code: exits 3 ckptsidecar show …
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var exit *exec.ExitError
	code := 0
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// capture stores the last standard output in a variable.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// soon repeats a command until it succeeds: soon test -e file
func soon(ts *testscript.TestScript, _ bool, args []string) {
	Until(ts, strings.Join(args, " ")+" does not come true", func() bool { return ts.Exec(args[0], args[1:]...) == nil })
}

// fields checks a JSON document. `fields stdout bench=save cells.0.size` requires that
// the first field has that value, and that the second exists and is not 0, empty or null.
func fields(ts *testscript.TestScript, _ bool, args []string) {
	var all any
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	decoder.UseNumber()
	ts.Check(decoder.Decode(&all))
	for _, arg := range args[1:] {
		path, want, given := strings.Cut(arg, "=")
		value := all
		for name := range strings.SplitSeq(path, ".") {
			switch inside := value.(type) {
			case map[string]any:
				value = inside[name]
			case []any:
				n, err := strconv.Atoi(name)
				ts.Check(err)
				if value = nil; n < len(inside) {
					value = inside[n]
				}
			default:
				value = nil
			}
		}
		text := fmt.Sprint(value)
		if given && text != want || !given && slices.Contains([]string{"0", "", "<nil>"}, text) {
			ts.Fatalf("%s is %s", arg, text)
		}
	}
}

// Until repeats a check until it succeeds, for ten seconds.
func Until(ts *testscript.TestScript, complaint string, done func() bool) {
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%s in 10 seconds", complaint)
		}
	}
}
