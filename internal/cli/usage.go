package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// UsageOf formulates a mistake on the command line for people.
func UsageOf(err error) error {
	command := "ckptsidecar"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if selected := parse.Context.Selected(); selected != nil {
			command = selected.FullPath()
		}
	}
	return Usagef("%s (`%s --help` says more)", worded(err.Error()), command)
}

var (
	notOneOf  = regexp.MustCompile(`^(\S+) must be one of (.*) but got "(.*)"$`)
	notNumber = regexp.MustCompile(`^\[?([^\s\]]+)\]?: expected a(?: valid \d+ bit int| float) but got "(.*)"(?: \(.*\))?$`)
	missing   = regexp.MustCompile(`^expected "([^"]*)"$`)
)

// worded rewrites the parser's messages as a person would write them: without quotes
// around words, and without the empty value of a flag that was not given.
func worded(message string) string {
	if m := notOneOf.FindStringSubmatch(message); m != nil {
		words := strings.Split(strings.ReplaceAll(m[2], `"`, ""), ",")
		words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
		return fmt.Sprintf("%s must be one of %s; got %s", m[1], strings.Join(words, ", "), cmp.Or(m[3], "nothing"))
	}
	if m := missing.FindStringSubmatch(message); m != nil {
		return m[1] + " is missing"
	}
	if m := notNumber.FindStringSubmatch(message); m != nil {
		what := "a number"
		if strings.Contains(message, "int") {
			what = "a whole number"
		}
		return fmt.Sprintf("%s takes %s; got %s", m[1], what, cmp.Or(m[2], "nothing"))
	}
	return message
}
